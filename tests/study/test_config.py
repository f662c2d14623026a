"""Bad YAML gets one line with the place and the field; the studies have the paper's settings."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.oracles.scripts import ROOT
from tests.study.conftest import QUICK, TINY, tiny_text

from robustok.errors import RobustokError
from robustok.study import find_study, load_study, plan, studies
from robustok.study.config import study_schema
from robustok.study.measurements import Embeddings
from robustok.study.schema import Study
from robustok.study.sections import TrainingSection
from robustok.training import PRESETS

FOURTH = "    - uniform-k(alpha=1.5)"  # scheme of finetune


def error_of(text: str, scale: str | None = None) -> str:
    with pytest.raises(RobustokError) as caught:
        load_study(text, "a.yaml", scale=scale)
    message = str(caught.value)
    assert "\n" not in message
    return message


def without(text: str, *sections: str) -> str:
    """The YAML of a study without these sections."""
    for section in sections:
        text = re.sub(rf"(?m)^{section}:.*\n(?:[ #].*\n|\n)*", "", text)
    return text


def line_of(text: str, part: str) -> int:
    return next(i for i, line in enumerate(text.splitlines(), 1) if part in line)


@pytest.mark.parametrize(("old", "new", "hints"), [
    ("  batch_size: 64", "  batch_sice: 64", ("pretrain.batch_sice", "did you mean 'batch_size'?")),
    ("  size: 600", "  size: 12", ("tokenizer.size is 12",)),
    ("  size: 600", "  file: t.json", ("tokenizer.file", "did you mean 'name'?")),
    ("  layers: 2", "  path: folder", ("model.path", "did you mean 'name'?")),
    ("3.0e-3", ".nan", ("pretrain.learning_rate",)),
    ("3.0e-3", ".inf", ("pretrain.learning_rate",)),
    ("3.0e-3", "-1", ("pretrain.learning_rate",)),
    ("3.0e-3", "0 #", ("pretrain.learning_rate",)),
    (FOURTH, "    - stochastic", ("finetune.schemes.3", "stochastok")),
    (FOURTH, "    - uniform-k(alpa=1)", ("finetune.schemes.3", "alpha")),
    (FOURTH, "    - uniform-k(alpha=-1)", ("finetune.schemes.3", "alpha")),
    (FOURTH, "    - uniform-k(alpha=nan)", ("finetune.schemes.3", "alpha")),
    ("    - stochastok(alpha=0)", "    - stochastok(alpha=0->1)",
     ("evaluate.eval_schemes.1: stochastok(alpha=0->1) is a schedule: only training",)),
    ("  items: 200", "  items: 2000", ("evaluate.items", "task.test is 500")),
    ("seed: 0", "seed: -1", ("seed is -1: input should be greater than or equal to 0",)),
    ("seed: 0", "seed: 0\nseed: 1", ("seed is already given on line 9",)),
])  # fmt: skip
def test_a_wrong_field_is_named_with_its_line(old: str, new: str, hints: tuple[str, ...]) -> None:
    text = QUICK.replace(old, new, 1)
    message = error_of(text)
    assert message.startswith(f"a.yaml line {line_of(text, new.splitlines()[-1])}: ")
    assert all(hint in message for hint in hints)


@pytest.mark.parametrize(("old", "new", "hint"), [
    ("seed: 0\n", "", "the field seed is missing"),
    ("title: Stochastic", r'title: "\ud800" #', "lone surrogate"),
    ("  size: 600", "  size: 600\n  name: gpt2", "give size, or the name"),
    ("  layers: 2", "  name: gpt2", "give one or the other"),
    ("  layers: 2\n", "", "give layers, or the name of a model that exists"),
    ("  heads: 4", "  heads: 3", "width 128 does not split into 3 heads"),
    ("  layers: 2", "  layers: 2\n  start_token: x", "has no start_token"),
    ("  layers: 2", "  layers: 2\n  label: own", "label and parameters are of a model with a name"),
    ("  layers: 2", "  layers: 2\n  parameters: 5", "label and parameters are of a model with"),
    ("seed: 0", "seed: true", "seed is True: input should be a valid integer"),
    ("  steps: 1500", "  steps: yes", "finetune.steps is True: input should be a valid integer"),
    ("  steps: 1500", "  steps: '1500'", "finetune.steps is '1500': input should be a valid int"),
    ("attacks:", "attacks:\n  - distances: [true]", "attacks.0.distances.0 is True: input should"),
    ("  schemes: [canonical]", "  schemes: [canonical]\n  source: corpus",
     "give files with --corpus and --held-out"),
    ("  schemes: [canonical]", "  schemes: [uniform, uniform]", "uniform is already in the list"),
    ("  warmup_steps: 30", "  warmup_steps: 3000", "finetune: warmup_steps is 3000"),
    ("  batch_size: 64", "  batch_size: 64\n  gradient_accumulation_steps: 3", "a multiple"),
    ("attacks:", "attacks:\n  - items: 50", "attacks.1: adversarial"),
    ("attacks:", "benchmarks: {names: [coppa]}\nattacks:", "did you mean 'copa'"),
    ("attacks:", "few_shot: {examples: 64001, schemes: [canonical]}\nattacks:", "64001 exam"),
    ("attacks:", "paper: {where: a, tables: [{columns: [a, b], measure: embeddings,"
     " rows: [{train_scheme: a, values: [1]}]}]}\nattacks:", "1 values for 2 columns"),
    ("attacks:", "readme: true\nattacks:", "readme: it is for one model that exists"),
    ("attacks:", "scales: [a]\nattacks:", "scales holds names"),
])  # fmt: skip
def test_what_cannot_be_is_one_line(old: str, new: str, hint: str) -> None:
    assert hint in error_of(QUICK.replace(old, new, 1))


NAMED = {"model": {"name": "m", "chat": True}, "tokenizer": None, "pretrain": None}
BOUND = {"model": {"name": "m"} | dict.fromkeys(TINY["model"])} | dict.fromkeys(
    ("task", "tokenizer", "pretrain", "finetune", "evaluate")
)
STRENGTH = {"strength": {"splits": [0.25, 0.5]}}


@pytest.mark.parametrize(("sections", "hint"), [
    ({"attacks": [{"suite": True}]}, "no field attacks.0.suite"),
    (BOUND | {"bound": {"draws": 999}}, "bound.draws: nothing is drawn without questions"),
    (BOUND | {"bound": {"attack": False}}, "bound.attack: nothing is drawn without questions"),
    ({"attacks": [{"distances": [0]}]}, "1 or more"),
    ({"attacks": [{}, {"search": "gredy"}]}, "attacks.1: unknown search 'gredy': did you mean"),
    ({"attacks": [{"start": "stochastok(splits=1)"}]}, "stochastok has no parameter 'splits'"),
    ({"questions": {"text": "a", "choices": ["b"]}}, "choose from items"),
    ({"other_models": [{"name": "m"}]}, "these are models that exist"),
    ({"model": {"chat": True}}, "no chat template"),
    (NAMED | {"model": NAMED["model"] | dict.fromkeys(TINY["model"])}, "finetune"),
    (STRENGTH | {"finetune": {"schemes": ["stochastok", "stochastok(alpha=1)"]}},
     "finetune.schemes.1: stochastok(alpha=1) at the given strength is"),
    (STRENGTH | {"finetune": {"schemes": ["stochastok(alpha=0->1)"]}},
     "a schedule, whose strength changes"),
    (STRENGTH | {"finetune": {"schemes": ["stochastok(splits=0.3)"]}},
     "measured splits stand in a study's section strength"),
    ({"strength": {"splits": [0]}}, "strength.splits.0 is 0"),
    ({"strength": {"splits": []}}, "strength.splits"),
])  # fmt: skip
def test_sections_that_cannot_be_are_one_line(sections: dict[str, Any], hint: str) -> None:
    assert hint in error_of(tiny_text(**sections))


@pytest.mark.parametrize(("old", "new"), [
    ("  steps: 1500", "  steps: 150000\n  keep_every: 1"),
    ("seed: 0", f"seed: 0\nrepeats: {'9' * 30}"),
    (QUICK, f"name: quick\ntitle: a\nseed: 0\nmodel: {{name: a}}\nembeddings: {{}}\n"
     f"repeats: {'9' * 30}"),
])  # fmt: skip
def test_a_plan_without_end_is_one_line(old: str, new: str) -> None:
    with pytest.raises(RobustokError, match="'quick' has more than 20,000 cells: lower its"):
        plan(load_study(QUICK.replace(old, new, 1), "a"))


def test_sections_that_need_others_say_so() -> None:
    named = QUICK.replace(
        QUICK[QUICK.index("  layers") : QUICK.index("\npretrain:")], "  name: a\n"
    )
    assert "leave it or model.name out" in error_of(named)
    assert "has a tokenizer" in error_of(without(named, "pretrain"))
    assert "need a pretrain section" in error_of(without(QUICK, "pretrain"))
    assert "needs a tokenizer section" in error_of(without(QUICK, "tokenizer"))
    assert "there is no task to fine-tune on" in error_of(without(QUICK, "task"))
    untrained = without(QUICK, "task", "finetune", "attacks")
    assert "there are no questions to evaluate on" in error_of(untrained)
    alone = without(untrained, "evaluate")
    assert "there is no task to pre-train on" in error_of(alone)
    assert "there are no schemes to set" in error_of(alone + "strength: {splits: [1]}\n")
    text = alone.replace("pretrain:", "corpus: {train: [a.txt]}\npretrain:\n  source: corpus")
    assert "nothing is measured: give evaluate, attacks" in error_of(text)
    assert load_study(text + "embeddings: {}\n", "a").corpus
    assert "give a file with --held-out" in error_of(text + "perplexity: {}\n")


def test_specs_and_numbers_are_normalized() -> None:
    for old, new in (("stochastok(alpha=2)", "stochastok( alpha = 2.0 )"), ("3.0e-3", "3e-3")):
        assert load_study(QUICK.replace(old, new), "a") == load_study(QUICK, "a")
    for spec, normal in (  # without a tokenizer
        ("unigram( temperature = 2.0 )", "unigram(temperature=2)"),
        ("stochastok(alpha=0 -> 1.0)", "stochastok(alpha=0->1)"),
    ):
        study = load_study(QUICK.replace(FOURTH, f"    - {spec}"), "a")
        assert study.finetune and study.finetune.schemes[3] == normal


@pytest.mark.parametrize(("text", "reason"), [
    ("a: &a [*a]", "a value that cannot be read"),
    ("[" * 3_000, "nested too deeply"),
    ("a: 2001-99-45", "a value that cannot be read"),
    ("a: " + "9" * 5000, "a value that cannot be read"),
    ("? [a]\n: b", "line 1: a field's name must be plain text"),
    *((text, "") for text in ("", "- a\n- b", "just words", "a: [1", "\t")),
])  # fmt: skip
def test_what_is_no_study_at_all_is_one_line(text: str, reason: str) -> None:
    message = error_of(text)
    assert reason in message and message.startswith("a.yaml")


@pytest.mark.parametrize(("name", "message"), [
    ("quik", "did you mean 'quick'"),
    ("nowhere.yaml", "nowhere.yaml cannot be read"),
    ("latin.yaml", "latin.yaml is not UTF-8 text"),
])  # fmt: skip
def test_a_name_without_a_study_is_one_line(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("latin.yaml").write_bytes(b"title: na\xefve")
    with pytest.raises(RobustokError, match=message):
        find_study(name)


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
    wrong = SCALED.replace("steps: 70", "steps: 0")
    error = f"line {line_of(wrong, 'steps: 0')}: finetune.steps is 0"
    assert error in error_of(wrong, scale="small")
    assert "no scale 'smal': did you mean 'small'" in error_of(SCALED, scale="smal")
    assert load_study(SCALED, "a", scale="full") == full  # as `study list` names it
    assert "no scale 'small': choose from full" in error_of(QUICK, scale="small")
    with pytest.raises(RobustokError, match="has no section 'benchmarks': leave --benchmarks out"):
        load_study(QUICK, "a", benchmarks="folder")


def test_a_preset_has_the_fields_that_a_training_leaves_out() -> None:
    text = (
        "name: a\ntitle: A\nseed: 0\nevaluate: {eval_schemes: [uniform], items: 9, draws: 1}\n"
        "task: {kind: langgame, train: 64, test: 64}\nmodel: {name: demo-model}\n"
        "finetune: {preset: paper-finetune, schemes: [uniform], batch_size: 16}\n"
        "scales: {small: {finetune: {steps: 20, warmup_steps: 0}}}\n"
    )
    for scale, steps, warmup in ((None, 1500, 150), ("small", 20, 0)):
        section = load_study(text, "a.yaml", scale=scale).finetune
        assert section
        assert (section.batch_size, section.learning_rate) == (16, 1e-4)
        assert (section.steps, section.warmup_steps) == (steps, warmup)
    wrong = error_of(text.replace("paper-finetune", "paper-finetunes"))
    assert wrong == (
        "a.yaml line 7: finetune.preset is 'paper-finetunes': did you mean 'paper-finetune'?"
    )


def test_a_null_that_is_a_value_stays_in_a_replaced_section() -> None:
    text = """
