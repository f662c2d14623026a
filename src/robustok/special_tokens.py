"""Tokens that begin or end a text, and the placeholder of a text in a chat template."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robustok.errors import RobustokError, nearest

if TYPE_CHECKING:
    from robustok.vocabulary import Vocabulary

# Private-use characters: no chat template or tokenizer writes these.
PLACEHOLDER = "\ue000text\ue000"

END_TOKENS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<|im_end|>", "<eos>")


def end_of_text(vocab: Vocabulary, end: str | int | None = None) -> int:
    """The id of the token that ends a document.

    >>> from robustok.special_tokens import end_of_text
    >>> end_of_text(vocab)
    0

    ``end`` is a special token or an id. Without it, the first of :data:`END_TOKENS` that the
    vocabulary has as a special token. Raises RobustokError where there is no such token.
    """
    special = {vocab.tokens[i].decode(errors="replace"): i for i in sorted(vocab.special)}
    if end is None:
        for token in END_TOKENS:
            if token in special:
                return special[token]
        example = next((f"--end {token!r}" for token in special if token), "--end 0")
        raise RobustokError(
            "no end-of-text token is known for this tokenizer; name it with --end (in a study:"
            f" end_of_text under pretrain), as {example}"
        )
    if str(end) in special:
        return special[str(end)]
    number = int(end) if str(end).isdecimal() else vocab.size
    if number < vocab.size:
        return number
    raise RobustokError(f"--end {end}: no such special token; {nearest(str(end), special)}")


def special_token(vocab: Vocabulary, token: str) -> int:
    """The id of a special token, by its text.

    >>> from robustok.special_tokens import special_token
    >>> special_token(vocab, "<|endoftext|>")
    0

    Raises RobustokError where the vocabulary has no such special token.
    """
    special = {vocab.tokens[i].decode(errors="replace"): i for i in sorted(vocab.special)}
    if token not in special:
        raise RobustokError(f"no special token '{token}': {nearest(token, special)}")
    return special[token]
