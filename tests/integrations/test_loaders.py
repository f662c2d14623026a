"""The table of trainers and loaders in docs/training.md, cell by cell."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from transformers import (
    DataCollatorForLanguageModeling,
    DataCollatorWithFlattening,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

import robustok as rt
from robustok.errors import RobustokError
from robustok.integrations.perturb import Perturb, TorchCollator, check_rows
from robustok.integrations.trainer import robustify
from robustok.models import Shape, small_model, train_tokenizer
from robustok.tasks import frequent_words
from robustok.tokenizer.chat import user_turns

trl = pytest.importorskip("trl")
datasets = pytest.importorskip("datasets")

pytestmark = pytest.mark.filterwarnings("ignore")

WORDS = frequent_words(60)
RNG = np.random.default_rng(0)
TEXTS = [" ".join(RNG.choice(WORDS, 8)) for _ in range(8)]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tokenizer() -> Any:
    tokenizer = train_tokenizer([*TEXTS, "system user assistant\n\n"] * 2, 400)
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<|endoftext|>", eos_token="<|im_end|>"
    )
    fast.chat_template = TEMPLATE
    return fast


TOKENIZER = make_tokenizer()
VOCAB = rt.Vocabulary.load(TOKENIZER)
IDS = [ids.tolist() for ids in VOCAB.encode_batch(TEXTS)]
CHATS = [
    [{"role": "user", "content": text}, {"role": "assistant", "content": " " + WORDS[0]}]
    for text in TEXTS
]
PAD = TOKENIZER.pad_token_id
END = VOCAB.tokens.index(b"<|im_end|>")

Sequences = list[list[int]]
COMMON: dict[str, Any] = {
    "per_device_train_batch_size": 4, "report_to": [], "disable_tqdm": True, "seed": 3,
    "dataloader_pin_memory": False, "save_strategy": "epoch", "use_cpu": True,
}  # fmt: skip


def model() -> Any:
    return small_model(len(TOKENIZER), Shape(1, 16, 2, 1, 16, 256), seed=0)


def saved_model(folder: Path) -> str:
    """A folder to load a model from, as a trainer does for its reference model."""
    model().save_pretrained(folder / "model")
    return str(folder / "model")


def as_dataset(rows: list[dict[str, Any]], streaming: bool) -> Any:
    dataset = datasets.Dataset.from_list(rows)
    return dataset.to_iterable_dataset() if streaming else dataset


def steps(streaming: bool, epochs: int) -> dict[str, Any]:
    """A stream has no length, so its epochs are given as steps: two a pass."""
    return {"max_steps": 2 * epochs} if streaming else {"num_train_epochs": epochs}


def sequences(batch: dict[str, Any]) -> Iterator[list[int]]:
    """The sequences of a batch, packed ones apart, without padding."""
    for n, row in enumerate(batch["input_ids"]):
        if "position_ids" not in batch:
            mask = batch.get("attention_mask", torch.ones_like(batch["input_ids"]))
            yield row[mask[n] == 1].tolist()
            continue
        assert "attention_mask" not in batch  # with one, models attend across sequences
        starts = (batch["position_ids"][n] == 0).nonzero().flatten()[1:].tolist()
        parts = (part.tolist() for part in torch.tensor_split(row, starts))
        yield from (part for part in parts if part != [PAD])


def trained(trainer: Any, resume: Any = None) -> list[Sequences]:
    """Train; the sequences of each step."""
    seen: list[Sequences] = []
    plain = trainer.compute_loss

    def compute_loss(model, inputs, *args, **kwargs):
        seen.append(list(sequences(inputs)))
        return plain(model, inputs, *args, **kwargs)

    trainer.compute_loss = compute_loss
    trainer.train(resume_from_checkpoint=resume)
    return seen


def with_trainer(
    folder: Path, *, packing: str = "", streaming: bool = False, chat: bool = False,
    epochs: int = 2, resume: Any = None,
) -> list[Sequences]:  # fmt: skip
    rows: list[dict[str, Any]] = [{"input_ids": ids, "labels": ids} for ids in IDS]
    collator: Any = DataCollatorForLanguageModeling(TOKENIZER, mlm=False)
    if packing == "padding-free":
        collator = DataCollatorWithFlattening()
    if packing == "position_ids":
        rows = [
            {"input_ids": a + b, "labels": a + b, "position_ids": [*range(len(a)), *range(len(b))]}
            for a, b in zip(IDS[::2], IDS[1::2], strict=True)
        ]
        collator = None
    if chat:
        ids = [TOKENIZER.apply_chat_template(one)["input_ids"] for one in CHATS]
        rows = [{"input_ids": one} for one in ids]
    trainer = Trainer(
        model(), TrainingArguments(str(folder), **COMMON, **steps(streaming, epochs)),
        train_dataset=as_dataset(rows, streaming), data_collator=collator,
    )  # fmt: skip
    where = "user" if chat else "all"
    robustify(trainer, "uniform", seed=0, where=where, tokenizer=TOKENIZER)
    return trained(trainer, resume)


def with_sft(
    folder: Path, *, packing: str = "", streaming: bool = False, chat: bool = False,
    epochs: int = 2, resume: Any = None,
) -> list[Sequences]:  # fmt: skip
    rows = [{"messages": one} for one in CHATS] if chat else [{"text": text} for text in TEXTS]
    settings: dict[str, Any] = {"max_length": 128}
    if packing == "padding-free":
        settings |= {"padding_free": True, "max_length": None}
    elif packing:
        settings |= {"packing": True, "packing_strategy": packing, "max_length": 64}
    if chat:
        settings["completion_only_loss"] = False
        rows = [{"prompt": one[:1], "completion": one[1:]} for one in CHATS]
        settings["completion_only_loss"] = True
    trainer = trl.SFTTrainer(
        model=model(),
        args=trl.SFTConfig(
            str(folder), bf16=False, gradient_checkpointing=False,
            **COMMON, **settings, **steps(streaming, epochs),
        ),
        train_dataset=as_dataset(rows, streaming), processing_class=make_tokenizer(),
    )  # fmt: skip
    robustify(trainer, "uniform", seed=0, where="user" if chat else "all")
    return trained(trainer, resume)


def with_dpo(
    folder: Path, *, packing: str = "", streaming: bool = False, chat: bool = False,
    epochs: int = 2, resume: Any = None,
) -> list[Sequences]:  # fmt: skip
    assert not packing
    rows = [
        {"prompt": one[:1], "chosen": one[1:], "rejected": [{**one[1], "content": " no"}]}
        if chat
        else {"prompt": text, "chosen": " yes", "rejected": " no"}
        for one, text in zip(CHATS, TEXTS, strict=True)
    ]
    trainer = trl.DPOTrainer(
        model=saved_model(folder),
        args=trl.DPOConfig(
            str(folder), bf16=False, gradient_checkpointing=False, max_length=128,
            **COMMON, **steps(streaming, epochs),
        ),
        train_dataset=as_dataset(rows, streaming), processing_class=make_tokenizer(),
    )  # fmt: skip
    robustify(trainer, "uniform", seed=0, where="user" if chat else "unlabeled")
    return trained(trainer, resume)


def with_rollouts(kind: str, **options: Any) -> Callable[..., list[Sequences]]:
    def run(
        folder: Path, *, packing: str = "", streaming: bool = False, chat: bool = False,
        epochs: int = 2, resume: Any = None,
    ) -> list[Sequences]:  # fmt: skip
        assert not packing
        rows = [
            {"prompt": one[:1] if chat else text} for one, text in zip(CHATS, TEXTS, strict=True)
        ]
        config = getattr(trl, f"{kind}Config")(
            str(folder), bf16=False, gradient_checkpointing=False, num_generations=2,
            max_completion_length=4, **{**COMMON, "per_device_train_batch_size": 8},
            **({"max_steps": 2 * epochs} if streaming else {"num_train_epochs": epochs}),
        )  # fmt: skip
        trainer = getattr(trl, f"{kind}Trainer")(
            model=saved_model(folder), args=config, processing_class=make_tokenizer(),
            reward_funcs=lambda completions, **_: [float(i) for i in range(len(completions))],
            train_dataset=as_dataset(rows, streaming),
        )  # fmt: skip
        robustify(trainer, "uniform", seed=0, where="user" if chat else "unlabeled", **options)
        seen: list[Sequences] = []
        generate = trainer._generate_single_turn

        def spy(prompt_ids: Sequences, *args: Any, **kwargs: Any) -> Any:
            seen.append([list(ids) for ids in prompt_ids])
            return generate(prompt_ids, *args, **kwargs)

        trainer._generate_single_turn = spy
        trainer.train(resume_from_checkpoint=resume)
        return seen

    return run


class Stream(IterableDataset):
    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)


def with_data_loader(
    folder: Path, *, packing: str = "", streaming: bool = False, chat: bool = False,
    epochs: int = 2, resume: Any = None,
) -> list[Sequences]:  # fmt: skip
    """PyTorch without a trainer."""
    rows: list[dict[str, Any]] = [{"input_ids": ids} for ids in IDS]
    if packing:
        rows = [
            {"input_ids": a + b, "position_ids": [*range(len(a)), *range(len(b))]}
            for a, b in zip(IDS[::2], IDS[1::2], strict=True)
        ]
    if chat:
        rows = [{"input_ids": TOKENIZER.apply_chat_template(one)["input_ids"]} for one in CHATS]
    turns = user_turns(TOKENIZER, VOCAB) if chat else None
    perturb = Perturb(
        rt.sampler("uniform", VOCAB), seed=0, where="user" if chat else "all", turns=turns
    )
    collate = TorchCollator(perturb, pad_id=0)
    loader = DataLoader(Stream(rows) if streaming else rows, batch_size=4, collate_fn=collate)  # type: ignore[arg-type]
    seen = []
    for epoch in range(0 if resume is None else 1, epochs):
        collate.set_epoch(epoch)
        seen += [list(sequences(batch)) for batch in loader]
    return seen


LOADERS: dict[str, Callable[..., list[Sequences]]] = {
    "Trainer": with_trainer,
    "SFTTrainer": with_sft,
    "DPOTrainer": with_dpo,
    "GRPOTrainer": with_rollouts("GRPO"),
    "RLOOTrainer": with_rollouts("RLOO"),
    "DataLoader": with_data_loader,
}
PACKING = {
    "Trainer": ["padding-free", "position_ids"],
    "SFTTrainer": ["bfd", "bfd_split", "wrapped", "padding-free"],
    "DataLoader": ["position_ids"],
}
STREAMING = ["Trainer", "SFTTrainer", "DPOTrainer", "GRPOTrainer", "RLOOTrainer", "DataLoader"]


def spelled(step: Sequences) -> list[str]:
    """What the sequences spell, without special tokens at the ends and completions."""
    return [VOCAB.decode([i for i in ids if i not in VOCAB.special]) for ids in step]


def check_epochs_differ(seen: list[Sequences]) -> None:
    """Both epochs spell the texts, by other ids than the canonical and each other."""
    half = len(seen) // 2
    epochs = []
    for part in (seen[:half], seen[half:]):
        epochs.append({})
        for step in part:
            for text, ids in zip(spelled(step), step, strict=True):
                start = next((t for t in TEXTS if text.startswith(t)), None)
                assert start is not None, text
                epochs[-1][text] = ids
    canonical = {text: VOCAB.encode(text).tolist() for text in epochs[0]}
    common = epochs[0].keys() & epochs[1].keys()
    assert len(common) >= 4
    assert sum(epochs[0][text] != epochs[1][text] for text in common) > 0.7 * len(common)
    plain = [[i for i in epochs[0][t] if i not in VOCAB.special] for t in common]
    assert sum(a != canonical[t] for a, t in zip(plain, common, strict=True)) > 0.7 * len(common)


@pytest.mark.parametrize(
    ("name", "packing"), [(name, packing) for name, kinds in PACKING.items() for packing in kinds]
)
def test_packing(name, packing, tmp_path):
    seen = LOADERS[name](tmp_path, packing=packing)
    if packing == "wrapped":  # boundaries are not kept by the packing itself
        for step in seen:
            assert all(len(ids) <= 64 for ids in step)
        text = "".join(VOCAB.decode(ids) for step in seen[: len(seen) // 2] for ids in step)
        assert sorted(text.replace("<|im_end|>", " ").split()) == sorted(" ".join(TEXTS).split())
        return
    if packing == "bfd_split":
        seen = [[ids for ids in step if len(ids) > 4] for step in seen]
    check_epochs_differ(seen)


@pytest.mark.parametrize("name", STREAMING)
def test_streaming(name, tmp_path):
    check_epochs_differ(LOADERS[name](tmp_path, streaming=True))


@pytest.mark.parametrize("name", LOADERS)
def test_chat(name, tmp_path):
    """Only what the user said is drawn."""
    seen = LOADERS[name](tmp_path, chat=True, epochs=1)
    turns = user_turns(TOKENIZER, VOCAB)
    changed = 0
    for ids in [ids for step in seen for ids in step]:
        row = np.asarray(ids)
        mask = turns(row)
        assert VOCAB.decode(row[mask]) in TEXTS
        changed += row[mask].tolist() != VOCAB.encode(VOCAB.decode(row[mask])).tolist()
        opening = row[: int(np.flatnonzero(mask)[0])].tolist()
        assert opening == TOKENIZER.encode("<|im_start|>user\n")
        rest = row[int(np.flatnonzero(mask)[-1]) + 1 :].tolist()
        header = TOKENIZER.encode("<|im_end|>\n<|im_start|>assistant\n")
        assert rest[: len(header)] == header
        if "GRPO" not in name and "RLOO" not in name:
            answer = rest[len(header) : rest.index(END, len(header))]
            assert answer == VOCAB.encode(VOCAB.decode(answer)).tolist()
    assert changed > 0.7 * sum(map(len, seen))


@pytest.mark.parametrize("name", LOADERS)
def test_resume(name, tmp_path):
    """A run that goes on from its first epoch trains on the same ids."""
    whole = LOADERS[name](tmp_path)
    checkpoints = sorted(tmp_path.glob("checkpoint-*"), key=lambda path: int(path.name[11:]))
    rest = LOADERS[name](tmp_path, resume=str(checkpoints[0]) if checkpoints else True)
    later = whole[len(whole) - len(rest) :]
    assert rest
    if name in ("GRPOTrainer", "RLOOTrainer"):  # TRL itself visits the prompts in another order
        rest, later = ([sorted(ids for step in part for ids in step)] for part in (rest, later))
    assert rest == later


@pytest.mark.parametrize("collator", [None, DataCollatorForLanguageModeling(TOKENIZER, mlm=False)])
def test_a_column_of_text_is_encoded_and_evaluation_is_canonical(collator, tmp_path):
    """The collators of transformers alone would refuse rows of different lengths, or of text."""
    rows = as_dataset([{"text": text} for text in TEXTS], streaming=False)
    for data in (rows, as_dataset([{"input_ids": ids, "labels": ids} for ids in IDS], False)):
        trainer = Trainer(
            model(), TrainingArguments(str(tmp_path), num_train_epochs=1, **COMMON),
            train_dataset=data, eval_dataset=data, data_collator=collator,
        )  # fmt: skip
        robustify(trainer, "uniform", seed=0, where="all", tokenizer=TOKENIZER)
        seen = trained(trainer)
        assert sorted(text for step in seen for text in spelled(step)) == sorted(TEXTS)
        assert not {tuple(ids) for step in seen for ids in step} & {*map(tuple, IDS)}
        evaluated = [ids for batch in trainer.get_eval_dataloader() for ids in sequences(batch)]
        assert evaluated == IDS
        assert np.isfinite(trainer.evaluate()["eval_loss"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precompute_ref_log_probs": True}, "set it to False"),
        ({"packing": True, "packing_strategy": "ffd"}, "rows packed by 'ffd' cannot be perturbed"),
    ],
)
def test_what_cannot_be_supported_is_refused(settings, message, tmp_path):
    arguments = TrainingArguments(str(tmp_path), **COMMON)
    for name, value in settings.items():
        setattr(arguments, name, value)
    rows: Any = [{"other": [1]}]
    trainer = Trainer(model(), arguments, train_dataset=rows)
    with pytest.raises(RobustokError, match=message):
        robustify(trainer, "uniform", seed=0, tokenizer=TOKENIZER)


def test_rows_of_an_unknown_form_are_refused(tmp_path):
    arguments = TrainingArguments(str(tmp_path), remove_unused_columns=False, **COMMON)
    rows: Any = [{"other": [1]}]
    trainer = Trainer(model(), arguments, train_dataset=rows)
    robustify(trainer, "uniform", seed=0, tokenizer=TOKENIZER)
    with pytest.raises(RobustokError, match="rows with other cannot be perturbed: give rows with"):
        next(iter(trainer.get_train_dataloader()))


def test_completions_of_preferences_are_never_drawn(tmp_path):
    arguments = trl.DPOConfig(str(tmp_path), bf16=False, gradient_checkpointing=False, **COMMON)
    rows = as_dataset([{"prompt": t, "chosen": " yes", "rejected": " no"} for t in TEXTS], False)
    trainer = trl.DPOTrainer(
        saved_model(tmp_path), args=arguments, train_dataset=rows, processing_class=make_tokenizer()
    )
    with pytest.raises(RobustokError, match="would perturb the completions"):
        robustify(trainer, "uniform", seed=0, where="all")
    robustify(trainer, "uniform", seed=0)
    given = trainer.train_dataset
    for batch in trainer.get_train_dataloader():
        completions = [
            ids[mask.bool()].tolist()
            for ids, mask in zip(batch["input_ids"], batch["completion_mask"], strict=True)
        ]
        assert completions[: len(completions) // 2] == [given[0]["chosen_ids"]] * 4
        assert completions[len(completions) // 2 :] == [given[0]["rejected_ids"]] * 4


def test_the_documentation_has_the_table_of_the_cells():
    """The rows of docs/training.md say what the tests above try."""
    text = (Path(__file__).parents[2] / "docs/training.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.M))
    assert table.keys() == LOADERS.keys()
    for name, cells in table.items():
        packing, streaming, chat, resume = cells.split(" | ")
        named = [word for word in re.findall(r"`(\S+?)`", packing) if not word.startswith("Data")]
        assert named == PACKING.get(name, [])
        assert (streaming == "yes") == (name in STREAMING)
        assert chat == resume == "yes"


@pytest.mark.parametrize(("share", "distinct"), [(True, 1), (False, 2)])
def test_a_group_shares_its_prompt_or_not(share, distinct, tmp_path):
    seen = with_rollouts("GRPO", share_group=share)(tmp_path, epochs=1)
    groups: dict[str, set[tuple[int, ...]]] = {}
    for ids in [ids for step in seen for ids in step]:
        groups.setdefault(VOCAB.decode(ids), set()).add(tuple(ids))
    assert groups.keys() == set(TEXTS)
    assert np.mean([len(group) for group in groups.values()]) == pytest.approx(distinct, abs=0.3)


def other_tokenizer() -> Any:
    """A tokenizer of the same size whose ids stand for other texts."""
    texts = [" ".join(RNG.choice(frequent_words(900)[600:], 8)) for _ in range(40)]
    return PreTrainedTokenizerFast(tokenizer_object=train_tokenizer(texts, 400))


def test_rows_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    other = other_tokenizer()
    texts = [" ".join(RNG.choice(frequent_words(600)[300:], 8)) for _ in range(8)]
    rows = [
        {"input_ids": ids.tolist(), "labels": ids.tolist()} for ids in VOCAB.encode_batch(texts)
    ]
    collate = TorchCollator(
        Perturb(rt.sampler("uniform", rt.Vocabulary.load(other)), seed=0, where="all"), pad_id=0
    )
    with pytest.raises(RobustokError, match="another tokenizer encoded them, likely the model's"):
        collate(rows)
    args = TrainingArguments(str(tmp_path), max_steps=1, **COMMON)
    trainer = Trainer(model(), args, train_dataset=cast(Any, rows), processing_class=TOKENIZER)
    robustify(trainer, "uniform", seed=0, where="all", tokenizer=other)
    with pytest.raises(RobustokError, match="likely the trainer's processing_class"):
        trainer.train()


def test_ids_beyond_the_tokenizer_are_refused() -> None:
    perturb = Perturb(rt.sampler("uniform", VOCAB), seed=0, where="all")
    with pytest.raises(RobustokError, match=f"has {VOCAB.size} ids, and rows have id 99999"):
        perturb([{"input_ids": [*IDS[0], 99999]}])


def test_rows_that_were_cut_or_encoded_in_parts_are_taken() -> None:
    perturb = Perturb(rt.sampler("uniform", VOCAB), seed=0, where="all")
    cut = [ids[2:-2] for ids in IDS]
    joined = [[*a, *b] for a, b in zip(IDS, reversed(IDS), strict=True)]
    perturb([{"input_ids": ids} for ids in [*cut, *joined, IDS[0][:3]]])


def test_a_plain_loader_warns_of_rows_whose_draws_do_not_fit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = [{"input_ids": ids, "labels": [-100] * (len(ids) - 1) + ids[-1:]} for ids in IDS * 8]
    fits = max(map(len, IDS))
    perturb = Perturb(rt.sampler("uniform", VOCAB), seed=0, max_length=fits)
    collate = TorchCollator(perturb, pad_id=PAD)
    with caplog.at_level("WARNING"):
        for _ in DataLoader(rows, batch_size=8, collate_fn=collate):  # type: ignore[arg-type]
            pass
    (record,) = caplog.records
    assert "of 64 rows perturbed in epoch 1" in record.getMessage()
    assert f"do not fit in max_length={fits}: raise it" in record.getMessage()
    collate.set_epoch(1)
    assert len(caplog.records) == 2


def test_rows_that_can_only_be_canonical_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    short = [ids[:1] for ids in IDS[:3]]
    collate = TorchCollator(
        Perturb(rt.sampler("uniform-k(alpha=0.5)", VOCAB), seed=0, where="all"), pad_id=PAD
    )
    collate([{"input_ids": ids} for ids in [*short, *IDS[3:]]])
    with caplog.at_level("WARNING"):
        collate.set_epoch(1)
    (record,) = caplog.records
    assert record.getMessage().endswith(
        "; 3 stayed canonical, since they have no tokenization at a distance from 1 to k: "
        "use a larger alpha or k"
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a text"], "not str: encode the texts first"),
        ([{"text": "a text"}], "not columns text: encode the texts first"),
        ([{"input_ids": "a text"}], "not columns input_ids: encode the texts first"),
        ([{"input_ids": [1, 2], "labels": [1, 2, 3]}], "2 input_ids and 3 labels"),
        ([{"input_ids": [1, 2], "labels": [-100, 3]}], "label 3 for id 2: a label is the id"),
    ],
)
def test_rows_of_another_form_are_refused_in_one_line(rows: Any, message: str) -> None:
    with pytest.raises(RobustokError, match=message):
        check_rows(rows)


def test_a_model_is_no_trainer() -> None:
    model = small_model(290, Shape(1, 16, 2, 1, 16, 64), seed=0)
    with pytest.raises(RobustokError, match="takes a trainer"):
        robustify(model, "uniform", seed=0)
