"""Reads a study from YAML: applies a scale, validates it, and reports errors with their line."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from robustok.errors import RobustokError, nearest
from robustok.models import Shape
from robustok.samplers.strength import at_splits
from robustok.study.cells.inputs import added_start_token
from robustok.study.schema import Strict, Study
from robustok.tasks import HUB

FieldPath = tuple[str | int, ...]

MAX_BYTES = 256 << 10  # of a study's YAML
MAX_NODES = 20_000  # of its values, each counted as often as aliases repeat it
MAX_CELLS = 20_000


def studies() -> dict[str, str]:
    """The YAML of every study that comes with robustok, by name.

    >>> list(studies())[:3]
    ['bpe-dropout-cute', 'bpe-dropout-langgame', 'embeddings']
    """
    folder = files("robustok") / "studies"
    if not folder.is_dir():
        # A wheel has them in the package, a checkout in the top folder.
        folder = Path(__file__).parents[3] / "studies"
    entries = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(".yaml")}
    return {
        name.removesuffix(".yaml"): entries[name].read_text(encoding="utf-8")
        for name in sorted(entries)
    }


def scales_of(name: str) -> list[str]:
    """The scales of an included study, besides the full one.

    >>> scales_of("finetuning-table")
    ['cpu', 'small']

    Args:
        name: name of the study.
    """
    return list(yaml.safe_load(studies()[name]).get("scales") or {})


def find_study(name: str, **changes: Any) -> Study:
    """An included study by its name, or the study of a YAML file by its path.

    >>> find_study("quick").task.kind
    'langgame'

    Args:
        name: name of an included study, or path of a YAML file.
        **changes: the keyword arguments of :func:`load_study`, such as ``scale``.

    Raises RobustokError for an unknown name and for invalid YAML.
    """
    if name.endswith((".yaml", ".yml")) or "/" in name:
        path = Path(name)
        try:
            with path.open("rb") as file:  # A device or a pipe may have no end.
                text = file.read(MAX_BYTES + 1).decode(errors="strict")
        except UnicodeDecodeError:
            raise RobustokError(f"{path} is not UTF-8 text") from None
        except OSError as error:
            raise RobustokError(f"the study {path} cannot be read: {error.strerror}") from None
        return load_study(text, str(path), **changes)
    known = studies()
    if name not in known:
        raise RobustokError(f"there is no study '{name}': {nearest(name, known)}")
    return load_study(known[name], f"{name}.yaml", **changes)


def load_study(
    text: str,
    source: str,
    *,
    scale: str | None = None,
    words_file: str | None = None,
    corpus: tuple[str, ...] = (),
    held_out: str | None = None,
    benchmarks: str | None = None,
    repeats: int | None = None,
    model: str | None = None,
) -> Study:
    """Read a study from YAML text.

    >>> from robustok.study import studies
    >>> study = load_study(studies()["teaser"], "teaser.yaml", scale="cpu")
    >>> study.task.words, study.finetune.steps
    (100, 1200)

    Args:
        text: the YAML text.
        source: name of the text in error messages, such as its file name.
        scale: one of the study's `scales`, whose fields replace those of the study, one by one; by
            default none.
        words_file: file of words that replaces the task's.
        corpus: text files that replace the training text of the corpus.
        held_out: text file that replaces the held-out text of the corpus.
        benchmarks: folder that replaces that of the benchmarks.
        repeats: number of seeds, in place of the study's.
        model: folder or hub name that replaces the named model of the study and its tokenizer. Its
            start token is the one that its tokenizer puts before a text, if any.

    Raises RobustokError, one line with the line number, the field and the nearest valid name, and
    for a replacement in a section that the study does not have.
    """
    data, lines = _parsed(text, source)
    scales = {str(name): fields for name, fields in (data.pop("scales", None) or {}).items()}
    if scale is not None:
        if scale not in scales:
            known = nearest(scale, list(scales)) if scales else "it has none"
            raise RobustokError(f"{source} has no scale '{scale}': {known}")
        data = _merged(data, scales[scale] or {}) | {"scale": scale}
    texts = {"train": corpus, "held_out": held_out}
    texts = {name: value for name, value in texts.items() if value}
    for section, fields, flags in (
        ("task", {"words_file": words_file} if words_file else {}, "--words-file"),
        ("corpus", texts | {"hub": None} if texts else {}, "--corpus and --held-out"),
        ("benchmarks", {"folder": benchmarks} if benchmarks else {}, "--benchmarks"),
    ):
        if fields and section not in data:
            raise RobustokError(f"{source} has no section '{section}': leave {flags} out")
        if fields:
            data = _merged(data, {section: fields})
    if repeats is not None:
        data["repeats"] = repeats
    if model is not None:
        section = _replaced_model(data.get("model"), model, source)
        if section != data["model"]:  # whose tokenizer is not that of the other
            data.pop("tokenizer", None)
        data["model"] = section
    places = _Places(source, lines, scale)
    try:
        study = _at_strengths(Study.model_validate(data), places)
    except ValidationError as error:
        raise _first_error(error, places) from None
    for path, message in itertools.chain(_too_large(study), _contradictions(study)):
        raise places.error(path, f"{_dotted(path)}: {message}")
    return study


def _replaced_model(section: Any, name: str, source: str) -> dict[str, Any]:
    """The section of another model that exists; the section itself where it names this one."""
    named = section.get("name") if isinstance(section, dict) else None
    if named is None:
        raise RobustokError(f"{source} trains its own model: leave --model out")
    if named == name:
        return section
    start = added_start_token(name)
    return {"name": name} | ({"start_token": start} if start else {})


def _merged(base: Any, over: Any) -> Any:
    """Nested fields replaced one by one; a null removes a field."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    both = {**base, **{name: _merged(base.get(name), value) for name, value in over.items()}}
    return {name: value for name, value in both.items() if value is not None}


