"""Fine-tuning: what it learns and leaves, its settings, and what makes a step fast."""

import json
import logging
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from tests.training.conftest import (
    ARCHITECTURES,
    ITEMS,
    PLAN,
    VOCAB,
    architecture,
    data,
    stopped,
    tiny,
    tune,
)
from transformers import TrainerCallback, TrainingArguments

import robustok as rt
from robustok.errors import RobustokError
from robustok.models import add_lora, load_model
from robustok.models.load import model_fingerprint
from robustok.tasks import Item, read_questions
from robustok.tasks.item import Pair
from robustok.tokenizer.vocabulary import end_of_text
from robustok.training.recipe import step_folder
from robustok.training.run import dropout_of, fast_steps


def test_training_lowers_the_loss_and_leaves_a_model_that_loads(tmp_path):
    model, seen = tiny(), []
    before = torch.random.get_rng_state(), repr(np.random.get_state())  # noqa: NPY002
    done = tune(tmp_path, model, progress=lambda at, total: seen.append((at, total)))
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert before[1] == repr(np.random.get_state())  # noqa: NPY002
    assert [step for step, _ in done.losses] == [10, 20, 30]
    assert done.losses[-1][1] < 0.8 * done.losses[0][1]
    assert seen[0] == (0, 30)
    assert seen[-1] == (30, 30)
    assert done.tokens > 30 * 16 * 20
    files = {p.name for p in tmp_path.iterdir()}
    assert files >= {"config.json", "model.safetensors", "training.json"}
    assert "training_args.bin" not in files
    ids = torch.tensor([[5, 6, 7]])
    with torch.inference_mode():
        np.testing.assert_allclose(load_model(tmp_path)(ids).logits, model.eval()(ids).logits)
    # As in a notebook, where the cell is run once more with the model that it trained or loaded.
    other = tiny()
    for same in (other, model, other):
        assert tune(tmp_path, same) == done
    with pytest.raises(RobustokError, match="another folder"):
        tune(tmp_path, seed=1)
    with pytest.raises(RobustokError, match="of other initial weights"):
        tune(tmp_path, tiny(seed=1))


def test_the_last_step_has_a_loss(tmp_path):
    assert [step for step, _ in tune(tmp_path / "short", steps=3).losses] == [3]
    assert [step for step, _ in tune(tmp_path / "longer", steps=12).losses] == [10, 12]


def test_the_record_names_the_base_model_of_the_hub_alone(tmp_path):
    (tmp_path / "base").mkdir()
    for name, recorded in (("org/base", "org/base"), (str(tmp_path / "base"), "")):
        model, out = tiny(), tmp_path / name.replace("/", "-")
        model.config.name_or_path = name
        tune(out, model, steps=1)
        assert json.loads((out / "training.json").read_text())["base_model"] == recorded


def test_prompts_with_answers_are_the_same_training(tmp_path, straight):
    path = tmp_path / "pairs.jsonl"
    rows = [{"prompt": i.question, "answer": i.answer} for i in ITEMS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = read_questions(path)
    assert pairs[0].key == "pairs-1"
    plain = data(items=pairs, end="none")
    assert plain[7]["input_ids"].tolist() == data()[7]["input_ids"].tolist()
    assert tune(straight[1], items=pairs, end="none") == straight[0]  # found finished
    path.write_text('{"prompt": "x"}\n')
    with pytest.raises(RobustokError, match=r"pairs\.jsonl:1 has no text 'answer'"):
        read_questions(path)


def test_a_loss_that_is_not_a_number_stops_the_run(tmp_path):
    model = tiny()
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(RobustokError, match="the loss is nan at step 10"):
        tune(tmp_path, model)


def test_a_step_of_dropped_rows_changes_no_weight_to_nan(tmp_path):
    options = {"overflow": "drop", "steps": 20, "batch_size": 1, "learning_rate": 1e-3}
    done = tune(tmp_path, tiny(max_length=40), **options)
    assert 0 < done.overflowed < 20
    assert all(np.isfinite(loss) for _, loss in done.losses)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"warmup_steps": 99}, "warmup_steps is 99: it must be from 0 to the steps, "),
        ({"weight_decay": -1.0}, "weight_decay is -1.0"),
        ({"gradient_accumulation_steps": 3}, "not a multiple of 3 gradient accumulation steps"),
        ({"precision": "float16"}, "unknown precision"),
        ({"dropout": 1}, "dropout is 1"),
        ({"epochs": 3}, "epochs"),
        ({"pack": 1}, "pack is 1"),
        ({"pack": 257}, "pack is 257"),
        ({"overflow": "lef"}, "did you mean 'left'"),
        ({"fixed_draws": 0}, "at least 1"),
        ({"sampler": "uniform"}, "'uniform' is no sampler: make one"),
        ({"items": [Item("k", "q", (" " + "z" * 300, " b"), 0)]}, "the answer of"),
    ],
)
def test_a_wrong_setting_is_one_line(tmp_path, change, message):
    with pytest.raises(RobustokError, match=message):
        tune(tmp_path, **change)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["opt", "bloom"])
