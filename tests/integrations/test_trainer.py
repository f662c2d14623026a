from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from tests.guard.tokenizers_of import metaspace
from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerFast, Trainer, TrainingArguments

import robustok as rt
from robustok.errors import RobustokError
from robustok.integrations.perturb import Perturb
from robustok.integrations.trainer import robustify
from robustok.models import Shape, small_model, train_tokenizer
from robustok.tasks import frequent_words
from robustok.tokenizer.chat import template_headers, user_turns

WORDS = frequent_words(60)
RNG = np.random.default_rng(0)
TEXTS = [" ".join(RNG.choice(WORDS, 12)) for _ in range(24)]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HEADERS = (
    "{% for m in messages %}<|start|>{{ m['role'] }}<|end|>\n\n"
    "{{ m['content'] }}<|eot|>{% endfor %}"
)


def chat_tokenizer(template, specials) -> Any:
    tokenizer = train_tokenizer([*TEXTS, "system user assistant\n\n"] * 2, 400)
    tokenizer.add_special_tokens(specials)
    chat = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<|endoftext|>")
    chat.chat_template = template
    return chat


TOKENIZER = chat_tokenizer(CHATML, ["<|im_start|>", "<|im_end|>"])
VOCAB = rt.Vocabulary.load(TOKENIZER)
PROMPTS = VOCAB.encode_batch(TEXTS)
ANSWERS = VOCAB.encode_batch([f" {t.split()[0]}" for t in TEXTS])


class Rows(torch.utils.data.Dataset):
    """Canonical prompts and answers, as any training script prepares them."""

    def __len__(self) -> int:
        return len(TEXTS)

    def __getitem__(self, i: int) -> dict[str, Any]:
        prompt, answer = PROMPTS[i].tolist(), ANSWERS[i].tolist()
        ids = prompt + answer
        return {
            "input_ids": ids,
            "attention_mask": [1] * len(ids),
            "labels": [-100] * len(prompt) + answer,
        }


class Seen:
    """A model's inputs, kept."""

    evaluated: torch.Tensor

    def __init__(self, trainer: Trainer) -> None:
        self.batches: list[dict[str, torch.Tensor]] = []
        plain = trainer.compute_loss

        def compute_loss(model, inputs, *args, **kwargs):
            if model.training:
                self.batches.append({k: v.clone() for k, v in inputs.items()})
            else:
                self.evaluated = inputs["input_ids"].clone()
            return plain(model, inputs, *args, **kwargs)

        trainer.compute_loss = compute_loss

    def prompts(self) -> list[tuple[bytes, tuple[int, ...]]]:
        """The bytes and the ids of each prompt, in training order."""
        prompts = []
        for batch in self.batches:
            for ids, mask, labels in zip(
                batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True
            ):
                prompt = ids[(mask == 1) & (labels == -100)].tolist()
                prompts.append((VOCAB.decode_bytes(prompt), tuple(prompt)))
        return prompts


def trained(folder, scheme="uniform", seed=0, workers=0, epochs=2):
    trainer = Trainer(
        model=small_model(VOCAB.size, Shape(1, 16, 2, 1, 16, 256), seed=0),
        args=TrainingArguments(
            output_dir=str(folder), per_device_train_batch_size=8, num_train_epochs=epochs,
            report_to=[], save_strategy="no", disable_tqdm=True, seed=3,
            dataloader_num_workers=workers, dataloader_persistent_workers=workers > 0,
            dataloader_pin_memory=False, remove_unused_columns=False,
        ),
        train_dataset=Rows(),
        eval_dataset=Rows(),
        processing_class=TOKENIZER,
        data_collator=DataCollatorForSeq2Seq(TOKENIZER),
    )  # fmt: skip
    seen = Seen(trainer)
    robustify(trainer, scheme, seed=seed)
    trainer.train()
    trainer.evaluate()
    return seen


def test_epochs_differ_a_seed_repeats_and_workers_change_nothing(tmp_path):
    runs = [trained(tmp_path, workers=w).prompts() for w in (0, 0, 2)]
    assert runs[0] == runs[1] == runs[2]
    first, second = dict(runs[0][: len(TEXTS)]), dict(runs[0][len(TEXTS) :])
    assert first.keys() == second.keys() == {t.encode() for t in TEXTS}
    assert sum(first[t] != second[t] for t in first) > 0.9 * len(TEXTS)
    other = dict(trained(tmp_path, seed=1, epochs=1).prompts())
    assert sum(first[t] != other[t] for t in first) > 0.9 * len(TEXTS)


