"""The numeric code: functions over numpy arrays, compiled by numba.

Only this package imports numba. Its part ``compiler`` compiles, caches and loads the kernels.
``tests/kernels`` compares them with slow, obvious Python twins, compiled and as plain Python
(NUMBA_DISABLE_JIT=1).

Arguments that every kernel uses with one meaning, unless its docstring documents them otherwise:

    trie: `trie.Trie` of the ordinary tokens of the vocabulary.
    tokens: `batch.Tokens`, the vocabulary with its trie.
    token_bytes: uint8 [bytes], those of all tokens, one after another.
    token_offsets: int64 [ids + 1]: token t is token_bytes[token_offsets[t]:token_offsets[t + 1]].
    store: `store.Store`, the cache of the records of blocks.
    batch: `batch.Batch`, the texts to draw for.
    rows: `batch.Rows`, where the draws are written.
    edges: `lattice.Edges`, the lattice of one text or block.
    state: uint64, the state of a random stream (`numbers.stream`).
    text: uint8 [bytes]: a text, or several texts one after another.
    ids: int32 [ids]: ids of the vocabulary.
    values: int32 [ids]: the ids of all rows, one row after another.
    out: int32 [capacity]: where ids are written; each kernel states the capacity that it needs.

A parameter that may be None leaves the code behind ``is not None`` out of the compiled kernel. So a
kernel of ordinary texts compiles fast, and the same source with the rare cases is compiled when one
occurs. The check must name the parameter itself: numba removes no branch on other values.

``inline="always"`` compiles a function anew for every call; ``forceinline=True`` compiles it once,
and LLVM inlines it. The second is for functions of many lines.

A named tuple documents the dtype, shape and invariant of its arrays. A range ``start:end`` or
``first..last`` includes its first index and not its last.
"""
