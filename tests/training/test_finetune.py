from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import robustok as rt
from robustok.errors import RobustokError
from robustok.models import Shape, load_model, small_model, train_tokenizer
from robustok.samplers import sampler
from robustok.tasks import Item, frequent_words, langgame, read_pairs
from robustok.training import AnswerCollator, PromptDataset, finetune
from robustok.training.finetuning import accepts

WORDS = frequent_words(40)
ITEMS = langgame(WORDS, 240, seed=0, format="short")
VOCAB = rt.Vocabulary.load(train_tokenizer([i.question + i.answer for i in ITEMS], 500))
UNIFORM = sampler("uniform", VOCAB)
PLAN = {"steps": 40, "batch_size": 16, "learning_rate": 1e-2, "save_every": 20}


def tiny(seed=0):
    return small_model(VOCAB.size, Shape(2, 32, 2, 1, 64, 256), seed=seed)


def data(scheme="uniform", items=ITEMS, **options):
    return PromptDataset(VOCAB, items, sampler(scheme, VOCAB), seed=0, **options)


def test_a_row_is_the_perturbed_prompt_and_the_canonical_answer():
    rows = data().__getitems__(range(len(ITEMS)))
    lengths = VOCAB.encode_batch([i.question for i in ITEMS]).lengths
    for row, item in zip(rows, ITEMS, strict=True):
        split = len(row["input_ids"]) - row["answer"]
        assert VOCAB.decode_bytes(row["input_ids"][:split]) == item.question.encode()
        assert row["input_ids"][split:].tolist() == VOCAB.encode(item.answer).tolist()
    assert np.mean([len(r["input_ids"]) for r in rows]) > 1.5 * lengths.mean()


def test_epochs_differ_a_seed_repeats_and_batches_do_not_matter():
    dataset = data()
    first = [r["input_ids"].tolist() for r in dataset.__getitems__([3, 5, 7])]
    assert [dataset[i]["input_ids"].tolist() for i in (3, 5, 7)] == first
    dataset.set_epoch(1)
    assert [dataset[i]["input_ids"].tolist() for i in (3, 5, 7)] != first
    dataset.set_epoch(0)
    assert [dataset[i]["input_ids"].tolist() for i in (3, 5, 7)] == first


