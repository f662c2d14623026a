"""Bad YAML gets one line: the place, the field and the nearest right name."""

from __future__ import annotations

from pathlib import Path

import pytest

from robustok.errors import RobustokError
from robustok.study import find_study, load_study, studies

QUICK = (Path(__file__).parent / "study.yaml").read_text(encoding="utf-8")


def error_of(text: str) -> str:
    with pytest.raises(RobustokError) as caught:
        load_study(text, "a.yaml")
    message = str(caught.value)
    assert "\n" not in message
    return message


def line_of(text: str, part: str) -> int:
    return next(i for i, line in enumerate(text.splitlines(), 1) if part in line)


def test_every_study_that_comes_along_is_valid() -> None:
    for name in studies():
        assert find_study(name).name == name


def test_an_unknown_field_is_named_with_its_line_and_the_nearest() -> None:
    text = QUICK.replace("  batch_size: 64", "  batch_sice: 64", 1)
    message = error_of(text)
    assert message.startswith(f"a.yaml line {line_of(text, 'batch_sice')}: ")
    assert "pretrain.batch_sice" in message
    assert "did you mean 'batch_size'?" in message


def test_a_wrong_value_is_named_with_its_line() -> None:
    text = QUICK.replace("  size: 600", "  size: 12")
    message = error_of(text)
    assert message.startswith(f"a.yaml line {line_of(text, 'size: 12')}: tokenizer.size is 12")


def test_a_missing_field_is_named() -> None:
    message = error_of(QUICK.replace("seed: 0\n", ""))
    assert "the field seed is missing" in message


def test_a_field_given_twice_is_an_error() -> None:
    assert "already given on line" in error_of(QUICK + "\nseed: 1\n")


@pytest.mark.parametrize("rate", [".nan", ".inf", "-1", "0"])
def test_a_learning_rate_is_positive_and_finite(rate: str) -> None:
    assert "learning_rate" in error_of(QUICK.replace("3.0e-3", rate))


def test_a_lone_surrogate_is_an_error() -> None:
    assert "lone surrogate" in error_of(QUICK.replace("title: Stochastic", r'title: "\ud800" #'))


def test_a_learning_rate_may_be_written_without_a_point() -> None:
    first = load_study(QUICK.replace("3.0e-3", "3e-3"), "a").pretrain
    assert first and first.learning_rate == 0.003


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("stochastic", "stochastok"),
        ("uniform-k(alpa=1)", "alpha"),
        ("uniform-k(alpha=-1)", "alpha"),
        ("uniform-k(alpha=nan)", "alpha"),
    ],
)
def test_a_wrong_scheme_is_an_error_before_anything_runs(wrong: str, hint: str) -> None:
    text = QUICK.replace("    - uniform-k(alpha=1.5)", f"    - {wrong}")
    message = error_of(text)
    assert f"line {line_of(text, '- ' + wrong)}: finetune.schemes.3" in message
    assert hint in message


def test_specs_are_normalized_so_that_equal_ones_are_one() -> None:
    text = QUICK.replace("stochastok(alpha=2)", "stochastok( alpha = 2.0 )")
    assert load_study(text, "a") == load_study(QUICK, "a")


def test_a_scheme_needs_no_tokenizer_to_be_read() -> None:
    text = QUICK.replace("    - uniform-k(alpha=1.5)", "    - unigram( temperature = 2.0 )")
    assert load_study(text, "a").finetune.schemes[3] == "unigram(temperature=2)"  # type: ignore


def test_only_training_takes_a_schedule() -> None:
    text = QUICK.replace("    - uniform-k(alpha=1.5)", "    - stochastok(alpha=0 -> 1.0)")
    assert load_study(text, "a").finetune.schemes[3] == "stochastok(alpha=0->1)"  # type: ignore
    error = error_of(QUICK.replace("    - stochastok(alpha=0)", "    - stochastok(alpha=0->1)"))
    assert "evaluate.eval_schemes.1: stochastok(alpha=0->1) is a schedule: only training" in error


def test_more_questions_than_the_data_set_has_is_an_error() -> None:
    message = error_of(QUICK.replace("  items: 200", "  items: 2000"))
    assert "evaluate.items" in message
    assert "task.test is 500" in message


@pytest.mark.parametrize("text", ["", "- a\n- b", "just words", "a: [1", "\t"])
def test_what_is_no_study_at_all_is_one_line(text: str) -> None:
    assert error_of(text).startswith("a.yaml")


LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 60)
)


@pytest.mark.parametrize(("text", "reason"), [
    (LAUGHS, "more than 20,000 values, aliases counted"),
    (LAUGHS.replace("[", "{k: [").replace("]", "]}"), "more than 20,000 values"),
    ("a: &a [*a]", "line 1: the value contains itself by an alias"),
    ("a: &a {b: [1, *a]}", "contains itself"),
    ("[" * 10_000, "nested too deeply"),
    ("{a: " * 5_000, "nested too deeply"),
    ("a: b\n" * 60_000, "larger than 256 KiB"),
    ("a: 2001-99-45", "a value that cannot be read"),
    ("a: " + "9" * 5000, "a value that cannot be read"),
    ("? [a]\n: b", "line 1: a field's name must be plain text"),
])  # fmt: skip
def test_yaml_that_grows_is_one_line(text: str, reason: str) -> None:
    with pytest.raises(RobustokError, match=reason) as error:
        load_study(text, "bomb.yaml")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("repeats", ["1000000000", "9" * 30])
