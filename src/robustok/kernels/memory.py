"""Arrays without reference counts, for the insides of a kernel.

Numba counts references with atomic operations at every call that passes an array, which costs
small functions ten times their own work. A kernel's caller holds its arguments for as long as the
kernel runs, so inside they may go uncounted: every kernel borrows its arguments once, at the top.

Borrow arguments only. An array that a kernel allocates itself dies after its last use under its
own name: ``x = borrow(x)`` frees it there, and every later access reads freed memory. Give it to
another kernel as an argument, or keep its owner in use until the end.
Uncounted arrays are still passed field by field, a kilobyte of them for a store and a trie, so what
is called for every word or token is inlined too.
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
        """The same array, uncounted: valid for as long as somebody else holds it."""
        if not isinstance(array, types.Array):
            return None

        def codegen(context, builder, signature, args):
            view = context.make_array(signature.args[0])(context, builder, args[0])
            view.meminfo = cgutils.get_null_value(view.meminfo.type)
            view.parent = cgutils.get_null_value(view.parent.type)
            return view._getvalue()

        return array(array), codegen