SIZES = {"vocab_size": VOCAB.size, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
LAYERS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
WIDE = {**SIZES, **LAYERS, "intermediate_size": 64, "num_key_value_heads": 1}
ARCHITECTURES = {
    "gpt2": {**SIZES, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 256},
    "opt": {**SIZES, **LAYERS, "ffn_dim": 64, "word_embed_proj_dim": 32},
    "bloom": {**SIZES, "hidden_size": 32, "n_layer": 2, "n_head": 2},
    "llama": WIDE,
    "qwen3": {**WIDE, "head_dim": 16},
    "gemma3_text": {**WIDE, "head_dim": 16, "sliding_window": 16},
}


@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_padding_and_short_labels_leave_the_loss_as_it_is(kind, short):
    rows = data().__getitems__([0, 1, 2, 3])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = AutoConfig.for_model(kind, **ARCHITECTURES[kind])
        model = AutoModelForCausalLM.from_config(config).eval()
    short = short and accepts(model, "logits_to_keep")
    collate = AnswerCollator(0, short_labels=short, positions=accepts(model, "position_ids"))
    with torch.inference_mode():
        loss = model(**collate(rows)).loss.item()
        alone, count = 0.0, 0
        for row in rows:
            ids = torch.from_numpy(row["input_ids"])[None]
            log_probs = model(ids).logits[0].log_softmax(-1)
            for position in range(ids.shape[1] - row["answer"], ids.shape[1]):
                alone -= log_probs[position - 1, ids[0, position]].item()
                count += 1
    assert loss == pytest.approx(alone / count, rel=1e-4)


def test_training_lowers_the_loss_and_leaves_a_model_that_loads(tmp_path):
    model, seen = tiny(), []
    before = torch.random.get_rng_state(), repr(np.random.get_state())  # noqa: NPY002
    done = finetune(
        model, VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=tmp_path, **PLAN,
        progress=lambda at, total: seen.append((at, total)),
    )  # fmt: skip
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert before[1] == repr(np.random.get_state())  # noqa: NPY002
    assert [step for step, _ in done.losses] == [10, 20, 30, 40]
    assert done.losses[-1][1] < 0.8 * done.losses[0][1]
    assert seen[0] == (0, 40)
    assert seen[-1] == (40, 40)
    assert done.tokens > 40 * 16 * 20
    files = {p.name for p in tmp_path.iterdir()}
    assert files >= {"config.json", "model.safetensors", "training.json"}
    assert not files & {"checkpoints", "training_args.bin"}
    ids = torch.tensor([[5, 6, 7]])
    with torch.inference_mode():
        np.testing.assert_allclose(load_model(tmp_path)(ids).logits, model.eval()(ids).logits)
    other = tiny()
    again = finetune(other, VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=tmp_path, **PLAN)
    assert again == done
    # As in a notebook, where the cell is run once more with the model that it trained or loaded.
    for same in (model, other):
        assert finetune(same, VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=tmp_path, **PLAN) == done
    with pytest.raises(RobustokError, match="another folder"):
        finetune(tiny(), VOCAB, ITEMS, sampler=UNIFORM, seed=1, out=tmp_path, **PLAN)
    with pytest.raises(RobustokError, match="of other initial weights"):
        finetune(tiny(seed=1), VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=tmp_path, **PLAN)


KILLED = """
    import os, signal
    from tests.training.test_finetune import ITEMS, PLAN, UNIFORM, VOCAB, tiny
    from robustok.training import finetune

    def kill(step, total):
        if step == 27:
            os.kill(os.getpid(), signal.SIGKILL)

    finetune(tiny(), VOCAB, ITEMS, sampler=UNIFORM, seed=0, out={out!r}, progress=kill, **PLAN)
"""


def test_a_killed_run_goes_on_with_the_same_losses(tmp_path, straight):
    expected_run, folder = straight
    out = tmp_path / "killed"
    script = textwrap.dedent(KILLED.format(out=str(out)))
    run = subprocess.run([sys.executable, "-c", script], env=dict(os.environ), check=False)
    assert run.returncode == -signal.SIGKILL
    assert (out / "checkpoints" / "checkpoint-20").is_dir()
    # What a kill in the middle of a save leaves behind.
    (out / "checkpoints" / "checkpoint-30").mkdir()
    model = tiny()
    resumed = finetune(model, VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=out, **PLAN)
    assert resumed.losses == expected_run.losses
    assert resumed.tokens == expected_run.tokens
    ids = torch.tensor([[5, 6, 7]])
    with torch.inference_mode():
        expected = load_model(folder)(ids).logits
        assert torch.equal(model.eval()(ids).logits, expected)


@pytest.mark.parametrize("pack", [None, 40])
def test_what_is_measured_goes_on_after_a_stop(tmp_path, pack):
    def run(name, stop=-1):
        def progress(step, total):
            if step == stop:
                raise KeyboardInterrupt

        return finetune(
            small_model(VOCAB.size, Shape(2, 32, 2, 1, 64, 40), seed=0), VOCAB, ITEMS,
            sampler=UNIFORM, seed=0, out=tmp_path / name, overflow="drop", pack=pack, steps=40,
            batch_size=8, learning_rate=1e-2, save_every=10, progress=progress,
        )  # fmt: skip

    straight = run("straight")
    with pytest.raises(KeyboardInterrupt):
        run("stopped", stop=35)
    state = tmp_path / "stopped" / "checkpoints" / "checkpoint-30" / "trainer_state.json"
    at_30 = json.loads(state.read_text())["log_history"][-1]
    resumed = run("stopped")
    assert resumed.overflowed == straight.overflowed > at_30["overflowed"] > 0
    assert resumed.seconds > at_30["seconds"] > 0


def test_workers_change_nothing(tmp_path):
    runs = [
        finetune(
            tiny(), VOCAB, ITEMS[:64], sampler=UNIFORM, seed=0, out=tmp_path / str(workers),
            steps=10, batch_size=16, learning_rate=3e-3, workers=workers,
        )
        for workers in (0, 2)
    ]  # fmt: skip
    assert runs[0].losses == runs[1].losses
    assert runs[0].overflowed == runs[1].overflowed


def test_a_loss_that_is_not_a_number_stops_the_run(tmp_path):
    model = tiny()
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(RobustokError, match="the loss is nan at step 10"):
        finetune(model, VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=tmp_path, **PLAN)


@pytest.mark.parametrize("room", [4_000, 60_000, 200_000])
def test_a_full_disk_is_one_line_and_the_run_goes_on_afterwards(tmp_path, straight, room):
    resource = pytest.importorskip("resource")

    def run(out):
        return finetune(tiny(), VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=out, **PLAN)

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        with pytest.raises(RobustokError, match="free space and start again") as error:
            run(tmp_path / "a")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "\n" not in str(error.value)
    assert run(tmp_path / "a").losses == straight[0].losses


def test_bfloat16_trains(tmp_path):
    done = finetune(
        tiny(), VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=tmp_path, precision="bfloat16", **PLAN
    )
    assert done.losses[-1][1] < done.losses[0][1]


def test_prompts_with_answers_train_too(tmp_path, straight):
    path = tmp_path / "pairs.jsonl"
    rows = [{"prompt": i.question, "answer": i.answer} for i in ITEMS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = read_pairs(path)
    assert pairs[0].key == "pairs-1"
    done = finetune(tiny(), VOCAB, pairs, sampler=UNIFORM, seed=0, out=tmp_path / "a", **PLAN)
    assert done.losses == straight[0].losses
    path.write_text('{"prompt": "x"}\n')
    with pytest.raises(RobustokError, match=r"pairs\.jsonl:1 has no text 'answer'"):
        read_pairs(path)


def test_overflow_is_explicit():
    max_length = int(VOCAB.encode_batch([i.question for i in ITEMS]).lengths.max()) + 3
    with pytest.raises(RobustokError, match="choose overflow"):
        data(max_length=max_length).__getitems__(range(50))
    with pytest.raises(RobustokError, match="did you mean 'left'"):
        data(max_length=max_length, overflow="lef")
    for policy in ("drop", "left", "canonical"):
        dataset = data(max_length=max_length, overflow=policy)
        rows = dataset.__getitems__(range(50))
        assert any(row["overflowed"] for row in rows)
        assert all(len(r["input_ids"]) <= max_length for r in rows)
        empty = sum(r["answer"] == 0 for r in rows)
        assert (empty > 0) == (policy == "drop")
        labels = AnswerCollator(pad_id=0)(rows)["labels"]
        assert int((labels != -100).any(dim=1).sum()) == 50 - empty


def test_a_step_of_dropped_rows_changes_no_weight_to_nan(tmp_path):
    model = small_model(VOCAB.size, Shape(2, 32, 2, 1, 64, 40), seed=0)
    done = finetune(
        model, VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=tmp_path, overflow="drop", steps=20,
        batch_size=1, learning_rate=1e-3,
    )  # fmt: skip
    assert 0 < done.overflowed < 20
    assert all(np.isfinite(loss) for _, loss in done.losses)


def test_an_answer_longer_than_the_context_is_refused_at_once():
    with pytest.raises(RobustokError, match="the answer of item"):
        data(items=[Item("k", "q", (" " + "z" * 50, " b"), 0)], max_length=8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"warmup_steps": 99}, "warmup_steps is 99: it must be from 0 to the steps, "),
        ({"weight_decay": -1.0}, "weight_decay is -1.0"),
        ({"gradient_accumulation_steps": 3}, "not a multiple of 3 gradient accumulation steps"),
        ({"precision": "float16"}, "unknown precision"),
        ({"epochs": 3}, "epochs"),
    ],
)
def test_a_wrong_setting_is_one_line(tmp_path, change, message):
    with pytest.raises(RobustokError, match=message):
        finetune(tiny(), VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=tmp_path, **{**PLAN, **change})
    assert not list(tmp_path.iterdir())


def test_fixed_draws_come_back_in_turn():
    anew, fixed = data(), data(fixed_draws=2)
    rows = []
    for epoch in range(4):
        anew.set_epoch(epoch)
        fixed.set_epoch(epoch)
        rows.append(fixed[3]["input_ids"].tolist())
        if epoch < 2:
            assert rows[-1] == anew[3]["input_ids"].tolist()
    assert rows[0] == rows[2] != rows[1] == rows[3]
    with pytest.raises(RobustokError, match="at least 1"):
        data(fixed_draws=0)


def test_a_prefix_stands_before_every_prompt_and_counts_as_length():
    plain, begun = data(), data(prefix=[5])
    assert begun[2]["input_ids"].tolist() == [5, *plain[2]["input_ids"].tolist()]
    length = len(plain[2]["input_ids"])
    cut = data(prefix=[5], max_length=length, overflow="left")
    assert len(cut[2]["input_ids"]) == length
    assert cut[2]["input_ids"][0] == 5
