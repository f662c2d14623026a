"""Quantile of the normal distribution for 95% intervals."""

Z95 = 1.959963984540054  # 97.5% of a standard normal variable is below it