def test_labels_are_the_canonical_answers_and_evaluation_is_canonical(tmp_path):
    seen = trained(tmp_path, epochs=1)
    answers = sorted(a.tolist() for a in ANSWERS)
    labels = [row[row != -100].tolist() for batch in seen.batches for row in batch["labels"]]
    assert sorted(labels) == answers
    row = Rows()[len(TEXTS) - 1]["input_ids"]
    assert seen.evaluated[-1][: len(row)].tolist() == row


@pytest.mark.parametrize("form", ["torch", "numpy"])
def test_rows_of_arrays_are_rows_of_lists(tmp_path, form):
    rows: Any = Dataset.from_list([{**Rows()[i], "text": TEXTS[i]} for i in range(len(TEXTS))])
    batches = []
    for data in (rows, rows.with_format(form)):
        arguments = TrainingArguments(str(tmp_path), report_to=[], dataloader_pin_memory=False)
        trainer = Trainer(
            small_model(VOCAB.size, Shape(1, 16, 2, 1, 16, 256), seed=0), arguments,
            train_dataset=data, processing_class=TOKENIZER,
            data_collator=DataCollatorForSeq2Seq(TOKENIZER),
        )  # fmt: skip
        robustify(trainer, "uniform", seed=0)
        batches.append(next(iter(trainer.get_train_dataloader())))
        # The Trainer drops the column of text, as before.
        assert len(trainer.predict(rows).predictions) == len(TEXTS)
    assert all(torch.equal(batches[0][name], batches[1][name]) for name in batches[0])


def test_one_label_for_a_row_stays():
    ids = VOCAB.encode(TEXTS[0]).tolist()
    (row,) = Perturb(rt.sampler("uniform-k(k=2)", VOCAB), seed=0)([{"input_ids": ids, "labels": 1}])
    assert row["input_ids"] != ids
    assert row["labels"] == 1


def test_masks_move_with_the_splits():
    ids = VOCAB.encode(TEXTS[0])
    mask = [0] * 5 + [1] * (len(ids) - 5)
    row = {"input_ids": ids.tolist(), "completion_mask": mask, "name": "x"}
    perturb = Perturb(rt.sampler("uniform", VOCAB), seed=0)
    moved = perturb([row])[0]
    new = np.asarray(moved["input_ids"])
    marked = np.asarray(moved["completion_mask"], dtype=bool)
    assert new[marked].tolist() == ids[5:].tolist()
    assert VOCAB.decode_bytes(new[~marked]) == VOCAB.decode_bytes(ids[:5])
    assert len(new) > len(ids)
    assert moved["name"] == "x"
    labelled = {"input_ids": ids.tolist(), "labels": ids.tolist()}
    moved = Perturb(rt.sampler("uniform", VOCAB), seed=0, where="all")([labelled])[0]
    assert moved["labels"] == moved["input_ids"] != ids.tolist()


def test_a_draw_longer_than_allowed_is_cut():
    row = {"input_ids": VOCAB.encode(TEXTS[0]).tolist()}
    length = len(row["input_ids"])
    perturb = Perturb(rt.sampler("uniform", VOCAB), seed=0, max_length=length)
    whole = Perturb(rt.sampler("uniform", VOCAB), seed=0)([row])[0]["input_ids"]
    assert perturb([row])[0]["input_ids"] == whole[:length] != row["input_ids"]
    end = Perturb(rt.sampler("uniform", VOCAB), seed=0, max_length=length, keep_end=True)
    assert end([row])[0]["input_ids"] == whole[-length:]
    assert perturb.counts[0, :3].tolist() == [1, 1, 0]


def test_a_row_that_would_lose_its_answer_stays_canonical_and_is_counted():
    row = Rows()[0]
    perturb = Perturb(rt.sampler("uniform", VOCAB), seed=0, max_length=len(row["input_ids"]) + 1)
    assert perturb([row]) == [row]
    assert perturb.counts[0, :3].tolist() == [1, 0, 1]