def _parsed(text: str, source: str) -> tuple[dict[str, Any], dict[FieldPath, int]]:
    """The values of a YAML text, and the line of every field."""
    if len(text) > MAX_BYTES:
        raise RobustokError(f"{source} is larger than {MAX_BYTES >> 10} KiB: not a study")
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        lines = _lines_of(root, source)
        data = None if root is None else loader.construct_document(root)
        json.dumps(data, ensure_ascii=False, default=str).encode()
    except RobustokError:
        raise
    except RecursionError:
        raise RobustokError(f"{source} is nested too deeply: not a study") from None
    except UnicodeEncodeError:
        message = "a string has a lone surrogate; give the whole character"
        raise RobustokError(f"{source}: {message}") from None
    except (ValueError, TypeError) as error:  # such as a date that no calendar has, or as a name
        raise RobustokError(f"{source} has a value that cannot be read: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "unreadable"
        raise RobustokError(f"{source}{place} is not YAML: {problem}") from None
    if not isinstance(data, dict):
        raise RobustokError(f"{source} is not a study: it should hold fields such as name and task")
    scales = data.get("scales") or {}
    if not isinstance(scales, dict) or not all(isinstance(s or {}, dict) for s in scales.values()):
        raise RobustokError(
            f"{source} line {lines['scales',]}: scales holds names, each with the fields it changes"
        )
    return data, lines


def _lines_of(root: yaml.Node | None, source: str) -> dict[FieldPath, int]:
    """The line of every field; refuses YAML whose aliases make it large or endless."""
    lines: dict[FieldPath, int] = {}
    around: set[int] = set()  # the nodes around the present one
    count = 0

    def error(node: yaml.Node, message: str) -> RobustokError:
        return RobustokError(f"{source} line {node.start_mark.line + 1}: {message}")

    def visit(node: yaml.Node | None, at: FieldPath) -> None:
        nonlocal count
        count += 1
        if count > MAX_NODES:
            raise RobustokError(
                f"{source} has more than {MAX_NODES:,} values, aliases counted: not a study"
            )
        if not isinstance(node, yaml.CollectionNode):
            return
        if id(node) in around:
            raise error(node, "the value contains itself by an alias")
        around.add(id(node))
        for index, child in enumerate(node.value):
            key, value = child if isinstance(child, tuple) else (None, child)
            if key is not None and not isinstance(key, yaml.ScalarNode):
                raise error(key, "a field's name must be plain text")
            path = (*at, index if key is None else key.value)
            if path in lines:
                message = f"{_dotted(path)} is already given on line {lines[path]}"
                raise error(key or value, message)
            lines[path] = (key or value).start_mark.line + 1
            visit(value, path)
        around.remove(id(node))

    visit(root, ())
    return lines


class _Places:
    """Where each field of a study was written, for errors."""

    def __init__(self, source: str, lines: dict[FieldPath, int], scale: str | None) -> None:
        self._source, self._lines, self._scale = source, lines, scale

    def error(self, path: FieldPath, message: str) -> RobustokError:
        """An error with the line of a field, in its scale's section where that has the field."""
        parents = [path[:i] for i in range(len(path), 0, -1)]
        scaled = ("scales", str(self._scale))
        fields = (field for parent in parents for field in ((*scaled, *parent), parent))
        line = next((self._lines[field] for field in fields if field in self._lines), 1)
        return RobustokError(f"{self._source} line {line}: {message}")


def _dotted(path: FieldPath) -> str:
    """A field as errors name it: task.words."""
    return ".".join(map(str, path))


def _first_error(error: ValidationError, places: _Places) -> RobustokError:
    """One of the errors that pydantic found, with its line."""
    # A misspelled field is also a missing one; the misspelling is what helps.
    problem = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    path: FieldPath = tuple(problem["loc"])
    name = _dotted(path)
    if problem["type"] == "extra_forbidden":
        message = f"there is no field {name}; {nearest(str(path[-1]), _allowed(path))}"
    elif problem["type"] == "missing":
        message = f"the field {name} is missing"
    else:
        reason = problem["msg"].removeprefix("Value error, ")
        value = problem["input"]
        plain = value is None or isinstance(value, (str, int, float))
        if "Value error, " in problem["msg"]:
            message = f"{name}: {reason}"
        else:
            reason = reason[0].lower() + reason[1:]
            message = f"{name} is {value!r}: {reason}" if plain else f"{name}: {reason}"
    return places.error(path, message)


def _allowed(path: FieldPath) -> list[str]:
    """The allowed fields of the section that has `path`."""
    model: Any = Study
    for part in path[:-1]:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part)
        kinds = (field.annotation, *getattr(field.annotation, "__args__", ())) if field else ()
        model = next((k for k in kinds if isinstance(k, type) and issubclass(k, Strict)), None)
        if model is None:
            return []
    return list(model.model_fields)


