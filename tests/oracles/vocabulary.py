"""Small vocabularies, by hand or random, with an encoder one can follow: greedy longest match."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from robustok.errors import RobustokError
from robustok.samplers import Sampler
from robustok.samplers.parameters import MERGES, SCORES
from robustok.tokenizer.data import TokenizerData
from robustok.tokenizer.vocabulary import Vocabulary


class Greedy:
    """Takes the longest token at each byte; not BPE, and canonical all the same."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.ids = {token: i for i, token in enumerate(tokens)}
        self.longest = max(map(len, tokens))

    def encode_bytes(self, text: bytes) -> list[int]:
        ids: list[int] = []
        at = 0
        while at < len(text):
            for size in range(min(self.longest, len(text) - at), 0, -1):
                if text[at : at + size] in self.ids:
                    ids.append(self.ids[text[at : at + size]])
                    at += size
                    break
            else:
                raise RobustokError(f"no token starts at byte {at}")
        return ids

    def encode_batch(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]:
        return [self.encode_bytes(text.encode()) for text in texts]


def toy(tokens: Sequence[bytes], special: Sequence[bytes] = ()) -> Vocabulary:
    """A vocabulary of these tokens and, after them, special ones."""
    data = TokenizerData(
        [*tokens, *special], range(len(tokens)), frozenset(), Greedy(tokens), "toy"
    )
    return Vocabulary(data)


def canonical(vocab: Vocabulary, text: bytes) -> tuple[int, ...]:
    """The canonical ids of a text, of a toy vocabulary for bytes of any kind."""
    encoder = vocab.data.encoder
    if isinstance(encoder, Greedy):
        return tuple(encoder.encode_bytes(text))
    return tuple(vocab.encode(text).tolist())


def fitting(vocab: Vocabulary, scheme: type[Sampler]) -> Vocabulary:
    """The same tokens as a tokenizer that the scheme can use: ranked merges, or scored pieces."""
    if scheme.needs is None or scheme.needs.is_met(vocab):
        return vocab
    changes = {
        MERGES: {"family": "ranked BPE"},
        SCORES: {"family": "Unigram", "scores": dict.fromkeys(range(vocab.size), -1.0)},
    }
    return Vocabulary(replace(vocab.data, **changes[scheme.needs]))


ENGLISH = toy([bytes([b]) for b in b"abc d"] + [b"ab", b"bc", b"abc", b" d", b"cab", b" ab", b"cc"])
# Some numbers of segments have no segmentation here: "abcd" splits in 1 and in 4 and nothing else.
GAPPY = toy([b"a", b"b", b"c", b"d", b"abcd", b"bc", b"dd"])


@st.composite
def cases(draw: st.DrawFn, most: int = 9) -> tuple[Vocabulary, bytes]:
    """A vocabulary with all its letters and random longer tokens, and a text over it."""
    letters = draw(st.sampled_from([b"ab", b"abc", b"abc ", bytes([0, 255, 0x80, 0xC3])]))
    longer = draw(
        st.sets(st.lists(st.sampled_from(letters), min_size=2, max_size=5).map(bytes), max_size=14)
    )
    text = bytes(draw(st.lists(st.sampled_from(letters), max_size=most)))
    return toy([bytes([b]) for b in letters] + sorted(longer)), text