def test_the_number_of_cells_is_bounded(repeats: str) -> None:
    with pytest.raises(RobustokError, match=r"line \d+: repeats: the study has up to [\d,]+ cells"):
        load_study(f"repeats: {repeats}\n{QUICK}", "a.yaml")


def test_a_file_without_end_is_one_line(tmp_path: Path) -> None:
    link = tmp_path / "zero.yaml"
    link.symlink_to("/dev/zero")
    with pytest.raises(RobustokError, match="larger than 256 KiB"):
        find_study(str(link))


def test_an_unknown_study_names_the_nearest() -> None:
    with pytest.raises(RobustokError, match="did you mean 'quick'"):
        find_study("quik")


def test_a_missing_file_is_one_line() -> None:
    with pytest.raises(RobustokError, match=r"nowhere\.yaml cannot be read"):
        find_study("nowhere.yaml")


SCALED = (
    QUICK
    + """
scales:
  small:
    finetune: {steps: 70, schemes: [canonical]}
    attacks: null
"""
)


def test_a_scale_replaces_single_fields_and_a_null_takes_one_away() -> None:
    full, small = (load_study(SCALED, "a", scale=scale) for scale in (None, "small"))
    assert (full.scale, small.scale) == ("full", "small")
    assert small.finetune and full.finetune
    assert (small.finetune.steps, small.finetune.schemes) == (70, ("canonical",))
    assert small.finetune.batch_size == full.finetune.batch_size
    assert full.attacks and not small.attacks
    assert full == load_study(QUICK, "a")


def test_an_error_in_a_scale_names_its_own_line() -> None:
    text = SCALED.replace("steps: 70", "steps: 0")
    with pytest.raises(RobustokError) as caught:
        load_study(text, "a.yaml", scale="small")
    assert f"line {line_of(text, 'steps: 0')}: finetune.steps is 0" in str(caught.value)


def test_an_unknown_scale_names_the_nearest() -> None:
    with pytest.raises(RobustokError, match="no scale 'smal': did you mean 'small'"):
        load_study(SCALED, "a.yaml", scale="smal")
    with pytest.raises(RobustokError, match="it has none"):
        load_study(QUICK, "a.yaml", scale="small")


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ("  size: 600", "  size: 600\n  name: gpt2", "give size, or the name"),
        ("  layers: 2", "  name: gpt2", "give one or the other"),
        ("  schemes: [canonical]", "  schemes: [canonical]\n  source: corpus", "--corpus FILE"),
        ("  warmup_steps: 30", "  warmup_steps: 3000", "finetune: warmup_steps is 3000"),
        ("  batch_size: 64", "  batch_size: 64\n  gradient_accumulation_steps: 3", "a multiple"),
        ("attacks:", "attacks:\n  - items: 50", "attacks.1: adversarial"),
        ("attacks:", "benchmarks: {names: [coppa]}\nattacks:", "did you mean 'copa'"),
        ("attacks:", "few_shot: {examples: 64001, schemes: [canonical]}\nattacks:", "64001 exam"),
        (
            "attacks:",
            "paper: {where: a, tables: [{columns: [a, b], measure: embeddings,"
            " rows: [{train_scheme: a, values: [1]}]}]}\nattacks:",
            "1 values for 2 columns",
        ),
        ("  steps: 1500", "  steps: 150000\n  keep_every: 1", "cells; at most"),
    ],
)
def test_fields_that_exclude_each_other_are_errors(old: str, new: str, hint: str) -> None:
    assert hint in error_of(QUICK.replace(old, new, 1))


def test_a_model_that_exists_is_not_made() -> None:
    named = QUICK.replace(
        QUICK[QUICK.index("  layers") : QUICK.index("\npretrain:")], "  name: a\n"
    )
    assert "leave it or model.name out" in error_of(named)
    named = named.replace(named[named.index("pretrain:") : named.index("finetune:")], "")
    assert "has a tokenizer" in error_of(named)


def test_pretraining_on_questions_needs_a_task() -> None:
    text = QUICK.replace(QUICK[QUICK.index("task:") : QUICK.index("tokenizer:")], "")
    for section, end in (
        ("finetune:", "evaluate:"),
        ("evaluate:", "attacks:"),
        ("attacks:", "exa"),
    ):
        text = text.replace(text[text.index(section) : text.index(end)], "")
    assert "there is no task to pre-train on" in error_of(text)


@pytest.mark.parametrize("name", sorted(set(studies()) - {"model-card"}))
def test_every_study_has_a_scale_for_two_cores(name: str) -> None:
    full = find_study(name)
    try:
        study = find_study(name, scale="cpu")
    except RobustokError as error:
        assert "this study needs text" in str(error)
        study = find_study(name, scale="cpu", corpus=("train.jsonl",), held_out="held.jsonl")
    assert study.name == full.name == name
    assert study.model.name is None
    if full.paper and full.paper.tables:
        measured = {*(full.evaluate.eval_schemes if full.evaluate else ()), "canonical"}
        measured |= set(full.perplexity.eval_schemes if full.perplexity else ())
        trained = {"canonical"}
        for part in (full.finetune, full.few_shot, full.pretrain):
            trained |= set(part.schemes if part else ())
        for table in (t for t in full.paper.tables if t.measure != "embeddings"):
            assert {q for q in table.columns if "adversarial" not in q} <= measured
            for row in table.rows:
                assert len(row.values) == len(table.columns)
                assert row.train_scheme in trained
