"""`robustify` on transformers' Trainer and TRL's SFTTrainer, and tokenizers that draw in both."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from tests.integrations.conftest import (
    COMMON,
    IDS,
    TEXTS,
    TOKENIZER,
    VOCAB,
    chat_tokenizer,
    make_trainer,
    tiny,
    trained,
    trained_on_prompts,
    trl_trainer,
)
from tests.oracles.processes import as_two_processes
from transformers import (
    DataCollatorForLanguageModeling,
    DataCollatorForSeq2Seq,
    DataCollatorWithFlattening,
    TrainerCallback,
)

import robustok as rt
from robustok.errors import RobustokError
from robustok.integrations.trainer import robustify

pytest.importorskip("trl")

pytestmark = pytest.mark.filterwarnings("ignore")

ANSWERS = VOCAB.encode_batch([f" {t.split()[0]}" for t in TEXTS])
# Canonical prompts and answers, as any training script prepares them.
ROWS = [
    {
        "input_ids": ids + answer.tolist(),
        "attention_mask": [1] * (len(ids) + len(answer)),
        "labels": [-100] * len(ids) + answer.tolist(),
    }
    for ids, answer in zip(IDS, ANSWERS, strict=True)
]
PADS = DataCollatorForSeq2Seq(TOKENIZER)
# Tokens of each row when its prompt is drawn to characters, and a limit that half of them exceed.
DRAWN = [len(VOCAB.decode_bytes(ids)) + len(a) for ids, a in zip(IDS, ANSWERS, strict=True)]
LIMIT = int(np.median(DRAWN))
PRINTED = f"{len(TEXTS)} of {len(TEXTS)} rows perturbed in epoch 1"


def robustified(folder: Any, seed: int = 0, workers: int = 0, epochs: int = 2) -> Any:
    """The batches of a training, and the ids of the last batch of its evaluation."""
    trainer = make_trainer(
        folder, ROWS, TOKENIZER, data_collator=PADS, num_train_epochs=epochs,
        dataloader_num_workers=workers, dataloader_persistent_workers=workers > 0,
        remove_unused_columns=False,
    )  # fmt: skip
    batches: list[dict[str, torch.Tensor]] = []
    evaluated: list[torch.Tensor] = []
    plain = trainer.compute_loss

    def compute_loss(model, inputs, *args, **kwargs):
        if model.training:
            batches.append({k: v.clone() for k, v in inputs.items()})
        else:
            evaluated.append(inputs["input_ids"].clone())
        return plain(model, inputs, *args, **kwargs)

    trainer.compute_loss = compute_loss
    robustify(trainer, "uniform", seed=seed)
    trainer.train()
    trainer.evaluate()
    return batches, evaluated[-1]


def prompts_of(batches: Any) -> list[tuple[bytes, tuple[int, ...]]]:
    """The bytes and the ids of each prompt, in training order."""
    prompts = []
    for batch in batches:
        names = ("input_ids", "attention_mask", "labels")
        for ids, mask, labels in zip(*(batch[name] for name in names), strict=True):
            prompt = ids[(mask == 1) & (labels == -100)].tolist()
            prompts.append((VOCAB.decode_bytes(prompt), tuple(prompt)))
    return prompts


def test_epochs_differ_a_seed_repeats_and_workers_change_nothing(tmp_path, capsys):
    batches, evaluated = robustified(tmp_path)
    runs = [prompts_of(batches), prompts_of(robustified(tmp_path, workers=2)[0])]
    assert runs[0] == runs[1]
    assert capsys.readouterr().out.count(PRINTED) == 2  # workers are counted together
    first, second = dict(runs[0][: len(TEXTS)]), dict(runs[0][len(TEXTS) :])
    assert first.keys() == second.keys() == {t.encode() for t in TEXTS}
    assert sum(first[t] != second[t] for t in first) > 0.9 * len(TEXTS)
    other = dict(prompts_of(robustified(tmp_path, seed=1, epochs=1)[0]))
    assert sum(first[t] != other[t] for t in first) > 0.9 * len(TEXTS)
    # Labels are the canonical answers, and evaluation is canonical.
    labels = [row[row != -100].tolist() for batch in batches[:3] for row in batch["labels"]]
    assert sorted(labels) == sorted(a.tolist() for a in ANSWERS)
    row = ROWS[-1]["input_ids"]
    assert evaluated[-1][: len(row)].tolist() == row


class Reporter(TrainerCallback):
    """Keeps what W&B or TensorBoard would get."""

    def __init__(self) -> None:
        self.logs: list[dict[str, float]] = []

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:  # type: ignore[override]
        self.logs.append(dict(logs or {}))


def logged(folder: Any, **options: Any) -> list[dict[str, float]]:
    """What one epoch logs with each loss, of the state and of a reporter."""
    reporter = Reporter()
    trainer = make_trainer(
        folder, ROWS, TOKENIZER, data_collator=PADS, callbacks=[reporter], num_train_epochs=1,
        logging_steps=1, remove_unused_columns=False, **options,
    )  # fmt: skip
    robustify(trainer, "characters", seed=0, max_length=LIMIT)
    trainer.train()
    for row in (trainer.state.log_history, reporter.logs):
        assert all(("loss" in entry) == ("perturb/overflow" in entry) for entry in row)
    return [entry for entry in reporter.logs if "loss" in entry]


def log_row(rank: int, folder: Any) -> None:
    row = logged(folder, use_cpu=True, per_device_train_batch_size=4)[-1]
    (folder / f"{rank}.json").write_text(json.dumps(row))


def test_the_log_has_what_was_perturbed_in_all_processes(tmp_path):
    expected = logged(tmp_path)[-1]
    overflow = sum(size > LIMIT for size in DRAWN)
    assert expected["perturb/overflow"] == overflow
    assert expected["perturb/changed_rows"] == len(ROWS) - overflow
    assert 0 < expected["perturb/replaced"] < 1 and expected["perturb/splits_per_token"] > 0
    as_two_processes(log_row, tmp_path)
    first, second = (json.loads((tmp_path / f"{i}.json").read_text()) for i in range(2))
    for name, value in expected.items():
        if name.startswith("perturb/"):
            assert first[name] == second[name] == pytest.approx(value)


def test_bad_input_is_one_line(tmp_path):
    with pytest.raises(RobustokError, match="takes a trainer"):
        robustify(tiny(), "uniform", seed=0)
    bare = SimpleNamespace(processing_class=None, args=None, get_train_dataloader=None)
    with pytest.raises(RobustokError, match="no tokenizer"):
        robustify(bare, "uniform", seed=0)
    with pytest.raises(RobustokError, match="max_length must be 1 or more"):
        robustify(bare, "uniform", seed=0, max_length=0)
    trainer = make_trainer(tmp_path, [{"other": [1]}], remove_unused_columns=False)
    with pytest.raises(RobustokError, match="not columns other: encode the texts first"):
        robustify(trainer, "uniform", seed=0, tokenizer=TOKENIZER)
    trainer = make_trainer(tmp_path, ROWS, data_collator=PADS)
    with pytest.raises(RobustokError, match="did you mean 'user'"):
        robustify(trainer, "uniform", seed=0, where="usr", tokenizer=TOKENIZER)
    for message, setting in {
        "set it to False": {"precompute_ref_log_probs": True},
        "by 'ffd' cannot be perturbed": {"packing": True, "packing_strategy": "ffd"},
    }.items():
        with pytest.raises(RobustokError, match=message), pytest.MonkeyPatch.context() as patch:
            for name, value in setting.items():
                patch.setattr(trainer.args, name, value, raising=False)
            robustify(trainer, "uniform", seed=0, tokenizer=TOKENIZER)
    robustify(trainer, "uniform", seed=0, tokenizer=TOKENIZER)
    with pytest.raises(RobustokError, match="robustified already"):
        robustify(trainer, "uniform", seed=0, tokenizer=TOKENIZER)


LABELS_ALL = DataCollatorForLanguageModeling(TOKENIZER, mlm=False)


@pytest.mark.parametrize("where", [None, "unlabeled", "user"])
@pytest.mark.parametrize(
    ("collator", "rows"),
    [
        (LABELS_ALL, [{"input_ids": ids} for ids in IDS]),
        (LABELS_ALL, ROWS),  # it replaces their labels
        (DataCollatorWithFlattening(), [{"input_ids": ids} for ids in IDS]),
    ],
)
def test_nothing_is_drawn_where_the_collator_labels_every_id(tmp_path, where, collator, rows):
    trainer = make_trainer(tmp_path, rows, TOKENIZER, data_collator=collator)
    with pytest.raises(RobustokError, match=r"nothing may be perturbed .* with a collator that"):
        robustify(trainer, "uniform", seed=0, where=where)
    robustify(trainer, "uniform", seed=0, where="all")
    batch = next(iter(trainer.get_train_dataloader()))
    has_label = batch["labels"] != -100
    assert has_label.float().mean() > 0.8
    assert batch["labels"][has_label].equal(batch["input_ids"][has_label])


@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_are_padded_on_the_side_of_the_tokenizer(tmp_path, side):
    tokenizer = chat_tokenizer()
    tokenizer.padding_side = side
    rows = [{"input_ids": ids[: 8 + i % 5], "labels": i % 2} for i, ids in enumerate(IDS)]
    trainer = make_trainer(tmp_path, rows, tokenizer)  # of a classifier
    robustify(trainer, "uniform", seed=0)
    assert next(iter(trainer.get_train_dataloader()))["labels"].shape == (8,)
    trainer = make_trainer(tmp_path, ROWS, tokenizer)  # labels of ids, which are not padded
    robustify(trainer, "uniform", seed=0)
    for batch in trainer.get_train_dataloader():
        mask = batch["attention_mask"]
        assert mask[:, -1 if side == "left" else 0].all()
        assert not batch["labels"].ne(-100)[mask == 0].any()


def test_a_draw_of_a_rollout_fits_beside_its_completion(tmp_path):
    """The longest input of the model is 256."""
    rows = [{"prompt": " ".join([text] * 4)} for text in TEXTS[:4]]
    canonical = {tuple(VOCAB.encode(row["prompt"]).tolist()) for row in rows}
    longest = max(map(len, canonical))
    settings = {"max_completion_length": 256 - longest - 40, "max_steps": 1}
    trainer = trl_trainer("GRPO", tmp_path, rows, **settings)
    robustify(trainer, "uniform", seed=0)
    callback = next(c for c in trainer.callback_handler.callbacks if hasattr(c, "perturb"))
    assert callback.perturb.max_length == longest + 40
    seen = [tuple(ids) for step in trained_on_prompts(trainer) for ids in step]
    drawn = [ids for ids in seen if ids not in canonical]
    assert {VOCAB.decode(ids) for ids in seen} == {row["prompt"] for row in rows}
    assert len(drawn) < len(seen)
    assert all(len(ids) <= longest + 40 for ids in drawn)


def drawing() -> Any:
    return rt.stochastic(chat_tokenizer(), "uniform", seed=0)


def sft_rows(trainer: Any) -> list[list[list[int]]]:
    """The rows of each epoch of a training of two epochs, sorted, without padding."""
    seen = [ids for step in trained(trainer) for ids in step]
    return [sorted(seen[: len(seen) // 2]), sorted(seen[len(seen) // 2 :])]


def texts_of(rows: list[list[int]]) -> list[str]:
    return sorted(VOCAB.decode(ids).removesuffix("<|im_end|>") for ids in rows)


def test_sft_tokenizes_once_and_robustify_refuses_rows_that_may_be_drawn_already(tmp_path):
    rows, tokenizer = [{"text": text} for text in TEXTS], drawing()
    trainer = trl_trainer("SFT", tmp_path, rows, tokenizer, num_train_epochs=2)
    with pytest.raises(rt.RobustokError, match="draws itself") as error:
        robustify(trainer, "uniform", seed=0)
    assert "\n" not in str(error.value)
    first, second = sft_rows(trainer)
    assert first == second
    assert texts_of(first) == sorted(TEXTS)
    assert not {tuple(ids) for ids in first} & {tuple(ids) for ids in IDS}
    trainer = trl_trainer("SFT", tmp_path, rows, tokenizer.eval(), num_train_epochs=2)
    robustify(trainer, "uniform", seed=0, where="all")
    first, second = sft_rows(trainer)
    assert first != second
    assert texts_of(first) == texts_of(second) == sorted(TEXTS)


def test_what_cannot_be_perturbed_is_said_at_the_call(tmp_path):
    bare: Any = [{"input_ids": ids} for ids in IDS]
    marked: Any = [{**row, "response_mask": [1] * len(row["input_ids"])} for row in ROWS]
    for message, rows in {
        "rows without labels do not say what is an answer": bare,
        "the column 'response_mask' has as many values": marked,
        "encode the texts first": [{"text": text} for text in TEXTS],
    }.items():
        for data in (rows, Dataset.from_list(rows), Dataset.from_list(rows).to_iterable_dataset()):
            settings = {"max_steps": 2, "remove_unused_columns": False}
            trainer = make_trainer(tmp_path, data, TOKENIZER, **settings)
            with pytest.raises(RobustokError, match=message) as error:
                robustify(trainer, "uniform", seed=0)
            assert "\n" not in str(error.value)


def test_processes_that_do_not_train_together_are_refused(tmp_path, monkeypatch):
    trainer = make_trainer(tmp_path, ROWS, TOKENIZER, data_collator=PADS)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RobustokError, match=r"2 processes were started.* set use_cpu=True"):
        robustify(trainer, "uniform", seed=0)


def strengths(folder: Any, workers: int = 0, resume: bool = False, **settings: Any) -> list[int]:
    """Ids in each step of a training under a schedule from canonical to strong."""
    rows: Any = [ROWS[0]] * 16
    trainer = make_trainer(
        folder, rows, TOKENIZER, data_collator=PADS, dataloader_num_workers=workers,
        remove_unused_columns=False, num_train_epochs=2, per_device_train_batch_size=2,
        save_strategy="steps", save_steps=5, **settings,
    )  # fmt: skip
    sizes: list[int] = []
    plain = trainer.compute_loss

    def compute_loss(model, inputs, *args, **kwargs):
        sizes.append(inputs["input_ids"].shape[1])
        return plain(model, inputs, *args, **kwargs)

    trainer.compute_loss = compute_loss
    robustify(trainer, "uniform-k(alpha=0->1)", seed=0)
    trainer.train(resume_from_checkpoint=str(folder / "checkpoint-5") if resume else None)
    return sizes


def test_a_schedule_moves_from_the_first_step_to_the_last(tmp_path):
    sizes = strengths(tmp_path)
    canonical = len(ROWS[0]["input_ids"])
    assert len(sizes) == 16 and sizes[0] == canonical
    assert sizes == sorted(sizes) and sizes[-1] > canonical + 5
    assert strengths(tmp_path / "workers", workers=2) == sizes
    assert strengths(tmp_path, resume=True) == sizes[5:]
    accumulated = strengths(tmp_path / "a", gradient_accumulation_steps=2)
    assert accumulated[::2] == accumulated[1::2] and accumulated[-1] == sizes[-1]


PAIRS = [
    {"prompt": text, "completion": " yes", "label": i % 2 == 0} for i, text in enumerate(TEXTS)
]


def test_kto_draws_prompts_and_keeps_completions(tmp_path):
    """The completions of other rows, of which KTO estimates the divergence, share the prompt."""
    settings = {"max_steps": 2, "max_length": 256}
    trainer = trl_trainer("KTO", tmp_path, PAIRS, **settings)
    robustify(trainer, "uniform", seed=0)
    assert "KL_completion_ids" in trainer.train_dataset.column_names
    canonical = [row["prompt_ids"] for row in trainer.train_dataset]
    batch = next(iter(trainer.get_train_dataloader()))
    for prefix in ("", "KL_"):
        for ids, mask in zip(
            batch[f"{prefix}input_ids"], batch[f"{prefix}completion_mask"], strict=True
        ):
            completion = ids[mask.bool()].tolist()
            assert completion in [row["completion_ids"] for row in trainer.train_dataset]
            prompt = ids[: int(mask.argmax())].tolist()
            assert prompt not in canonical and VOCAB.decode(prompt) in TEXTS
    trainer.train()
    assert trainer.state.global_step == 2


def test_both_texts_of_a_reward_model_are_drawn(tmp_path):
    from transformers import AutoModelForSequenceClassification
    from trl.trainer.reward_config import RewardConfig
    from trl.trainer.reward_trainer import RewardTrainer

    tiny().save_pretrained(tmp_path / "model")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model", num_labels=1)
    model.config.pad_token_id = TOKENIZER.pad_token_id
    rows = [{"chosen": a, "rejected": b} for a, b in zip(TEXTS, TEXTS[::-1], strict=True)]
    trainer = RewardTrainer(
        model=model, args=RewardConfig(str(tmp_path), **COMMON, max_steps=2, bf16=False),
        train_dataset=Dataset.from_list(rows), processing_class=chat_tokenizer(),
    )  # fmt: skip
    robustify(trainer, "uniform", seed=0)
    batch = next(iter(trainer.get_train_dataloader()))
    drawn = [ids[mask == 1].tolist() for ids, mask in zip(batch["input_ids"],
             batch["attention_mask"], strict=True)]  # fmt: skip
    drawn = [[i for i in ids if i not in VOCAB.special] for ids in drawn]
    assert {VOCAB.decode(ids) for ids in drawn} <= {*TEXTS} and not [i for i in drawn if i in IDS]
    trainer.train()
    assert trainer.state.global_step == 2


def test_distillation_generates_from_drawn_prompts(tmp_path):
    rows = [{"prompt": text} for text in TEXTS]
    settings = {"max_steps": 1, "max_completion_length": 4}
    trainer = trl_trainer("Distillation", tmp_path, rows, **settings)
    robustify(trainer, "uniform", seed=0)
    seen = [ids for step in trained_on_prompts(trainer) for ids in step]
    assert seen and {VOCAB.decode(ids) for ids in seen} <= {*TEXTS}
    assert not {tuple(ids) for ids in seen} & {tuple(ids) for ids in IDS}


@pytest.mark.parametrize("kind", ["ORPO", "CPO"])
def test_preferences_of_another_form_are_refused_at_the_call(tmp_path, kind):
    module = pytest.importorskip(f"trl.experimental.{kind.lower()}")
    rows = [{"prompt": text, "chosen": " yes", "rejected": " no"} for text in TEXTS]
    trainer = getattr(module, f"{kind}Trainer")(
        model=tiny(), args=getattr(module, f"{kind}Config")(str(tmp_path), **COMMON, bf16=False),
        train_dataset=Dataset.from_list(rows), processing_class=chat_tokenizer(),
    )  # fmt: skip
    with pytest.raises(RobustokError, match="rows are dictionaries with input_ids"):
        robustify(trainer, "uniform", seed=0)