def test_an_architecture_whose_packed_questions_attend_to_each_other_is_refused(tmp_path, kind):
    """OPT takes position_ids, and numbers its positions only; BLOOM takes none."""
    with pytest.raises(RobustokError, match="does not keep packed questions apart"):
        tune(tmp_path, architecture(kind), pack=128)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["bart", "roberta", "rwkv"])
def test_an_architecture_whose_loss_in_a_batch_is_another_one_is_refused(tmp_path, kind):
    """BART predicts each id from itself, RoBERTa numbers positions from 2, RWKV reads padding."""
    with pytest.raises(RobustokError, match="would learn something else"):
        tune(tmp_path, architecture(kind))
    assert not list(tmp_path.iterdir())


def test_training_on_packed_rows_learns_and_is_a_run_of_its_own(tmp_path):
    done = tune(tmp_path, pack=128)
    assert done.losses[-1][1] < 0.8 * done.losses[0][1]
    assert done.tokens == PLAN["steps"] * PLAN["batch_size"] * 128
    with pytest.raises(RobustokError, match="pack = 128, not None"):
        tune(tmp_path)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="eager attention is for processors")
@pytest.mark.parametrize("lora", [False, True])
def test_bfloat16_on_a_processor_trains_with_eager_attention(lora: bool) -> None:
    model: Any = add_lora(tiny(), seed=0) if lora else tiny()
    config = model.config
    for precision, length, expected in (
        ("bfloat16", 64, "eager"), ("float32", 64, "sdpa"), ("bfloat16", 4096, "sdpa"),
    ):  # fmt: skip
        with fast_steps(model, precision, length) as attention:
            assert attention == config._attn_implementation == expected
        assert config._attn_implementation == "sdpa"


def test_the_output_layer_reads_contiguous_states_and_the_loss_stays() -> None:
    model, ids = tiny().eval(), torch.arange(24).reshape(2, 12)
    arguments = {"input_ids": ids, "labels": ids[:, -3:], "logits_to_keep": 3}
    contiguous, head = [], model.get_output_embeddings()
    plain = head.forward

    def forward(states: Any) -> Any:
        contiguous.append(states.is_contiguous())
        return plain(states)

    head.forward = forward
    before = model(**arguments).loss
    with fast_steps(model, "float32", 12):
        inside = model(**arguments).loss
    model(**arguments)
    assert contiguous == [False, True, False]
    assert torch.equal(before, inside)


def test_the_precision_is_recorded_and_kept_when_the_run_continues(tmp_path, monkeypatch) -> None:
    stopped(tmp_path, 15)
    identity = json.loads((tmp_path / "training.json").read_text())["identity"]
    assert identity["precision"] == "float32"
    # Another machine, which would choose bfloat16.
    monkeypatch.setattr("robustok.training.run.resolve_precision", lambda *a, **k: "bfloat16")
    assert tune(tmp_path).precision == "float32"
    other = tune(tmp_path / "b")
    assert other.precision == "bfloat16"
    assert other.losses[-1][1] < other.losses[0][1]