def _at_strengths(study: Study, places: _Places) -> Study:
    """The study with each scheme at each measured strength, where it sets strengths."""
    if study.strength is None:
        return study
    sections: dict[str, Any] = {}
    for part, name in (("finetune", "schemes"), ("evaluate", "eval_schemes")):
        section, specs = getattr(study, part), []
        if section is None:
            continue
        for i, spec in enumerate(getattr(section, name)):
            path = (part, name, i)
            try:
                own = dict.fromkeys(at_splits(spec, splits) for splits in study.strength.splits)
            except RobustokError as error:
                raise places.error(path, f"{_dotted(path)}: {error}") from None
            if repeated := next((one for one in own if one in specs), None):
                raise places.error(
                    path,
                    f"{_dotted(path)}: {spec} at the given strength is {repeated}, which is already"
                    " in the list",
                )
            specs += own
        sections[part] = section.model_copy(update={name: tuple(specs)})
    return study.model_copy(update=sections)


def _too_large(study: Study) -> Iterator[tuple[FieldPath, str]]:
    """The error of a study with too many cells, by an upper bound from the lengths of its lists."""

    def length(part: Any, name: str) -> int:
        return len(getattr(part, name)) if part else 0

    bases = study.repeats * max(length(study.pretrain, "schemes"), 1)
    every = study.finetune and study.finetune.keep_every
    kept = study.finetune.steps // every if study.finetune and every else 0
    models = bases * (1 + length(study.finetune, "schemes") * (1 + kept))
    # A scheme is evaluated by each draw and by an ensemble.
    measured = 2 * length(study.evaluate, "eval_schemes") + len(study.attacks)
    measured *= 1 + len(study.other_tasks or ()) + length(study.benchmarks, "names")
    measured *= max(length(study.few_shot, "schemes"), 1)
    cells = models * (2 + measured + length(study.perplexity, "eval_schemes"))
    if cells > MAX_CELLS:
        yield (
            ("repeats",),
            f"the study has up to {cells:,} cells; at most {MAX_CELLS:,} are allowed",
        )


