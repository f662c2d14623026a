"""Rows drawn anew: labels and masks move along, packs and padding are kept, bad rows refused."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.guard.tokenizers_of import metaspace
from tests.integrations.conftest import (
    CHATML,
    IDS,
    PAD,
    RNG,
    TEXTS,
    TOKENIZER,
    VOCAB,
    chat_tokenizer,
    sequences,
)
from tests.oracles.lattice import splits
from tokenizers import Tokenizer, models
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerFast

import robustok as rt
from robustok.errors import RobustokError
from robustok.integrations.perturb import Perturb, TorchCollator
from robustok.models import train_tokenizer
from robustok.tasks import frequent_words
from robustok.tokenizer.chat import ChatTurns

HEADERS = (
    "{% for m in messages %}<|start|>{{ m['role'] }}<|end|>\n\n"
    "{{ m['content'] }}<|eot|>{% endfor %}"
)


def perturb_by(
    scheme: str = "uniform", vocab: rt.Vocabulary = VOCAB, where: str = "unlabeled", **options: Any
) -> Perturb:
    return Perturb(rt.sampler(scheme, vocab), seed=0, where=where, **options)


def one(perturb: Perturb, row: dict[str, Any]) -> dict[str, Any]:
    (moved,) = perturb([row])
    return moved


def chat_ids(tokenizer: Any, roles: Sequence[str], contents: Sequence[str]) -> np.ndarray:
    """The ids of a chat with a message of each role."""
    messages = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=True)]
    return np.asarray(tokenizer.apply_chat_template(messages)["input_ids"])


def test_masks_and_labels_move_with_the_splits():
    ids = IDS[0]
    row = {"input_ids": ids, "completion_mask": [0] * 5 + [1] * (len(ids) - 5), "name": "x"}
    moved = one(perturb_by(), row)
    new, marked = np.asarray(moved["input_ids"]), np.asarray(moved["completion_mask"], dtype=bool)
    assert new[marked].tolist() == ids[5:]
    assert VOCAB.decode_bytes(new[~marked]) == VOCAB.decode_bytes(ids[:5])
    assert len(new) > len(ids)
    assert moved["name"] == "x"
    moved = one(perturb_by(where="all"), {"input_ids": ids, "labels": ids})
    assert moved["labels"] == moved["input_ids"] != ids
    moved = one(perturb_by(), {"input_ids": ids, "labels": 1})  # one label for the row
    assert moved["labels"] == 1 and moved["input_ids"] != ids


def test_a_draw_longer_than_allowed_is_cut():
    row = {"input_ids": IDS[0]}
    length = len(IDS[0])
    whole = one(perturb_by(), row)["input_ids"]
    perturb = perturb_by(max_length=length)
    assert one(perturb, row)["input_ids"] == whole[:length] != IDS[0]
    end = perturb_by(max_length=length, cut="start")
    assert one(end, row)["input_ids"] == whole[-length:]
    assert perturb.counts[0, :3].tolist() == [1, 1, 0]


def test_a_row_that_would_lose_its_answer_stays_canonical_and_is_counted():
    row = {"input_ids": IDS[0], "labels": [-100] * (len(IDS[0]) - 2) + IDS[0][-2:]}
    perturb = perturb_by(max_length=len(IDS[0]) + 1)
    assert one(perturb, row) == row
    assert perturb.counts[0, :3].tolist() == [1, 0, 1]


@pytest.mark.parametrize("where", ["unlabeled", "all"])
def test_a_prompt_that_would_lose_its_header_or_special_tokens_stays_canonical(where):
    message = [{"role": "user", "content": TEXTS[1]}]
    chat = TOKENIZER.apply_chat_template(message, add_generation_prompt=True)["input_ids"]
    plain = perturb_by(where=where, tokenizer=TOKENIZER)
    drawn = len(one(plain, {"input_ids": chat})["input_ids"])
    perturb = perturb_by(where=where, tokenizer=TOKENIZER, max_length=drawn - 1)
    assert one(perturb, {"input_ids": chat})["input_ids"] == chat
    assert perturb.total.too_long == 1
    ended = [*IDS[0], TOKENIZER.eos_token_id]
    perturb = perturb_by(where=where, max_length=len(ended) + 1)
    assert one(perturb, {"input_ids": ended})["input_ids"] == ended
    # A row as long as allowed was cut already: nothing says what it should keep.
    full = perturb_by(where=where, max_length=len(ended))
    assert one(full, {"input_ids": ended})["input_ids"] != ended
    assert (perturb.total.too_long, full.total.too_long) == (1, 0)


def test_without_a_cut_a_row_whose_draw_does_not_fit_stays_canonical():
    longest = max(map(len, IDS))
    fits = perturb_by("uniform-k(k=2)", cut=None, max_length=longest + 2)
    cut = perturb_by("uniform-k(k=2)", max_length=longest + 2)
    rows = [{"input_ids": ids} for ids in IDS]
    assert fits(rows) == cut(rows)
    perturb = perturb_by(cut=None, max_length=longest)
    new = [row["input_ids"] for row in perturb(rows)]
    drawn = [row["input_ids"] for row in perturb_by()(rows)]
    assert new == [b if len(b) <= longest else a for a, b in zip(IDS, drawn, strict=True)]
    assert perturb.total.too_long == sum(len(ids) > longest for ids in drawn) > 0


def test_tokens_and_splits_are_counted():
    perturb = perturb_by("uniform-k(k=3)")
    new = [row["input_ids"] for row in perturb([{"input_ids": ids} for ids in IDS])]
    rows, changed, too_long, tokens, replaced, n_splits = perturb.counts[0].tolist()
    assert (rows, changed, too_long) == (24, 24, 0)
    assert tokens == sum(map(len, IDS))
    pairs = list(zip(new, IDS, strict=True))
    assert replaced == sum(rt.distance(VOCAB, row, ids) for row, ids in pairs)
    assert n_splits == sum(splits(VOCAB, ids, row) for row, ids in pairs)


def boundaries_of(form: str, sizes: list[int]) -> list[int]:
    return {
        "seq_lengths": sizes,
        "position_ids": [i for size in sizes for i in range(size)],
        "attention_mask": [n + 1 for n, size in enumerate(sizes) for _ in range(size)],
    }[form]


@pytest.mark.parametrize("form", ["seq_lengths", "position_ids", "attention_mask"])
def test_each_sequence_of_a_packed_row_is_drawn_by_itself(form):
    ids = [i for row in IDS[:3] for i in row]
    labels = [i if n % 2 else -100 for n, i in enumerate(ids)]
    row = {"input_ids": ids, form: boundaries_of(form, [len(row) for row in IDS[:3]])}
    perturb = perturb_by(where="all")
    packed = one(perturb, row | {"labels": labels})
    alone = [new["input_ids"] for new in perturb([{"input_ids": ids} for ids in IDS[:3]])]
    assert packed["input_ids"] == [i for new in alone for i in new]
    assert len(packed["labels"]) == len(packed["input_ids"])
    assert packed[form] == boundaries_of(form, [len(new) for new in alone])
    new = one(perturb_by(), row | {"labels": labels})  # labels stay canonical
    assert [i for i in new["labels"] if i != -100] == [i for i in labels if i != -100]
    assert new["input_ids"] != ids


@pytest.mark.parametrize("pads", [0, 1, 3])
def test_a_draw_shorter_than_the_row_has_its_text(pads: int) -> None:
    """The canonical tokens of "abcd" are a, bc and d; the longest ones that match are ab and cd."""
    tokens = {token: i for i, token in enumerate(["<pad>", "a", "b", "c", "d", "bc", "ab", "cd"])}
    merges = [("b", "c"), ("a", "b"), ("c", "d")]
    vocab = rt.Vocabulary.load(Tokenizer(models.BPE(tokens, merges)))
    ids = vocab.encode("abcdabcd").tolist()
    row = {"input_ids": [0] * pads + ids, "attention_mask": [0] * pads + [1] * 6}
    new = one(perturb_by("maxmatch-dropout(p=0.0001)", vocab), row)
    if pads:
        assert new == {"input_ids": [0] * (pads + 2) + [6, 7] * 2,
                       "attention_mask": [0] * (pads + 2) + [1] * 4}  # fmt: skip
    else:
        assert new == {"input_ids": [6, 7] * 2, "attention_mask": [1] * 4}


@pytest.mark.parametrize(("left", "right"), [(0, 40), (40, 0), (20, 20)])
def test_a_longer_draw_takes_the_place_of_padding(left: int, right: int) -> None:
    def padded(values: list[int], pad: int) -> list[int]:
        return [pad] * left + values + [pad] * right

    ids = IDS[0]
    mask, labels = padded([1] * len(ids), 0), padded(ids, -100)
    perturb = perturb_by("uniform-k(alpha=0.5)", where="all")
    row = {"input_ids": padded(ids, 0), "attention_mask": mask, "labels": labels}
    new = one(perturb, row)
    drawn = one(perturb, {"input_ids": ids})["input_ids"]
    marked = zip(new["input_ids"], new["attention_mask"], new["labels"], strict=True)
    assert [i for i, real, _ in marked if real] == drawn != ids
    assert [label for label in new["labels"] if label != -100] == drawn
    assert len(new["input_ids"]) == len(row["input_ids"])


def test_the_role_names_of_a_template_stay():
    """Also with where="all", which perturbs what every role says."""
    ids = chat_ids(TOKENIZER, ["user", "assistant"], TEXTS[1:3]).tolist()
    perturb = perturb_by(where="all", tokenizer=TOKENIZER)
    new = one(perturb, {"input_ids": ids})["input_ids"]
    header = TOKENIZER.encode("<|im_start|>assistant\n")
    assert len(header) > 2  # the role's name has several tokens here, or else it could not be cut
    assert any(new[i : i + len(header)] == header for i in range(len(new)))
    assert len(new) > len(ids)


@pytest.mark.parametrize(
    ("template", "specials"),
    [(CHATML, ["<|im_start|>", "<|im_end|>"]), (HEADERS, ["<|start|>", "<|end|>", "<|eot|>"])],
)
def test_only_the_turns_of_the_user_are_perturbed(template, specials):
    tokenizer = chat_tokenizer(template, specials)
    vocab = rt.Vocabulary.load(tokenizer)
    ids = chat_ids(tokenizer, ["system", *["user", "assistant"] * 2], TEXTS[:5])
    turns = ChatTurns(tokenizer, vocab).user
    assert vocab.decode(ids[turns(ids)]) == TEXTS[1] + TEXTS[3]
    perturb = perturb_by(vocab=vocab, where="user", tokenizer=tokenizer)
    new = np.asarray(one(perturb, {"input_ids": ids.tolist()})["input_ids"])
    assert vocab.decode_bytes(new) == vocab.decode_bytes(ids)
    assert len(new) > len(ids)
    assert new[~turns(new)].tolist() == ids[~turns(ids)].tolist()


@pytest.mark.parametrize(
    ("content", "turn"),
    [
        ("\n\nthe first word", "\nthe first word"),
        ("what is <think> here?", "what is <think> here?"),
    ],
)
def test_a_turn_begins_in_a_joined_token_and_does_not_end_at_an_added_one(content, turn):
    plain = CHATML.replace(" | trim", "")
    tokenizer = chat_tokenizer(plain)
    tokenizer.add_tokens(["<think>"])
    vocab = rt.Vocabulary.load(tokenizer)
    roles = ("system", "user", "assistant", "user", "assistant")
    ids = chat_ids(tokenizer, roles, [content] * 5)
    assert vocab.decode(ids[ChatTurns(tokenizer, vocab).user(ids)]) == 2 * turn
    perturb = perturb_by("characters", vocab, "all", tokenizer=tokenizer)
    new = np.asarray(one(perturb, {"input_ids": ids.tolist()})["input_ids"]).tolist()
    for header in (vocab.encode(role).tolist() for role in roles):
        kept = [new[i : i + len(header)] == header for i in range(len(new))]
        assert sum(kept) == 1 + (header != vocab.encode("system").tolist())


# As those of Qwen 3, which writes thoughts before the last answer alone, and of gpt-oss.
THOUGHTS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ '<think>\n\n</think>\n\n' if loop.last "
    "and m.role == 'assistant' }}{{ m.content }}<|im_end|>\n{% endfor %}"
)
CHANNELS = (
    "<|start|>system<|message|>The date.<|end|>{% for m in messages %}<|start|>{% if m.role == "
    "'system' %}developer<|message|># Rules\n\n{% elif m.role == 'assistant' %}assistant<|channel|>"
    "final<|message|>{% else %}{{ m.role }}<|message|>{% endif %}{{ m.content }}<|end|>{% endfor %}"
)
# As that of Kimi K2, where roles have tokens of their own, and names beside them.
OWN_TOKENS = (
    "{% for m in messages %}<|{{ m.role if m.role in ('user', 'assistant') else 'system' }}|>"
    "{{ m.role }}<|middle|>{{ m.content }}<|end|>{% endfor %}"
)


@pytest.mark.parametrize(
    ("template", "specials", "system"),
    [
        (THOUGHTS, ["<|im_start|>", "<|im_end|>"], ["system"]),
        (CHANNELS, ["<|start|>", "<|message|>", "<|channel|>", "<|end|>"], ["system", "developer"]),
        (
            OWN_TOKENS,
            ["<|user|>", "<|assistant|>", "<|system|>", "<|middle|>", "<|end|>"],
            ["system"],
        ),
    ],
)
def test_the_name_of_a_role_stays_whatever_its_turns_look_like(template, specials, system):
    tokenizer = chat_tokenizer(template, specials)
    tokenizer.add_tokens(["<think>", "</think>"])
    vocab = rt.Vocabulary.load(tokenizer)
    roles = ["system", "user", "assistant", "tool", "assistant", "user", "assistant"]
    content = "the <think> of it"
    ids = chat_ids(tokenizer, roles, [content] * 7)
    assert vocab.decode(ids[ChatTurns(tokenizer, vocab).user(ids)]) == 2 * content
    perturb = perturb_by("characters", vocab, "all", tokenizer=tokenizer)
    new = one(perturb, {"input_ids": ids.tolist()})["input_ids"]
    begins = tokenizer.convert_tokens_to_ids(
        [t for t in specials if t[2:-2] in (*roles, "start", "im_start")]
    )
    after = [new[i + 1 :] for i, token in enumerate(new) if token in begins]
    names = [vocab.encode(name).tolist() for name in system + roles[1:]]
    assert [rest[: len(name)] for rest, name in zip(after, names, strict=True)] == names
    assert len(new) > len(ids)


def test_the_name_of_a_channel_stays():
    """The template never writes it here: a header ends as that of the user."""
    specials = ["<|start|>", "<|message|>", "<|channel|>", "<|end|>"]
    tokenizer = chat_tokenizer(CHANNELS, specials)
    vocab = rt.Vocabulary.load(tokenizer)
    header = "<|start|>assistant<|channel|>analysis<|message|>"
    ids = tokenizer.encode(f"<|start|>user<|message|>the<|end|>{header}analysis of it<|end|>")
    perturb = perturb_by("characters", vocab, "all", tokenizer=tokenizer)
    new = one(perturb, {"input_ids": ids})["input_ids"]
    kept = tokenizer.encode(header)
    at = [i for i in range(len(new)) if new[i : i + len(kept)] == kept]
    assert len(at) == 1
    assert vocab.decode(new[at[0] + len(kept) : -1]) == "analysis of it"
    assert len(new[at[0] + len(kept) : -1]) == len("analysis of it")


# As that of Gemma 3, which writes the system message into the first turn of the user.
GEMMA = (
    "{% set first = namespace(text='') %}{% for m in messages %}{% if m.role == 'system' %}"
    "{% set first.text = m.content %}{% else %}<|start|>{{ 'model' if m.role == 'assistant' else "
    "'user' }}\n{{ first.text + m.content }}{% set first.text = '' %}<|end|>\n{% endif %}"
    "{% endfor %}"
)


def test_a_system_message_in_the_turn_of_the_user_is_a_part_of_it():
    tokenizer = chat_tokenizer(GEMMA, ["<|start|>", "<|end|>"])
    vocab = rt.Vocabulary.load(tokenizer)
    turns = ChatTurns(tokenizer, vocab).user
    for system in (False, True):
        roles = ["system", "user", "assistant", "user"][not system :]
        ids = chat_ids(tokenizer, roles, TEXTS[not system : 4])
        expected = TEXTS[0] * system + TEXTS[1] + TEXTS[3]
        assert vocab.decode(ids[turns(ids)]) == expected


def test_a_header_without_a_space_is_kept_where_the_encoder_adds_spaces():
    vocab = metaspace(prefix=True)
    template = "{% for m in messages %}<s>{{ m['role'] }}:{{ m['content'] }}</s>{% endfor %}"
    chat: Any = PreTrainedTokenizerFast(tokenizer_object=vocab.data.library, chat_template=template)
    ids = chat_ids(chat, ["user", "assistant"], ["the", "rest"])
    assert vocab.decode(ids[ChatTurns(chat, vocab).user(ids)]) == "the"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        # As that of Llama 2: no special token ends what the user says.
        (
            "{% for m in messages %}{% if m['role'] == 'user' %}<|start|>[INST] {{ m['content'] }} "
            "[/INST]{% else %} {{ m['content'] }}<|end|>{% endif %}{% endfor %}",
            "marks no user turns",
        ),
        ("{% for m in messages %}{{ m['content'] }}{% endfor %}", "marks no user turns"),
        ("{{ raise_exception('no date') }}", "the chat template failed: .*: no date"),
        (None, "no chat template"),
    ],
)
def test_templates_without_user_turns_are_refused(template, message, caplog):
    """Where every id is drawn, a warning says that the template's own words are too."""
    chat = chat_tokenizer(template, ["<|start|>", "<|end|>"])
    vocab = rt.Vocabulary.load(chat)
    with pytest.raises(RobustokError, match=message):
        ChatTurns(chat, vocab)
    perturb_by(vocab=vocab, where="all", tokenizer=chat)
    warned = re.search(f"{message}.* its own words, such as role names, are drawn", caplog.text)
    assert bool(warned) is (template is not None)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"cu_seq_lens_q": [0, 2]}, "packed with cu_seq_lens_q cannot be perturbed"),
        ({"seq_lengths": [1, 2]}, "have 3 ids, the row has 2"),
        ({"position_ids": [0, 5]}, "do not count from 0"),
        ({"position_ids": [3, 4]}, "do not count from 0"),
        ({"labels": IDS[0][:2]}, "nothing may be perturbed"),
        ({"labels": [1, 2, 3]}, "2 input_ids and 3 labels"),
        ({"labels": [-100, 3]}, "label 3 for id [0-9]+: a label is the id"),
        ({"input_ids": [*IDS[0], 99999]}, f"has {VOCAB.size} ids, and rows have id 99999"),
    ],
)
def test_a_row_that_cannot_be_perturbed_is_refused(row, message):
    with pytest.raises(RobustokError, match=message):
        perturb_by()([{"input_ids": IDS[0][:2], **row}])


