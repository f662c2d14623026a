"""Numba array views without reference counting, for use inside kernels.

Numba counts references with atomic operations at every call that passes an array, which costs small
functions ten times their own work. The caller of a kernel keeps the arguments alive while it runs,
so inside they need no counting: every kernel borrows its arguments once, at the top.

Borrow arguments only. An array that a kernel allocates is freed after the last use of its own name:
``x = borrow(x)`` frees it there, and every later access reads freed memory. Pass it to another
kernel as an argument, which borrows it.

Borrowed arrays are still passed field by field, a kilobyte for a store and a trie, so functions
that are called for every word or token are inlined too.
"""

from __future__ import annotations

from numba import config
from numba.core import cgutils, types
from numba.extending import intrinsic

if config.DISABLE_JIT:

    def borrow(array):
        """The same array."""
        return array

else:

    @intrinsic
    def borrow(typingctx, array):
        """A view of an array that holds no reference: valid while another reference exists."""
        if not isinstance(array, types.Array):
            return None

        def codegen(context, builder, signature, args):
            view = context.make_array(signature.args[0])(context, builder, args[0])
            view.meminfo = cgutils.get_null_value(view.meminfo.type)
            view.parent = cgutils.get_null_value(view.parent.type)
            return view._getvalue()

        return array(array), codegen