def test_models_on_the_way_are_kept_and_change_nothing(tmp_path, straight) -> None:
    done = tune(tmp_path / "15", keep_every=15)
    assert done.losses == straight[0].losses
    folders = [step_folder(tmp_path / "15", step) for step in (15, 30)]
    assert sorted((tmp_path / "15" / "steps").iterdir()) == folders
    kept = [step_folder(tmp_path / "c", 15) / "model.safetensors", tmp_path / "s/model.safetensors"]
    tune(tmp_path / "s", steps=15, min_lr_ratio=1.0)
    tune(tmp_path / "c", min_lr_ratio=1.0, keep_every=15)
    assert kept[0].read_bytes() == kept[1].read_bytes()


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_dropout_is_on_in_training_only_and_gone_afterwards(kind):
    model, ids = architecture(kind).train(), torch.arange(40)[None]

    def same() -> bool:
        with torch.no_grad():
            return torch.equal(model(ids).logits, model(ids).logits)

    with dropout_of(model, 0.0):
        assert same()
    with dropout_of(model, 0.1):
        assert not same()
        model.eval()
        assert same()
        model.train()
    with dropout_of(model, 0.0):
        assert same()
    before = model.eval()(ids).logits
    with dropout_of(model, 0.5):
        assert torch.equal(model(ids).logits, before)


def test_dropout_of_a_recipe_changes_the_training(tmp_path, straight):
    losses = [tune(tmp_path / str(share), dropout=share).losses for share in (0.0, 0.1)]
    assert straight[0].losses == losses[0] != losses[1]


def test_weights_of_bfloat16_are_trained_in_float32(tmp_path, caplog) -> None:
    low = tiny().bfloat16()
    with caplog.at_level(logging.INFO, "robustok"):
        tune(tmp_path, low, steps=10)
    assert "weights of bfloat16 are trained in float32" in caplog.text
    assert low.dtype == torch.float32
    straight = tune(tmp_path / "b", tiny().bfloat16().float(), steps=10)
    assert tune(tmp_path, tiny().bfloat16(), steps=10).losses == straight.losses


def test_a_model_that_an_interrupted_run_has_changed_is_refused_without_a_checkpoint(
    tmp_path, straight
) -> None:
    model = tiny()
    stopped(tmp_path, 8, model=model)
    with pytest.raises(RobustokError, match="no checkpoint to continue from: load the model again"):
        tune(tmp_path, model)
    model = tiny()
    stopped(tmp_path, 17, model=model)
    assert tune(tmp_path, model).losses == straight[0].losses  # from the checkpoint of step 10


def test_a_training_without_a_row_that_fits_is_refused(tmp_path) -> None:
    with pytest.raises(RobustokError, match="no row of the steps before 11 fits"):
        tune(tmp_path, tiny(max_length=6), overflow="drop")


def test_the_cache_of_the_model_is_as_before(tmp_path) -> None:
    model = tiny()
    model.config.use_cache = True
    tune(tmp_path, model, steps=1)
    assert model.config.use_cache
    assert load_model(tmp_path).config.use_cache


def test_several_gpus_of_one_process_are_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(TrainingArguments, "n_gpu", 2)
    with pytest.raises(RobustokError, match="torchrun --nproc_per_node 2"):
        tune(tmp_path)


@pytest.mark.parametrize("ids", [[10**6], [-3]])
def test_a_prefix_outside_the_vocabulary_is_one_line(tmp_path, ids) -> None:
    with pytest.raises(RobustokError, match="is not in the vocabulary"):
        tune(tmp_path, prefix=ids)


def test_accumulation_changes_no_loss_where_rows_do_not_divide_by_the_batch(tmp_path) -> None:
    moving = rt.schedule("stochastok(alpha=0->2)", VOCAB)
    options = {"sampler": moving, "items": ITEMS[:21], "steps": 10}
    whole = tune(tmp_path / "a", **options)
    parts = tune(tmp_path / "b", **options, gradient_accumulation_steps=4)
    assert parts.tokens == whole.tokens
    assert dict(parts.losses) == pytest.approx(dict(whole.losses), rel=1e-4)


def no_pickles(folder: Path) -> bool:
    return not [
        path for path in folder.rglob("*") if path.suffix in (".pt", ".pth", ".bin", ".pkl")
    ]


def test_a_finished_training_keeps_no_pickle(straight):
    _, out = straight
    assert no_pickles(out)
    assert not (out / "checkpoints").exists()


def test_a_finished_training_called_again_says_so(straight, caplog):
    done, out = straight
    with caplog.at_level("WARNING"):
        assert tune(out) == done
    (record,) = caplog.records
    assert record.getMessage() == f"{out} holds this training, finished: nothing is trained"


