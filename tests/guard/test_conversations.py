"""Conversations from sampled ids, and steps that are or are not prefixes of the next one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.guard.tokenizers_of import LLAMA3, SPECIAL, TEXT, byte_level, metaspace

import robustok as rt
from robustok.guard.rollouts import prefix_of, stitch
from robustok.tokenizer.chat import split_at_placeholders

transformers = pytest.importorskip("transformers")

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
BARE = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }} {% endfor %}"


def chat(vocab: rt.Vocabulary, template: str = TEMPLATE) -> Any:
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=vocab.data.source, chat_template=template,
        additional_special_tokens=SPECIAL if template == TEMPLATE else None,
    )  # fmt: skip


@pytest.fixture(scope="module")
def vocab() -> rt.Vocabulary:
    return byte_level(LLAMA3)


def turns_of(vocab: rt.Vocabulary, spec: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A conversation as text, and the same with sampled ids that end with <|end|>."""
    end = vocab.encode("<|end|>", parse_special=True)
    draw = rt.sampler(spec, vocab)
    texts, sampled = [], []
    for number, text in enumerate([t.replace("<|", "<").strip() for t in TEXT]):
        role = ("user", "assistant")[number % 2]
        texts.append({"role": role, "content": text})
        ids = np.concatenate([draw.sample(text, seed=number), end])
        sampled.append({"role": role, "ids": ids} if role == "assistant" else texts[-1])
    return texts, sampled


def test_canonical_ids_give_what_the_template_gives(vocab: rt.Vocabulary) -> None:
    texts, sampled = turns_of(vocab, "canonical")
    tokenizer = chat(vocab)
    expected = tokenizer.apply_chat_template(texts, add_generation_prompt=True)["input_ids"]
    assert stitch(vocab, tokenizer, sampled).ids.tolist() == expected


def test_sampled_ids_stay_in_every_step(vocab: rt.Vocabulary) -> None:
    _, sampled = turns_of(vocab, "uniform")
    tokenizer = chat(vocab)
    steps = [
        stitch(vocab, tokenizer, sampled[:n], generation_prompt=sampled[n - 1]["role"] == "user")
        for n in range(1, len(sampled) + 1)
    ]
    for step, later in pairwise(steps):
        assert prefix_of(vocab, step.ids, later.ids)
    last = steps[-1]
    for number, turn in enumerate(sampled):
        if "ids" in turn:
            assert last.ids[last.turn == number].tolist() == turn["ids"].tolist()
    assert last.sampled.sum() == sum(len(t["ids"]) for t in sampled if "ids" in t)
    # Encoding the text again loses the sampled ids.
    again = vocab.encode(vocab.decode(last.ids), parse_special=True)
    assert prefix_of(vocab, last.ids, again).cause == "re-encoded"


def test_ids_cut_off_get_the_end_of_the_template(vocab: rt.Vocabulary) -> None:
    ids = vocab.encode("the re")
    turns = [{"role": "user", "content": "x"}, {"role": "assistant", "ids": ids}]
    stitched = stitch(vocab, chat(vocab), turns, generation_prompt=False)
    assert vocab.decode(stitched.ids).endswith("the re<|end|>\n")


def test_no_space_is_added_in_mid_text() -> None:
    vocab = metaspace(prefix=True)
    turns = [{"role": "user", "content": "the"}, {"role": "assistant", "ids": vocab.encode("rest")},
             {"role": "user", "content": "there"}]  # fmt: skip
    stitched = stitch(vocab, chat(vocab, BARE), turns, generation_prompt=False)
    assert vocab.decode(stitched.ids) == " [user] the [assistant] rest [user] there "


def test_what_cannot_be_stitched(vocab: rt.Vocabulary) -> None:
    ids = {"role": "assistant", "ids": [5]}
    with pytest.raises(rt.RobustokError, match="no chat template"):
        stitch(
            vocab, transformers.PreTrainedTokenizerFast(tokenizer_object=vocab.data.source), [ids]
        )
    twice = "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}"
    with pytest.raises(rt.RobustokError, match="turn 0: the chat template writes its content 2"):
        stitch(vocab, chat(vocab, twice), [ids])
    with pytest.raises(rt.RobustokError, match="turn 0 has ids and content"):
        stitch(vocab, chat(vocab), [{**ids, "content": "x"}])
    with pytest.raises(rt.RobustokError, match="turn 0: id 99999"):
        stitch(vocab, chat(vocab), [{"role": "assistant", "ids": [99999]}])
    mark = "\ue0001\ue000"
    for forged in (
        {"role": "user", "content": mark},
        {"role": "user", "content": [{"type": "text", "text": mark}]},
        {"role": "user", "content": "x", "name": mark},
        {"role": mark, "ids": [5]},
    ):
        with pytest.raises(rt.RobustokError, match=r"turn 0 has the private character U\+E000"):
            stitch(vocab, chat(vocab), [forged])


def test_a_number_too_long_for_a_turn_is_no_placeholder() -> None:
    text = "\ue000" + "1" * 5000 + "\ue000"
    assert split_at_placeholders(text) == ([text], [])


def test_the_first_difference_is_explained(vocab: rt.Vocabulary) -> None:
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
