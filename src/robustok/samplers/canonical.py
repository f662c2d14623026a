"""The schemes whose draws of a text are all the same: `canonical` and `characters`.

`characters` (paper: v^char) is the example of a scheme in plain Python: "A scheme of your own" in
the documentation explains it.
"""

from __future__ import annotations

import itertools

import numpy as np

from robustok.kernels.batch import Batch
from robustok.samplers.base import Sampler
from robustok.tokenizer.data import split_at_broken


class Canonical(Sampler):
    """The tokenizer's own tokenization, for every seed. Ids passed in count as canonical.

    >>> Canonical(vocab).sample("hello world", seed=0)
    array([276, 275], dtype=int32)
    """

    name = "canonical"
    example = "canonical"
    color = "#3e4c59"
    exact = True
    deterministic = True
    nominal_splits = 0.0

    def _log_prob_text(self, ids: np.ndarray, canonical: np.ndarray) -> float:
        """0 for the canonical tokenization, minus infinity for any other."""
        return 0.0 if np.array_equal(ids, canonical) else -np.inf

    def _draw(self, batch: Batch, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        written, draws = 0, int(batch.draws)
        offsets = batch.offsets[first : last + 1].tolist()
        for t, (begin, end) in enumerate(itertools.pairwise(offsets)):
            for d in range(draws):
                out[written : written + end - begin] = batch.values[begin:end]
                written += end - begin
                ends[t * draws + d] = written


class Characters(Sampler):
    """Each character is a token; a character that is no token is spelled by its bytes.

    >>> [vocab.tokens[i] for i in Characters(vocab).sample("hello", seed=0)]
    [b'h', b'e', b'l', b'l', b'o']

    All draws of a text are the same. Bytes that are not UTF-8 are tokens of their own. Where the
    vocabulary cannot spell a character, the canonical tokens that hold it stay.
    """

    name = "characters"
    example = "characters"
    exact = True
    deterministic = True

    def draw(self, ids: np.ndarray, random: np.random.Generator) -> list[int]:
        """The ids of the characters of one text.

        Args:
            ids: canonical ids of the text, int32 [tokens].
            random: unused, since all draws are the same.
        """
        tokens = [self.vocab.tokens[i] for i in ids.tolist()]
        characters = iter(_characters(b"".join(tokens)))
        result: list[int] = []
        canonical: list[int] = []  # since the last boundary of a token and a character
        spellings: list[list[int] | None] = []  # the ids of each character since then
        token_end = character_end = 0
        for i, token in zip(ids.tolist(), tokens, strict=True):
            canonical.append(i)
            token_end += len(token)
            while character_end < token_end:
                character = next(characters)
                spellings.append(self._spell(character))
                character_end += len(character)
            if character_end == token_end:
                spelled = [ids for ids in spellings if ids is not None]
                is_complete = len(spelled) == len(spellings)
                result += itertools.chain(*spelled) if is_complete else canonical
                canonical, spellings = [], []
        return result

    def _spell(self, character: bytes) -> list[int] | None:
        """The ids of a character, or of its bytes; None where the vocabulary lacks one."""
        ids = self.vocab.derived("ids of tokens", self._ids_of_tokens)
        if character in ids:
            return [ids[character]]
        byte_ids = [ids.get(bytes([byte]), -1) for byte in character]
        return None if -1 in byte_ids else byte_ids

    def _ids_of_tokens(self) -> dict[bytes, int]:
        ordinary = np.flatnonzero(self.vocab.ordinary).tolist()
        return {self.vocab.tokens[i]: i for i in ordinary}

    def _log_prob_text(self, ids: np.ndarray, canonical: np.ndarray) -> float:
        """0 for the characters of the text, minus infinity for any other tokenization."""
        expected = self.draw(canonical, np.random.default_rng(0))
        return 0.0 if ids.tolist() == expected else -np.inf


def _characters(text: bytes) -> list[bytes]:
    """The characters of a text as bytes; each byte that is not UTF-8 is one."""
    characters: list[bytes] = []
    for begin, end, is_valid in split_at_broken(text):
        span = text[begin:end]
        characters += (
            [c.encode() for c in span.decode()] if is_valid else [bytes([b]) for b in span]
        )
    return characters