def test_the_role_names_of_a_template_stay():
    """Also with where="all", which perturbs what every role says."""
    messages = [{"role": "user", "content": TEXTS[1]}, {"role": "assistant", "content": TEXTS[2]}]
    ids = TOKENIZER.encode(TOKENIZER.apply_chat_template(messages, tokenize=False))
    perturb = Perturb(
        rt.sampler("uniform", VOCAB), seed=0, where="all",
        headers=template_headers(TOKENIZER, VOCAB),
    )  # fmt: skip
    new = perturb([{"input_ids": ids}])[0]["input_ids"]
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
    messages = [
        {"role": "system", "content": TEXTS[0]},
        {"role": "user", "content": TEXTS[1]},
        {"role": "assistant", "content": TEXTS[2]},
        {"role": "user", "content": TEXTS[3]},
        {"role": "assistant", "content": TEXTS[4]},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    ids = np.asarray(tokenizer.encode(text, add_special_tokens=False))
    turns = user_turns(tokenizer, vocab)
    assert vocab.decode(ids[turns(ids)]) == TEXTS[1] + TEXTS[3]
    perturb = Perturb(rt.sampler("uniform", vocab), seed=0, where="user", turns=turns)
    new = np.asarray(perturb([{"input_ids": ids.tolist()}])[0]["input_ids"])
    assert vocab.decode_bytes(new) == vocab.decode_bytes(ids)
    assert len(new) > len(ids)
    assert new[~turns(new)].tolist() == ids[~turns(ids)].tolist()


def test_a_header_without_a_space_is_kept_where_the_encoder_adds_spaces():
    vocab = metaspace(prefix=True)
    template = "{% for m in messages %}<s>{{ m['role'] }}:{{ m['content'] }}</s>{% endfor %}"
    chat: Any = PreTrainedTokenizerFast(tokenizer_object=vocab.data.source, chat_template=template)
    messages = [{"role": "user", "content": "the"}, {"role": "assistant", "content": "rest"}]
    text = chat.apply_chat_template(messages, tokenize=False)
    ids = np.asarray(chat.encode(text, add_special_tokens=False))
    assert vocab.decode(ids[user_turns(chat, vocab)(ids)]) == "the"


def test_user_turns_that_no_special_token_ends_are_refused():
    """As those of Llama 2, whose answers would be perturbed, too."""
    template = (
        "{% for m in messages %}{% if m['role'] == 'user' %}<|start|>[INST] {{ m['content'] }} "
        "[/INST]{% else %} {{ m['content'] }}<|end|>{% endif %}{% endfor %}"
    )
    chat = chat_tokenizer(template, ["<|start|>", "<|end|>"])
    with pytest.raises(RobustokError, match="marks no user turns"):
        user_turns(chat, rt.Vocabulary.load(chat))


def test_bad_input_is_one_line():
    row = {"input_ids": [300, 301], "labels": [300, 301]}
    perturb = Perturb(rt.sampler("uniform", VOCAB), seed=0)
    with pytest.raises(RobustokError, match="nothing may be perturbed"):
        perturb([row])
    bare = SimpleNamespace(processing_class=None, args=None, get_train_dataloader=None)
    with pytest.raises(RobustokError, match="no tokenizer"):
        robustify(bare, "uniform", seed=0)
    bare.processing_class = TOKENIZER
    with pytest.raises(RobustokError, match="did you mean 'user'"):
        robustify(bare, "uniform", seed=0, where="usr")
    plain = chat_tokenizer("{% for m in messages %}{{ m['content'] }}{% endfor %}", [])
    with pytest.raises(RobustokError, match="marks no user turns"):
        user_turns(plain, rt.Vocabulary.load(plain))
    plain.chat_template = None
    with pytest.raises(RobustokError, match="no chat template"):
        user_turns(plain, rt.Vocabulary.load(plain))


def plain_trainer(folder, rows, **settings) -> Trainer:
    settings = {"per_device_train_batch_size": 4, "num_train_epochs": 1,
                "disable_tqdm": True, **settings}  # fmt: skip
    return Trainer(
        model=small_model(VOCAB.size, Shape(1, 16, 2, 1, 16, 64), seed=0),
        args=TrainingArguments(
            output_dir=str(folder), report_to=[], save_strategy="no",
            dataloader_pin_memory=False, **settings,
        ),
        train_dataset=rows,
        processing_class=None,
    )  # fmt: skip


def test_blocks_of_text_are_all_perturbed(tmp_path, capsys, caplog):
    """Rows of one length, as group_texts of the examples of transformers makes them."""
    ids = np.concatenate(list(VOCAB.encode_batch(TEXTS)))
    blocks = [ids[i : i + 32].tolist() for i in range(0, len(ids) - 31, 32)]
    rows = [{"input_ids": block, "labels": block} for block in blocks]
    trainer = plain_trainer(tmp_path, rows)
    robustify(trainer, "uniform", seed=0, where="all", tokenizer=TOKENIZER, max_length=32)
    trainer.train()
    printed = capsys.readouterr().out + caplog.text
    assert f"{len(rows)} of {len(rows)} rows perturbed in epoch 1" in printed


def test_rows_are_padded_where_the_collator_does_not(tmp_path):
    rows = [{k: v for k, v in Rows()[i].items() if k != "attention_mask"} for i in range(8)]
    trainer = plain_trainer(tmp_path, rows)
    robustify(trainer, "uniform", seed=0, tokenizer=TOKENIZER)
    batch = next(iter(trainer.get_train_dataloader()))
    assert batch["input_ids"].shape == batch["labels"].shape == batch["attention_mask"].shape
    assert (batch["labels"][batch["attention_mask"] == 0] == -100).all()
    trainer.train()


def test_workers_are_counted_together(tmp_path, capsys, caplog):
    trained(tmp_path, workers=2, epochs=1)
    printed = capsys.readouterr().out + caplog.text
    assert f"of {len(TEXTS)} rows perturbed in epoch 1" in printed


@pytest.mark.parametrize("bar", [True, False])
def test_what_an_epoch_did_is_printed_with_the_losses(tmp_path, capsys, bar):
    trainer = plain_trainer(tmp_path, Rows(), disable_tqdm=not bar, logging_steps=1)
    robustify(trainer, "characters", seed=0, tokenizer=TOKENIZER)
    trainer.train()
    lines = capsys.readouterr().out.splitlines()
    said = [i for i, line in enumerate(lines) if "rows perturbed in epoch 1 by characters" in line]
    losses = [i for i, line in enumerate(lines) if "'loss'" in line]
    assert len(said) == 1 and losses and losses[0] < said[0]


def test_robustify_twice_is_refused(tmp_path):
    trainer = plain_trainer(tmp_path, [{"input_ids": [300, 301], "labels": [-100, 301]}])
    robustify(trainer, "uniform", seed=0, tokenizer=TOKENIZER)
    with pytest.raises(RobustokError, match="robustified already"):
        robustify(trainer, "uniform", seed=0, tokenizer=TOKENIZER)


CHATS = [
    {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": "yes"}]}
    for text in TEXTS
]


def sft_trainer(folder, rows, **settings) -> Any:
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    tokenizer = chat_tokenizer(CHATML, ["<|im_start|>", "<|im_end|>"])
    tokenizer.eos_token = "<|im_end|>"
    return trl.SFTTrainer(
        model=small_model(VOCAB.size, Shape(1, 16, 2, 1, 16, 256), seed=0),
        args=trl.SFTConfig(
            output_dir=str(folder), per_device_train_batch_size=8, num_train_epochs=1, bf16=False,
            report_to=[], save_strategy="no", disable_tqdm=True, dataloader_pin_memory=False,
            **settings,
        ),
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=tokenizer,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore")
def test_rows_cut_by_trl_are_perturbed(tmp_path, capsys, caplog):
    trainer = sft_trainer(tmp_path, [{"text": text} for text in TEXTS], max_length=12)
    robustify(trainer, "uniform", seed=0, where="all")
    trainer.train()
    printed = capsys.readouterr().out + caplog.text
    assert f"{len(TEXTS)} of {len(TEXTS)} rows perturbed in epoch 1" in printed


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("where", ["user", "unlabeled"])
def test_a_loss_on_the_questions_names_the_option_of_trl(tmp_path, where):
    trainer = sft_trainer(tmp_path, CHATS)
    robustify(trainer, "uniform", seed=0, where=where)
    with pytest.raises(RobustokError, match="assistant_only_loss=True"):
        trainer.train()
