"""Train the tokenizer of a small study."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from robustok.errors import RobustokError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END_OF_TEXT = "<|endoftext|>"
SMALLEST = 257


def train_tokenizer(texts: Iterable[str], size: int) -> Tokenizer:
    """Train a byte-level BPE tokenizer.

    >>> tokenizer = train_tokenizer(["low lower lowest"] * 3, 260)
    >>> tokenizer.encode("low").tokens
    ['low']

    Args:
        texts: the training texts; the same texts give the same tokenizer.
        size: number of ids, at least 257. It is smaller if the texts have no more pairs to merge.

    The vocabulary has all 256 bytes, so it encodes any text; id 0 is ``<|endoftext|>``.
    ``tokenizer.save(path)`` writes tokenizer.json. Raises RobustokError for a smaller ``size``.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    if size < SMALLEST:
        raise RobustokError(f"a vocabulary of {size} cannot hold the 256 bytes: ask for {SMALLEST}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
