"""``borrow``: the arrays of a kernel's arguments, without reference counts.

The caller of a kernel keeps the arguments alive while it runs, so inside they need no counting:
every kernel borrows its arguments once, at the top.

Borrow arguments only. An array that a kernel allocates is freed after the last use of its own name:
``x = borrow(x)`` frees it there, and every later access reads freed memory. Pass it to another
kernel as an argument, which borrows it.

A module of its own, for kernels import it without numba. `borrowed` has its code.
"""

from __future__ import annotations

from typing import Any


def borrow(value: Any) -> Any:
    """An array, or a tuple of arrays and other values, whose arrays hold no reference.

    Such arrays are valid while other references to their memory exist. In Python it is the same
    value.
    """
    return value
