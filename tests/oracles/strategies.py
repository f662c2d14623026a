"""Random vocabularies and texts for hypothesis."""

from hypothesis import strategies as st
from tests.oracles.vocabulary import toy

from robustok.tokenizer.vocabulary import Vocabulary

LETTERS = b"abc "


@st.composite
def cases(draw: st.DrawFn, most: int = 9) -> tuple[Vocabulary, bytes]:
    """A vocabulary with all its letters and random longer tokens, and a text over it."""
    letters = draw(st.sampled_from([b"ab", b"abc", LETTERS, bytes([0, 255, 0x80, 0xC3])]))
    longer = draw(
        st.sets(st.lists(st.sampled_from(letters), min_size=2, max_size=5).map(bytes), max_size=14)
    )
    text = bytes(draw(st.lists(st.sampled_from(letters), max_size=most)))
    return toy([bytes([b]) for b in letters] + sorted(longer)), text