def other_tokenizer() -> Any:
    """A tokenizer of the same size whose ids stand for other texts."""
    words = np.random.default_rng(0).choice(frequent_words(900)[600:], (40, 8))
    texts = [" ".join(row) for row in words]
    return PreTrainedTokenizerFast(tokenizer_object=train_tokenizer(texts, 400))


def test_short_rows_of_another_tokenizer_are_refused() -> None:
    """Each has a few ids away from its ends, so more of them are looked at."""
    texts = [" ".join(RNG.choice(frequent_words(600)[300:], 4)) for _ in range(400)]
    perturb = perturb_by(vocab=rt.Vocabulary.load(other_tokenizer()), where="all")
    with pytest.raises(RobustokError, match="another tokenizer encoded them"):
        for ids in VOCAB.encode_batch(texts):
            perturb([{"input_ids": ids[:10].tolist()}])
    own = perturb_by(where="all")
    for ids in VOCAB.encode_batch(texts):
        own([{"input_ids": ids[:10].tolist()}])
    assert own._judged[0] >= 256 and own._n_checked < 400


def test_rows_that_were_cut_or_encoded_in_parts_are_taken() -> None:
    cut = [ids[2:-2] for ids in IDS]
    joined = [[*a, *b] for a, b in zip(IDS, reversed(IDS), strict=True)]
    perturb_by(where="all")([{"input_ids": ids} for ids in [*cut, *joined, IDS[0][:3], []]])


