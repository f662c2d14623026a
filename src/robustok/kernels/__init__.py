"""The only room that knows numba: arrays in, arrays out.

Every kernel here has a slow Python twin in ``tests/oracles`` that it is compared with.
"""
