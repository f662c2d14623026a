"""The numeric code: functions over numpy arrays, compiled by numba.

Only this package imports numba. ``tests/kernels`` compares the kernels with slow, obvious Python
twins, compiled and as plain Python (NUMBA_DISABLE_JIT=1).
"""