@pytest.mark.parametrize("mark", ["labels", "completion_mask"])
def test_an_answer_that_was_encoded_apart_is_taken(mark) -> None:
    """After a prompt that ends in a space it has no space of its own, and so no canonical ids."""
    rows = []
    for text in TEXTS:
        prompt, answer = VOCAB.encode(text + " ").tolist(), VOCAB.encode(TEXTS[0]).tolist()
        assert VOCAB.encode(f"{text} {TEXTS[0]}").tolist() != prompt + answer
        marks = {
            "labels": [-100] * len(prompt) + answer,
            "completion_mask": [0] * len(prompt) + [1] * len(answer),
        }
        rows.append({"input_ids": prompt + answer, mark: marks[mark]})
    perturb = perturb_by()
    for new, old in zip(perturb(rows), rows, strict=True):
        assert new["input_ids"] != old["input_ids"]
    assert perturb._judged[0] > 100


@pytest.mark.parametrize(("first", "second"), [("q1", "q2"), ([1, 2], [3]), (0, None)])
def test_a_column_that_makes_no_tensor_is_named(first: Any, second: Any) -> None:
    collate = TorchCollator(rt.sampler("uniform", VOCAB), seed=0, where="all", pad_id=0)
    rows = [{"input_ids": ids, "name": x} for ids, x in zip(IDS, (first, second), strict=False)]
    with pytest.raises(RobustokError, match="the column 'name' of the rows makes no tensor"):
        collate(rows)


