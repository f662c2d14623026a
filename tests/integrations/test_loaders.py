"""The table of trainers and loaders in docs/training.md, cell by cell."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integrations.conftest import TEXTS as LONG
from tests.integrations.conftest import (
    TOKENIZER,
    VOCAB,
    WORDS,
    Sequences,
    make_trainer,
    sequences,
    trained,
    trained_on_prompts,
    trl_trainer,
)
from torch.utils.data import DataLoader, IterableDataset
from transformers import (
    DataCollatorForLanguageModeling,
    DataCollatorForSeq2Seq,
    DataCollatorWithFlattening,
)

from robustok.errors import RobustokError
from robustok.integrations.perturb import TorchCollator
from robustok.integrations.trainer import robustify
from robustok.tokenizer.chat import ChatTurns

pytest.importorskip("trl")
datasets = pytest.importorskip("datasets")

pytestmark = pytest.mark.filterwarnings("ignore")

TEXTS = [text.rsplit(" ", 4)[0] for text in LONG[:8]]
IDS = [ids.tolist() for ids in VOCAB.encode_batch(TEXTS)]
CHATS = [
    [{"role": "user", "content": text}, {"role": "assistant", "content": " " + WORDS[0]}]
    for text in TEXTS
]
PACKED = [
    {"input_ids": a + b, "labels": a + b, "position_ids": [*range(len(a)), *range(len(b))]}
    for a, b in zip(IDS[::2], IDS[1::2], strict=True)
]
PREFERENCES = [{"prompt": text, "chosen": " yes", "rejected": " no"} for text in TEXTS]
END = VOCAB.tokens.index(b"<|im_end|>")
BATCH: dict[str, Any] = {"per_device_train_batch_size": 4, "save_strategy": "epoch"}


@dataclass(frozen=True)
class Cell:
    """What is trained on, and for how long."""

    folder: Path
    packing: str = ""
    streaming: bool = False
    chat: bool = False
    epochs: int = 2
    resume: Any = None

    def dataset(self, rows: list[dict[str, Any]]) -> Any:
        dataset = datasets.Dataset.from_list(rows)
        return dataset.to_iterable_dataset() if self.streaming else dataset

    @property
    def settings(self) -> dict[str, Any]:
        """A stream has no length, so its epochs are given as steps: two a pass."""
        if self.streaming:
            return {**BATCH, "max_steps": 2 * self.epochs}
        return {**BATCH, "num_train_epochs": self.epochs}


def labelled_chats() -> list[dict[str, Any]]:
    """The ids of chats, with labels of what the assistant says."""
    rows = []
    for one in CHATS:
        row = TOKENIZER.apply_chat_template(
            one, return_dict=True, return_assistant_tokens_mask=True
        )
        ids = row["input_ids"]
        turns = ChatTurns(TOKENIZER, VOCAB).user(np.asarray(ids))
        marks = np.asarray(row["assistant_masks"], dtype=bool) & ~turns
        rows.append({"input_ids": ids, "labels": np.where(marks, ids, -100).tolist()})
    return rows


def with_trainer(cell: Cell) -> list[Sequences]:
    rows: list[dict[str, Any]] = [{"input_ids": ids, "labels": ids} for ids in IDS]
    collator: Any = DataCollatorForLanguageModeling(TOKENIZER, mlm=False)
    if cell.packing == "padding-free":
        collator = DataCollatorWithFlattening()
    if cell.packing == "position_ids":
        rows, collator = PACKED, None
    if cell.chat:
        rows, collator = labelled_chats(), DataCollatorForSeq2Seq(TOKENIZER)
    data = cell.dataset(rows)
    trainer = make_trainer(cell.folder, data, data_collator=collator, **cell.settings)
    where = "user" if cell.chat else "all"
    robustify(trainer, "uniform", seed=0, where=where, tokenizer=TOKENIZER)
    return trained(trainer, cell.resume)


def with_sft(cell: Cell) -> list[Sequences]:
    rows: list[dict[str, Any]] = [{"text": text} for text in TEXTS]
    settings: dict[str, Any] = {"max_length": 128}
    if cell.packing == "padding-free":
        settings = {"padding_free": True, "max_length": None}
    elif cell.packing:
        settings = {"packing": True, "packing_strategy": cell.packing, "max_length": 64}
    if cell.chat:
        settings["completion_only_loss"] = True
        rows = [{"prompt": one[:1], "completion": one[1:]} for one in CHATS]
    trainer = trl_trainer("SFT", cell.folder, cell.dataset(rows), **settings, **cell.settings)
    robustify(trainer, "uniform", seed=0, where="user" if cell.chat else "all")
    return trained(trainer, cell.resume)


def dpo_trainer(cell: Cell, rows: list[dict[str, Any]]) -> Any:
    return trl_trainer("DPO", cell.folder, cell.dataset(rows), max_length=128, **cell.settings)


def with_dpo(cell: Cell) -> list[Sequences]:
    rows: list[Any] = PREFERENCES
    if cell.chat:
        other = {"role": "assistant", "content": " no"}
        rows = [{"prompt": one[:1], "chosen": one[1:], "rejected": [other]} for one in CHATS]
    trainer = dpo_trainer(cell, rows)
    robustify(trainer, "uniform", seed=0, where="user" if cell.chat else "unlabeled")
    return trained(trainer, cell.resume)


def with_rollouts(kind: str, cell: Cell, **options: Any) -> list[Sequences]:
    prompts = [one[:1] for one in CHATS] if cell.chat else TEXTS
    data = cell.dataset([{"prompt": prompt} for prompt in prompts])
    settings = {**cell.settings, "per_device_train_batch_size": 8}
    trainer = trl_trainer(kind, cell.folder, data, **settings)
    robustify(trainer, "uniform", seed=0, where="user" if cell.chat else "unlabeled", **options)
    return trained_on_prompts(trainer, cell.resume)


class Stream(IterableDataset):
    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)


def with_data_loader(cell: Cell) -> list[Sequences]:
    """PyTorch without a trainer."""
    rows: Any = PACKED if cell.packing else [{"input_ids": ids} for ids in IDS]
    if cell.chat:
        rows = [{"input_ids": TOKENIZER.apply_chat_template(one)["input_ids"]} for one in CHATS]
    where = "user" if cell.chat else "all"
    collate = TorchCollator("uniform", seed=0, where=where, tokenizer=TOKENIZER, pad_id=0)
    loader = DataLoader(Stream(rows) if cell.streaming else rows, batch_size=4, collate_fn=collate)
    seen = []
    for epoch in range(0 if cell.resume is None else 1, cell.epochs):
        collate.set_epoch(epoch)
        seen += [list(sequences(batch)) for batch in loader]
    return seen


LOADERS: dict[str, Callable[[Cell], list[Sequences]]] = {
    "Trainer": with_trainer,
    "SFTTrainer": with_sft,
    "DPOTrainer": with_dpo,
    "GRPOTrainer": partial(with_rollouts, "GRPO"),
    "RLOOTrainer": partial(with_rollouts, "RLOO"),
    "DataLoader": with_data_loader,
}
PACKING = {
    "Trainer": ["padding-free", "position_ids"],
    "SFTTrainer": ["bfd", "bfd_split", "wrapped", "padding-free"],
    "DataLoader": ["position_ids"],
}


def spelled(step: Sequences) -> list[str]:
    """What the sequences spell, without special tokens at the ends and completions."""
    return [VOCAB.decode([i for i in ids if i not in VOCAB.special]) for ids in step]


def check_epochs_differ(seen: list[Sequences]) -> None:
    """Both epochs spell the texts, by other ids than the canonical and each other."""
    half = len(seen) // 2
    epochs: list[dict[str, list[int]]] = [{}, {}]
    for number, step in enumerate(seen):
        for text, ids in zip(spelled(step), step, strict=True):
            assert any(text.startswith(t) for t in TEXTS), text
            epochs[number // half][text] = ids
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
    seen = LOADERS[name](Cell(tmp_path, packing))
    if packing == "wrapped":  # boundaries are not kept by the packing itself
        for step in seen:
            assert all(len(ids) <= 64 for ids in step)
        text = "".join(VOCAB.decode(ids) for step in seen[: len(seen) // 2] for ids in step)
        assert sorted(text.replace("<|im_end|>", " ").split()) == sorted(" ".join(TEXTS).split())
        return
    if packing == "bfd_split":
        seen = [[ids for ids in step if len(ids) > 4] for step in seen]
    check_epochs_differ(seen)


@pytest.mark.parametrize("name", LOADERS)
def test_streaming(name, tmp_path):
    check_epochs_differ(LOADERS[name](Cell(tmp_path, streaming=True)))


@pytest.mark.parametrize("name", LOADERS)
def test_chat(name, tmp_path):
    """Only what the user said is drawn."""
    seen = LOADERS[name](Cell(tmp_path, chat=True, epochs=1))
    turns = ChatTurns(TOKENIZER, VOCAB)
    changed = 0
    for ids in [ids for step in seen for ids in step]:
        row = np.asarray(ids)
        mask = turns.user(row)
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
    cell = Cell(tmp_path)
    whole = LOADERS[name](cell)
    checkpoints = sorted(tmp_path.glob("checkpoint-*"), key=lambda path: int(path.name[11:]))
    rest = LOADERS[name](replace(cell, resume=str(checkpoints[0]) if checkpoints else True))
    later = whole[len(whole) - len(rest) :]
    assert rest
    if name in ("GRPOTrainer", "RLOOTrainer"):  # TRL itself visits the prompts in another order
        rest, later = ([sorted(ids for step in part for ids in step)] for part in (rest, later))
    assert rest == later


def test_the_documentation_has_the_table_of_the_cells():
    """The rows of docs/training.md say what the tests above try."""
    text = (Path(__file__).parents[2] / "docs/training.md").read_text(encoding="utf-8")
    text = text.partition("## With a trainer of your own")[2].partition("###")[0]
    table = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.M))
    assert table.keys() == LOADERS.keys()
    for name, cells in table.items():
        packing, *others = cells.split(" | ")
        named = [word for word in re.findall(r"`(\S+?)`", packing) if not word.startswith("Data")]
        assert named == PACKING.get(name, [])
        assert others == ["yes", "yes", "yes"]  # streaming, chat, resume


@pytest.mark.parametrize("collator", [None, DataCollatorForLanguageModeling(TOKENIZER, mlm=False)])
def test_rows_of_one_length_are_padded_and_evaluation_is_canonical(collator, tmp_path):
    """The collators of transformers alone would refuse draws of different lengths."""
    cell, blocks = Cell(tmp_path, epochs=1), [ids[:10] for ids in IDS]
    given = cell.dataset([{"input_ids": ids, "labels": ids} for ids in blocks])
    trainer = make_trainer(tmp_path, given, data_collator=collator, **cell.settings)
    robustify(trainer, "uniform", seed=0, where="all", tokenizer=TOKENIZER)
    batch = next(iter(trainer.get_train_dataloader()))
    assert batch["input_ids"].shape == batch["labels"].shape
    assert (batch["labels"] == -100).equal(batch["attention_mask"] == 0)
    seen = trained(trainer)
    assert sorted(t for step in seen for t in spelled(step)) == sorted(map(VOCAB.decode, blocks))
    assert not {tuple(ids) for step in seen for ids in step} & {*map(tuple, blocks)}
    evaluated = [ids for batch in trainer.get_eval_dataloader() for ids in sequences(batch)]
    assert evaluated == blocks
    assert np.isfinite(trainer.evaluate()["eval_loss"])


def test_completions_of_preferences_are_never_drawn(tmp_path):
    trainer = dpo_trainer(Cell(tmp_path), PREFERENCES)
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


@pytest.mark.parametrize("max_length", [None, 1000])
def test_a_drawn_prompt_cuts_no_completion(max_length, tmp_path):
    """Also where TRL cuts the completions of canonical rows."""
    rows = [{"prompt": text, "chosen": 2 * f" {text}", "rejected": " no"} for text in TEXTS]
    trainer = trl_trainer("DPO", tmp_path, rows, max_length=max(map(len, IDS)) + 4)

    def kept() -> list[int]:
        batches = trainer.get_train_dataloader()
        return sorted(mask.sum().item() for b in batches for mask in b["completion_mask"])

    expected = kept()
    robustify(trainer, "uniform", seed=0, max_length=max_length)
    assert kept() == expected
    assert expected[-1] == 4


@pytest.mark.parametrize(("share", "distinct"), [(True, 1), (False, 2)])
def test_a_group_shares_its_prompt_or_not(share, distinct, tmp_path):
    seen = with_rollouts("GRPO", Cell(tmp_path, epochs=1), share_group=share)
    groups: dict[str, set[tuple[int, ...]]] = {}
    for ids in [ids for step in seen for ids in step]:
        groups.setdefault(VOCAB.decode(ids), set()).add(tuple(ids))
    assert groups.keys() == set(TEXTS)
    assert np.mean([len(group) for group in groups.values()]) == pytest.approx(distinct, abs=0.3)
