"""Steps of a conversation that are or are not prefixes of the next one."""

from __future__ import annotations

from tests.guard.tokenizers_of import LLAMA3, byte_level

from robustok.guard.rollouts import prefix_of
from robustok.tokenizer.chat import split_at_placeholders


def test_a_number_too_long_for_a_text_is_no_placeholder() -> None:
    text = "\ue000" + "1" * 5000 + "\ue000"
    assert split_at_placeholders(text) == ([text], [])


def test_the_first_difference_is_explained() -> None:
    vocab = byte_level(LLAMA3)

    def ids(*parts: str) -> list[int]:
        return [i for part in parts for i in vocab.encode(part).tolist()]

    assert prefix_of(vocab, ids("the"), ids("the", " rest"))
    assert prefix_of(vocab, [], ids("the"))
    split = prefix_of(vocab, ids("r", "e", "s"), ids("re", "s", " the"))
    assert (split.cause, split.shared) == ("re-encoded", 0)
    assert split.explanation.startswith("ids 0 to 1 'r|e' became 're'")
    merged = prefix_of(vocab, ids("s", " t"), ids("s", " the"))
    assert (merged.cause, merged.shared) == ("merged", 1)
    assert "merged with the text that follows" in merged.explanation
    changed = prefix_of(vocab, ids("the", "x"), ids("the", "y", "z"))
    assert (changed.cause, changed.shared) == ("text-changed", 1)
    broken = [*ids("the"), *vocab.encode(b"\xf0\x9f").tolist()]
    decoded = prefix_of(vocab, broken, ids("the", "\ufffd", " rest"))
    assert (decoded.cause, decoded.shared) == ("not-utf8", 1)
    assert prefix_of(vocab, ids("the", "x"), ids("the")).cause == "shortened"
    assert all("\n" not in c.explanation for c in (split, merged, changed, decoded))