def test_rows_that_stay_canonical_are_counted(caplog: Any) -> None:
    draw = rt.sampler("uniform-k(alpha=0.5)", VOCAB)
    collate = TorchCollator(draw, seed=0, where="all", pad_id=0)
    short = [ids[:1] for ids in IDS[:3]]
    collate([{"input_ids": ids} for ids in [*short, *IDS[3:]]])
    fits = max(map(len, IDS))
    whole = TorchCollator(rt.sampler("uniform", VOCAB), seed=0, max_length=fits, pad_id=0)
    whole([{"input_ids": ids, "labels": [-100] * (len(ids) - 1) + ids[-1:]} for ids in IDS])
    with caplog.at_level("WARNING"):
        collate.set_epoch(1)
        whole.set_epoch(1)
    short_line, long_line = caplog.messages
    assert short_line.endswith(
        "; 3 stayed canonical, since they have no tokenization at a distance from 1 to k: "
        "use a larger alpha or k"
    )
    assert f"of {len(IDS)} rows perturbed in epoch 1" in long_line
    assert f"do not fit in max_length={fits}: raise it" in long_line


def test_a_scheme_is_a_spec_with_a_tokenizer_or_a_sampler():
    vocab = VOCAB
    rows = [{"input_ids": ids} for ids in IDS[:4]]
    expected = Perturb(rt.sampler("uniform", vocab), seed=0, where="all")(rows)
    assert Perturb("uniform", seed=0, where="all", tokenizer=vocab)(rows) == expected
    batch = TorchCollator("uniform", seed=0, where="all", tokenizer=vocab, pad_id=PAD)(rows)
    assert list(sequences(batch)) == [row["input_ids"] for row in expected]
    with pytest.raises(RobustokError, match="'uniform' needs the tokenizer"):
        Perturb("uniform", seed=0)
    with pytest.raises(TypeError, match="seed"):
        TorchCollator("uniform", pad_id=0, tokenizer=vocab)