def test_the_output_folder_is_new_empty_or_of_this_training(tmp_path):
    base = tmp_path / "base"
    tiny().save_pretrained(base)
    before = (base / "model.safetensors").read_bytes()
    for out in (base, base / "inside" / "deeper"):
        with pytest.raises(RobustokError, match=r"is the input .*, or inside of it") as error:
            tune(out, load_model(str(base), dtype="float32"))
        assert "\n" not in str(error.value)
    (tmp_path / "notes" / "of").mkdir(parents=True)
    with pytest.raises(RobustokError, match=r"holds other files \(of\)"):
        tune(tmp_path / "notes")
    assert (base / "model.safetensors").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"base", "notes"}
    (tmp_path / "empty").mkdir()
    assert tune(tmp_path / "empty", steps=1).steps == 1


def test_a_base_model_that_was_edited_is_another_one(tmp_path):
    """In a single number, which no sample of the weights holds."""
    tune(tmp_path, steps=1)
    edited = tiny()
    with torch.no_grad():
        edited.model.layers[1].mlp.down_proj.weight[3, 5] += 0.01
    with pytest.raises(RobustokError, match="other initial weights"):
        tune(tmp_path, edited, steps=1)
    assert model_fingerprint(tiny().double()) == model_fingerprint(tiny())


PAIRS = [Pair(f"p{i}", f"Name the animal {i}:", " cat ok") for i in range(16)]
END = end_of_text(VOCAB)


def ends(items: Any, **options: Any) -> set[int]:
    rows = data("canonical", items, **options)
    return {int(rows[i]["input_ids"][-1]) for i in range(len(items))}


def test_the_answers_of_pairs_end_and_those_with_choices_do_not(tmp_path):
    assert ends(PAIRS) == {END} == ends(ITEMS, end=END) == ends(ITEMS, end="<|endoftext|>")
    assert END not in ends(ITEMS) | ends(PAIRS, end="none")
    row = data("canonical", PAIRS)[0]
    assert (
        row["answer"]
        == len(data("canonical", PAIRS, end="none")[0]["input_ids"])
        - len(VOCAB.encode("Name the animal 0:"))
        + 1
    )  # the end token is in the loss
    with pytest.raises(RobustokError, match="no special token '<end>'"):
        data(items=PAIRS, end="<end>")
    tune(tmp_path, items=PAIRS, steps=1)
    assert json.loads((tmp_path / "training.json").read_text())["identity"]["end"] == END


def test_a_model_trained_on_pairs_ends_its_answers(tmp_path):
    model = tiny()
    tune(tmp_path, model, items=PAIRS, sampler=rt.sampler("canonical", VOCAB), steps=60)
    prompt = torch.tensor([VOCAB.encode(PAIRS[3].question).tolist()])
    ids = model.generate(prompt, max_new_tokens=12, do_sample=False, eos_token_id=END)
    assert VOCAB.decode(ids[0, prompt.shape[1] : -1].numpy()) == " cat ok" and ids[0, -1] == END


def test_a_model_card_says_what_was_trained(straight):
    done, out = straight
    card = (out / "README.md").read_text()
    metadata = yaml.safe_load(card.split("---")[1])
    assert metadata["library_name"] == "transformers" and "robustok" in metadata["tags"]
    assert "drawn by `uniform`: 30 steps" in card and "learning rate 0.01" in card
    assert f"last loss {done.losses[-1][1]:.3f}" in card


def test_losses_are_logged_where_the_user_logs(tmp_path, monkeypatch):
    reported: list[str] = []

    class Reporter(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs) -> None:
            reported.extend(logs or {})

    integrations = "transformers.integrations.integration_utils.INTEGRATION_TO_CALLBACK"
    monkeypatch.setitem(
        resolve_name(integrations.replace(".INTEG", ":INTEG")), "tensorboard", Reporter
    )
    tune(tmp_path / "a", steps=10, report_to="tensorboard")
    assert "loss" in reported
    with pytest.raises(RobustokError, match="report_to nowhere: nowhere is not supported") as error:
        tune(tmp_path / "b", steps=10, report_to="nowhere")
    assert "\n" not in str(error.value)
    tune(tmp_path / "a", steps=10, report_to="none")  # the same run
