"""The quantile of the normal distribution that 95% intervals are made of."""

Z95 = 1.959963984540054  # 97.5% of a standard normal variable is below it