LABEL_NAMES = st.sampled_from(["labels", "label_ids", "target_ids", "targets"])


@st.composite
def labelled_rows(draw: Any) -> list[dict[str, Any]]:
    """Rows of texts of several lengths, with their answers as labels under some name, beside masks
    and columns of the whole row.
    """
    name, n_classes = draw(LABEL_NAMES), draw(st.integers(1, 30))
    form = draw(st.sampled_from([list, tuple, np.asarray, torch.tensor]))
    label_form = draw(st.sampled_from([form, lambda values: [*map(float, values)]]))
    rows = []
    for number in draw(st.lists(st.integers(0, len(IDS) - 1), min_size=1, max_size=4)):
        ids = IDS[number][: draw(st.integers(3, len(IDS[number])))]
        answer = draw(st.integers(1, len(ids) - 2))
        labels = [-100] * answer + ids[answer:]
        row = {"input_ids": form(ids), name: label_form(labels)}
        row["attention_mask"] = form([1] * len(ids))
        if draw(st.booleans()):
            row["label" if name != "label_ids" else "other"] = number
        if draw(st.booleans()):
            row["token_type_ids"] = [i % 2 for i in range(len(ids))]
        if name not in ("labels", "label_ids"):
            row["labels"] = [float(i % 2) for i in range(n_classes)]  # classes of the whole row
        rows.append(row)
    return rows