name: own
title: Own
seed: 0
model: {name: smollm2-135m}
corpus: {held_out: a.txt, measured: %s}
perplexity: {eval_schemes: [canonical]}
scales: {all: {corpus: {measured: null}}, other: {corpus: {sample_by: document}}}
"""
    for written, scale, held_out in (
        ("null", None, "b.txt"), ("null", "other", None), ("60", "all", None)
    ):  # fmt: skip
        study = load_study(text % written, "own.yaml", scale=scale, held_out=held_out)
        assert study.corpus and study.corpus.measured is None


@pytest.mark.parametrize("name", sorted(set(studies()) - {"model-card", "toksuite"}))
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
            assert {row.train_scheme for row in table.rows} <= trained


@pytest.mark.parametrize("name", studies())
def test_every_study_is_one_of_the_schema(name: str) -> None:
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    schema = study_schema()
    validator.check_schema(schema)
    study = yaml.safe_load(studies()[name])
    for items in ("a.jsonl", ["a.jsonl"]):
        fields = study | {"questions": {"items": items}}
        assert not [error.message for error in validator(schema).iter_errors(fields)]
    assert [*validator(schema).iter_errors(study | {"tokenizer": {"file": "t.json"}})]


def test_the_page_of_studies_says_what_each_field_means() -> None:
    page = (ROOT / "docs/reference/study-fields.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    schema = study_schema()
    sections = (schema, *schema["$defs"].values())
    assert len(rows) == sum(len(section["properties"]) for section in sections)
    assert not [row for row in rows if row[-1].strip(" |") == ""]
    assert "| `draws` | integer ≥ 1 | `10` | draws of each question" in page


def test_words_in_a_study_are_those_that_it_measures() -> None:
    (one,) = Embeddings(own_words=("cat", "dog")).variants()
    assert one.own_words == ("cat", "dog")


def test_a_study_imports_own_schemes_from_a_file_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROBUSTOK_IMPORT", "")
    (tmp_path / "own.py").write_text(
        "import robustok as rt\n\n"
        "@rt.register\nclass Own(rt.Characters):\n    name = 'own-of-a-study'\n"
    )
    text = studies()["quick"].replace("- uniform-k(alpha=1)", "- own-of-a-study")
    with pytest.raises(RobustokError, match="unknown scheme 'own-of-a-study'"):
        load_study(text, str(tmp_path / "s.yaml"))
    study = load_study(f"import: own.py\n{text}", str(tmp_path / "s.yaml"))
    assert study.finetune and "own-of-a-study" in study.finetune.schemes


ADAM = {"max_grad_norm": 1.0, "min_lr_ratio": 0.1}
TABLES = {
    "paper-tiny-llm-pretrain": {
        "steps": 30_000, "batch_size": 480, "learning_rate": 6e-4, "warmup_steps": 5_000,
        "weight_decay": 0.1, "dropout": 0.1,
    },
    "paper-tiny-llm-finetune": {
        "steps": 3_000, "batch_size": 480, "learning_rate": 1e-4, "warmup_steps": 500,
        "weight_decay": 0.05, "dropout": 0.1,
    },
    # The paper gives no batch size, and the dropout is that of LoRA.
    "paper-finetune": {
        "steps": 1_500, "learning_rate": 1e-4, "warmup_steps": 150, "weight_decay": 0.01,
        "dropout": None,
    },
}  # fmt: skip
TINY_LLM = {
    "layers": 8, "width": 512, "heads": 16, "kv_heads": 4, "feed_forward": 1320, "max_length": 512,
}  # fmt: skip
OWN = ("quick", "model-card", "schedule-grampa", "toksuite")  # studies of no table
FULL = [find_study(name) for name in studies() if name not in OWN]


@pytest.mark.parametrize("name", TABLES)
def test_a_preset_is_its_table(name: str) -> None:
    preset = PRESETS[name]
    for field, value in (TABLES[name] | ADAM).items():
        assert getattr(preset, field) == value, field


@pytest.mark.parametrize("study", FULL, ids=lambda study: study.name)
def test_a_study_at_full_scale_has_the_settings_of_the_tables(study: Study) -> None:
    tiny = study.model.name is None
    if tiny:
        assert {name: getattr(study.model, name) for name in TINY_LLM} == TINY_LLM
        assert study.model.tied
        assert study.tokenizer and (study.tokenizer.name or "").startswith("openai-community/gpt2@")
    parts: dict[str, TrainingSection | None] = {"paper-tiny-llm-pretrain": study.pretrain}
    parts["paper-tiny-llm-finetune" if tiny else "paper-finetune"] = study.finetune
    for name, part in parts.items():
        for field, value in (TABLES[name] if part else {}).items():
            assert getattr(part, field) == value, (name, field)
        assert part is None or part.min_lr_ratio == ADAM["min_lr_ratio"]
    if study.finetune:
        assert study.task and (study.task.train, study.task.words) == (10_000, 1_000)
        if tiny:  # StochasTok's recipe: 60 x 8 rows of 512 tokens
            assert (study.finetune.pack, study.finetune.fixed_draws) == (512, 10)
            assert study.finetune.gradient_accumulation_steps == 8
        else:
            assert study.finetune.lora
            assert asdict(study.finetune.lora) == {"rank": 8, "alpha": 32, "dropout": 0.05}
    assert study.evaluate is None or (study.evaluate.items or 0) >= 500
    assert study.evaluate is None or study.evaluate.draws == 10
    for attack in study.attacks:
        assert (attack.items, attack.steps, attack.objective) == (500, 10, "probability")