def _contradictions(study: Study) -> Iterator[tuple[FieldPath, str]]:
    """Errors across fields, each with the path of a field."""
    if study.task is None and (study.finetune or study.attacks):
        yield ("task",), "there is no task to fine-tune on or to attack: give a task section"
    if study.strength and not (study.finetune or study.evaluate):
        yield ("strength",), "there are no schemes to set: give a finetune or an evaluate section"
    if study.evaluate and not (study.task or study.benchmarks):
        yield (
            ("evaluate",),
            "there are no questions to evaluate on: give a task or benchmarks section",
        )
    if study.benchmarks and study.benchmarks.folder is None:
        for i, name in enumerate(study.benchmarks.names):
            if name not in HUB:
                yield ("benchmarks", "names", i), f"no benchmark '{name}': {nearest(name, HUB)}"
    yield from _too_few_questions(study)
    names = [attack.eval_scheme for attack in study.attacks]
    for i, name in enumerate(names):
        if name in names[:i]:
            yield ("attacks", i), f"{name} is already in the list"
    yield from _wrong_model(study)
    on_text = study.pretrain is not None and study.pretrain.source == "corpus"
    corpus = study.corpus
    if study.pretrain and not on_text and study.task is None:
        yield (
            ("pretrain",),
            "there is no task to pre-train on: give a task section, or source: corpus",
        )
    if on_text or (study.perplexity and not study.task):
        if corpus is None or not (corpus.hub or corpus.train or not on_text):
            yield ("corpus",), "this study needs text: give --corpus FILE... and --held-out FILE"
        elif study.perplexity and not (corpus.hub or corpus.held_out):
            yield ("corpus", "held_out"), "perplexity needs text held out: give --held-out FILE"


def _too_few_questions(study: Study) -> Iterator[tuple[FieldPath, str]]:
    limits: list[tuple[FieldPath, int]] = []
    if study.evaluate:
        limits.append((("evaluate", "items"), study.evaluate.items))
    limits += [(("attacks", i, "items"), attack.items) for i, attack in enumerate(study.attacks)]
    for path, items in limits if study.task else ():
        if study.task and items > study.task.test:
            yield path, f"{items} questions, but task.test is {study.task.test}"
    examples = study.few_shot.examples if study.few_shot else 0
    for task in (study.task, *(study.other_tasks or ())):
        if task and examples > task.train:
            yield (
                ("few_shot", "examples"),
                f"{examples} examples, but {task.kind} has {task.train} questions to train on",
            )


def _wrong_model(study: Study) -> Iterator[tuple[FieldPath, str]]:
    """Sections that the model, from random weights or one that exists, lacks or has no use for."""
    if study.model.name is None:
        try:
            Shape(**study.model.sizes())
        except RobustokError as error:
            yield ("model",), str(error)
        if study.pretrain is None:
            yield ("model",), "random weights need a pretrain section, or give model.name"
        if study.tokenizer is None:
            yield ("tokenizer",), "a model from random weights needs a tokenizer section"
        return
    if study.pretrain is not None:
        yield ("pretrain",), "only random weights are pre-trained: leave it or model.name out"
    if study.tokenizer is not None and study.tokenizer.size is not None:
        yield ("tokenizer",), "a model with a name has a tokenizer: leave the section out"