@settings(deadline=None, max_examples=60)
@given(labelled_rows())
def test_a_column_of_ids_or_ignored_labels_is_labels_whatever_its_name(rows: Any) -> None:
    perturb = Perturb(rt.sampler("uniform", VOCAB), seed=0)
    for old, new in zip(rows, perturb(rows), strict=True):
        names = [n for n in old if n in ("label_ids", "target_ids", "targets", "labels")]
        (name,) = [n for n in names if any(int(v) < 0 for v in old[n])]
        ids, labels = np.asarray(new["input_ids"]), np.asarray(new[name])
        assert VOCAB.decode_bytes(ids) == VOCAB.decode_bytes(np.asarray(old["input_ids"]))
        assert labels[labels != -100].tolist() == [int(v) for v in old[name] if v != -100]
        assert (ids == labels)[labels != -100].all()  # the target of each place is its own id
        for other in {*old} - {"input_ids", name}:
            size = len(ids) if other in ("attention_mask", "token_type_ids") else None
            assert new[other] == old[other] if size is None else len(new[other]) == size


@settings(deadline=None, max_examples=40)
@given(st.integers(0, len(IDS) - 1), st.randoms())
def test_a_column_of_the_rows_length_that_is_no_labels_is_one_line(
    number: int, random: Any
) -> None:
    ids = IDS[number]
    column = random.choice([
        [random.randint(0, 1) for _ in ids], [random.random() for _ in ids],
        [*ids[1:], -100], ["x"] * len(ids), [(0, 1)] * len(ids), np.ones((len(ids), 2)),
    ])  # fmt: skip
    row = {"input_ids": ids, "labels": [-100, *ids[1:]], "loss_mask": column}
    with pytest.raises(RobustokError, match="the column 'loss_mask' has as many values") as error:
        perturb_by()([row])
    assert "\n" not in str(error.value)
    # In another row of the batch it has another length, so it is of the row.
    short = {"input_ids": ids[:3], "labels": [-100, *ids[1:3]], "loss_mask": column}
    assert perturb_by()([row, short])[0]["loss_mask"] is column or isinstance(column, np.ndarray)


