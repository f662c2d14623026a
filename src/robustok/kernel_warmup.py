"""Compile all kernels ahead of the first draw."""

from __future__ import annotations


def warmup() -> None:
    """Compile every kernel, or load it from the cache of an earlier process.

    >>> warmup()

    The first draw ever takes up to a minute for it; after that a new process loads each kernel in
    hundredths of a second. Worth calling in an image's build or before timing anything.
    """
    from dataclasses import replace

    from tokenizers import Tokenizer, models, pre_tokenizers

    from robustok.guard import Guard
    from robustok.kernels.tables import clear, new_store
    from robustok.ragged import Ragged
    from robustok.samplers import sampler
    from robustok.samplers.needs import SCORES
    from robustok.samplers.registry import BUILT_IN
    from robustok.strength import measure
    from robustok.tokenizer_files import byte_alphabet, read_tokenizer
    from robustok.vocabulary import Vocabulary

    ids = {**byte_alphabet(), "ab": 256, "abc": 257}
    toy = Tokenizer(models.BPE(ids, [("a", "b"), ("ab", "c")]))
    toy.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    toy.add_special_tokens(["<end>"])
    data = read_tokenizer(toy)
    vocab = Vocabulary(data)
    scored = Vocabulary(replace(data, family="Unigram", scores=dict.fromkeys(range(258), 0.0)))
    rows = Ragged.from_rows([[257, 97], [257, 258, 257]])  # the second with a special token
    for scheme in BUILT_IN:
        for spec in (scheme.example, *scheme.variants):
            drawing = sampler(spec, scored if scheme.needs is SCORES else vocab)
            drawing.sample_batch(rows, seed=0)
            if scheme.exact:
                drawing.log_prob([257])
    measure(vocab, rows, rows)
    lattice = vocab.lattice("abc")
    lattice.neighbors([257])
    lattice.count()
    lattice.count(distance=2)
    Guard(vocab).check_batch(rows)
    clear(new_store())  # otherwise compiled when a store is full for the first time