@pytest.mark.parametrize("form", [float, int])
def test_the_labels_of_several_classes_of_a_row_stay(form: type) -> None:
    rows = [{"input_ids": ids[:size], "labels": [form(i % 2) for i in range(5)]}
            for size, ids in zip((3, 5, 7), IDS, strict=False)]  # fmt: skip
    new = Perturb(rt.sampler("uniform", VOCAB), seed=0)(rows)
    assert [row["labels"] for row in new] == [row["labels"] for row in rows]
    assert all(row["input_ids"] != old["input_ids"] for row, old in zip(new, rows, strict=True))
    # They may also be a class or a weight of each token.
    rows[1]["labels"][0] = 0 if form is int else 0.5
    with pytest.raises(RobustokError, match=r"give the classes of a whole row as 0\.0 and 1\.0"):
        perturb_by()(rows[1:2])


def test_rows_without_labels_are_drawn_where_the_caller_says_so() -> None:
    for make in (Perturb, partial(TorchCollator, pad_id=0)):
        with pytest.raises(RobustokError, match="rows without labels do not say"):
            make(rt.sampler("uniform", VOCAB), seed=0)([{"input_ids": IDS[0]}])
        with pytest.raises(RobustokError, match="rows without labels do not say"):
            make(rt.sampler("uniform", VOCAB), seed=0)([{"input_ids": IDS[0], "labels": None}])
        for where in ("unlabeled", "all"):
            make(rt.sampler("uniform", VOCAB), seed=0, where=where)([{"input_ids": IDS[0]}])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_second_pass_without_set_epoch_is_warned_of(workers: int, caplog: Any) -> None:
    rows: Any = [{"input_ids": ids, "labels": [-100, *ids[1:]]} for ids in IDS]
    collate = TorchCollator(rt.sampler("uniform", VOCAB), seed=0, pad_id=0)
    loader = DataLoader(
        rows, batch_size=4, collate_fn=collate, num_workers=workers, shuffle=True,
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    for epoch in range(3):
        collate.set_epoch(epoch)
        assert len(list(loader)) == 6
        assert not collate._first[1].any()
    with caplog.at_level("WARNING"):
        assert len(list(loader)) == 6
    assert collate._first[1].min() < 0
    if not workers:  # the log of a worker is its own
        assert "call set_epoch(epoch) before each pass" in caplog.records[-1].getMessage()


def test_a_schedule_needs_the_steps_of_a_trainer() -> None:
    perturb = Perturb("uniform-k(alpha=0->1)", seed=0, tokenizer=TOKENIZER, where="all")
    with pytest.raises(RobustokError, match="is a schedule, which moves with the steps"):
        perturb([{"input_ids": IDS[0]}])
