"""Reads a study from YAML: applies a scale, validates it, and reports errors with their line."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import yaml
from pydantic import ValidationError

from robustok.errors import RobustokError, nearest
from robustok.models import Shape
from robustok.samplers.spec import Spec
from robustok.study.equal_strength import at_splits
from robustok.study.former_fields import rename_former_fields
from robustok.study.schema import Paper, PaperRow, Strict, Study

Where = tuple[str | int, ...]

MAX_BYTES = 256 << 10  # of a study's YAML
MAX_NODES = 20_000  # of its values, each counted as often as aliases repeat it
MAX_CELLS = 20_000


def _check_size(root: yaml.Node | None, source: str) -> None:
    """Refuse YAML whose aliases make it large or endless, in time linear in its text."""
    sizes: dict[int, int | None] = {}  # None: its children are still being counted

    def size(node: yaml.Node) -> int:
        if id(node) in sizes:
            known = sizes[id(node)]
            if known is None:
                line = node.start_mark.line + 1
                raise RobustokError(f"{source} line {line}: the value contains itself by an alias")
            return known
        sizes[id(node)] = None
        children = node.value if isinstance(node, yaml.CollectionNode) else ()
        flat = (n for child in children for n in (child if isinstance(child, tuple) else (child,)))
        total = sizes[id(node)] = 1 + sum(map(size, flat))
        return total

    if root is not None and size(root) > MAX_NODES:
        raise RobustokError(
            f"{source} has more than {MAX_NODES:,} values, aliases counted: not a study"
        )


def _lines(node: yaml.Node | None, source: str, at: Where = ()) -> dict[Where, int]:
    """The line of every key and list entry, by its path. Raises for a key given twice."""
    lines: dict[Where, int] = {}
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise RobustokError(f"{source} line {line}: a field's name must be plain text")
            field = (*at, key.value)
            if field in lines:
                raise RobustokError(
                    f"{source} line {line}: {_dotted(field)} is already given on line "
                    f"{lines[field]}"
                )
            lines[field] = line
            lines.update(_lines(value, source, field))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            lines[*at, index] = value.start_mark.line + 1
            lines.update(_lines(value, source, (*at, index)))
    return lines


def _dotted(path: Where) -> str:
    return ".".join(str(part) for part in path)


def _allowed(path: Where) -> list[str]:
    """The allowed fields of the section that has `path`."""
    model: Any = Study
    for part in path[:-1]:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part)
        options = [field.annotation, *getattr(field.annotation, "__args__", ())] if field else []
        model = next((o for o in options if isinstance(o, type) and issubclass(o, Strict)), None)
        if model is None:
            return []
    return list(model.model_fields)


class _Source:
    """Where each field of a study was written, for the errors."""

    def __init__(self, name: str, lines: dict[Where, int], scale: str | None) -> None:
        self.name, self._lines, self._scale = name, lines, scale

    def line(self, path: Where) -> int:
        """The line of a field, in its scale's section where that has the field."""
        scaled: Where = ("scales", str(self._scale))
        for i in range(len(path), 0, -1):
            for field in ((*scaled, *path[:i]), path[:i]):
                if field in self._lines:
                    return self._lines[field]
        return 1

    def error(self, path: Where, message: str) -> RobustokError:
        return RobustokError(f"{self.name} line {self.line(path)}: {message}")


def _first_error(error: ValidationError, source: _Source) -> RobustokError:
    # A misspelled field is also a missing one; the misspelling is what helps.
    problem = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    path: Where = tuple(problem["loc"])
    name = _dotted(path)
    if problem["type"] == "extra_forbidden":
        message = f"there is no field {name}; {nearest(str(path[-1]), _allowed(path))}"
    elif problem["type"] == "missing":
        message = f"the field {name} is missing"
    else:
        reason = problem["msg"].removeprefix("Value error, ")
        reason = reason[0].lower() + reason[1:]
        given = problem["input"]
        plain = given is None or isinstance(given, (str, int, float))
        message = f"{name} is {given!r}: {reason}" if plain else f"{name}: {reason}"
    return source.error(path, message)


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

    Raises RobustokError, one line with the line number, the field and the nearest valid name, and
    for a replacement in a section that the study does not have.
    """
    data, lines = _parsed(text, source)
    scales = data.pop("scales", None) or {}
    if scale is not None:
        if scale not in scales:
            known = nearest(scale, list(scales)) if scales else "it has none"
            raise RobustokError(f"{source} has no scale '{scale}': {known}")
        data = _merged(data, scales[scale] or {}) | {"scale": scale}
    for section, value, flags in (
        ("task", words_file, "--words-file"),
        ("corpus", corpus or held_out, "--corpus and --held-out"),
        ("benchmarks", benchmarks, "--benchmarks"),
    ):
        if value and section not in data:
            raise RobustokError(f"{source} has no section '{section}': leave {flags} out")
    if words_file:
        _put(data, "task", {"words_file": words_file})
    if corpus or held_out:
        files = {"train": corpus or None, "held_out": held_out, "hub": None}
        _put(data, "corpus", {name: v for name, v in files.items() if v or name == "hub"})
    if benchmarks:
        _put(data, "benchmarks", {"folder": benchmarks})
    if repeats is not None:
        data["repeats"] = repeats
    place = _Source(source, lines, scale)
    try:
        study = Study.model_validate(data)
    except ValidationError as error:
        raise _first_error(error, place) from None
    return _checked(study, place)


def _parsed(text: str, source: str) -> tuple[dict[str, Any], dict[Where, int]]:
    if len(text) > MAX_BYTES:
        raise RobustokError(f"{source} is larger than {MAX_BYTES >> 10} KiB: not a study")
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        _check_size(root, source)
        rename_former_fields(root, source)
        lines = _lines(root, source)
        data = None if root is None else loader.construct_document(root)
    except RobustokError:
        raise
    except RecursionError:
        raise RobustokError(f"{source} is nested too deeply: not a study") from None
    except ValueError as error:  # such as a date that no calendar has
        raise RobustokError(f"{source} has a value that cannot be read: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        raise RobustokError(
            f"{source}{where} is not YAML: {getattr(error, 'problem', None) or 'unreadable'}"
        ) from None
    try:
        json.dumps(data, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        raise RobustokError(
            f"{source}: a string has a lone surrogate; give the whole character"
        ) from None
    if not isinstance(data, dict):
        raise RobustokError(f"{source} is not a study: it should hold fields such as name and task")
    scales = data.get("scales") or {}
    if not isinstance(scales, dict) or not all(isinstance(s or {}, dict) for s in scales.values()):
        raise RobustokError(
            f"{source} line {lines['scales',]}: scales holds names, each with the fields it changes"
        )
    return data, lines


def _merged(base: Any, over: Any) -> Any:
    """Nested fields replaced one by one; a null removes a field."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    both = {**base, **{name: _merged(base.get(name), value) for name, value in over.items()}}
    return {name: value for name, value in both.items() if value is not None}


def _put(data: dict[str, Any], part: str, fields: dict[str, Any]) -> None:
    if fields and isinstance(data.get(part), dict):
        data[part] = data[part] | fields


def _checked(study: Study, source: _Source) -> Study:
    """The study with normalized specs, after the checks across fields."""

    def normal(spec: str, *path: str | int) -> str:
        try:
            return normal_spec(spec, moves=path[0] in ("pretrain", "finetune"))
        except RobustokError as error:
            raise source.error(path, f"{_dotted(path)}: {error}") from None

    def normals(specs: tuple[str, ...], *path: str) -> tuple[str, ...]:
        normalized = tuple(normal(spec, *path, i) for i, spec in enumerate(specs))
        for i, spec in enumerate(normalized):
            if spec in normalized[:i]:
                raise source.error(
                    (*path, i), f"{_dotted((*path, i))}: {spec} is already in the list"
                )
        return normalized

    for path, message in itertools.chain(_too_large(study), _contradictions(study)):
        raise source.error(path, f"{_dotted(path)}: {message}")
    update: dict[str, Any] = {}
    for part, name in (
        ("pretrain", "schemes"),
        ("finetune", "schemes"),
        ("few_shot", "schemes"),
        ("evaluate", "eval_schemes"),
        ("perplexity", "eval_schemes"),
    ):
        if (section := getattr(study, part)) is not None:
            specs = normals(getattr(section, name), part, name)
            if study.strength and part in ("finetune", "evaluate"):
                specs = _at_strengths(specs, study.strength.splits, (part, name), source)
            update[part] = section.model_copy(update={name: specs})
    update["attacks"] = tuple(
        attack.model_copy(update={"start": normal(attack.start, "attacks", i, "start")})
        for i, attack in enumerate(study.attacks)
    )
    if study.paper:
        update["paper"] = _named_as_measured(study.paper)
    return study.model_copy(update=update)


def _at_strengths(
    specs: tuple[str, ...], strengths: tuple[float, ...], path: Where, source: _Source
) -> tuple[str, ...]:
    """Each scheme at each measured strength; one without a strength stays as it is."""
    names: list[str] = []
    for i, spec in enumerate(specs):
        try:
            own = dict.fromkeys(at_splits(spec, splits) for splits in strengths)
        except RobustokError as error:
            raise source.error((*path, i), f"{_dotted((*path, i))}: {error}") from None
        if repeated := next((name for name in own if name in names), None):
            raise source.error(
                (*path, i), f"{_dotted((*path, i))}: {spec} at the given strength is {repeated}, "
                "which is already in the list"
            )  # fmt: skip
        names += own
    return tuple(names)


def _named_as_measured(paper: Paper) -> Paper:
    """The paper's tables with their specs as results name them."""

    def normal(spec: str | None) -> str | None:
        return (
            spec
            if spec is None or spec.startswith("adversarial")
            else normal_spec(spec, moves=True)
        )

    def row(one: PaperRow) -> PaperRow:
        return one.model_copy(update={"pretrain": normal(one.pretrain), "train": normal(one.train)})

    tables = [
        table
        if table.measure == "embeddings"  # layers, and models that may not be trained yet
        else table.model_copy(
            update={
                "columns": tuple(map(normal, table.columns)),
                "rows": tuple(map(row, table.rows)),
            }
        )
        for table in paper.tables
    ]
    return paper.model_copy(update={"tables": tuple(tables)})


def _too_large(study: Study) -> Iterator[tuple[Where, str]]:
    """An upper bound of the number of cells, from the lengths of the study's lists."""

    def length(part: Any, name: str) -> int:
        return len(getattr(part, name)) if part else 0

    strengths = len(study.strength.splits) if study.strength else 1
    bases = study.repeats * max(length(study.pretrain, "schemes"), 1)
    models = bases * (1 + strengths * length(study.finetune, "schemes"))
    data_sets = 1 + length(study.benchmarks, "names")
    few_shot = max(length(study.few_shot, "schemes"), 1)
    asked = strengths * length(study.evaluate, "eval_schemes") + len(study.attacks)
    measured = data_sets * few_shot * asked
    cells = models * (2 + measured + length(study.perplexity, "eval_schemes"))
    if cells > MAX_CELLS:
        yield (
            ("repeats",),
            f"the study has up to {cells:,} cells; at most {MAX_CELLS:,} are allowed",
        )


def _contradictions(study: Study) -> Iterator[tuple[Where, str]]:
    """Errors across fields, each with the path of a field."""
    limits: list[tuple[Where, int]] = []
    if study.evaluate:
        limits.append((("evaluate", "items"), study.evaluate.items))
    limits += [(("attacks", i, "items"), attack.items) for i, attack in enumerate(study.attacks)]
    if study.task is None and (study.finetune or study.attacks):
        yield ("task",), "there is no task to fine-tune on or to attack: give a task section"
    if study.strength and not (study.finetune or study.evaluate):
        yield ("strength",), "there are no schemes to set: give a finetune or an evaluate section"
    if study.evaluate and not (study.task or study.benchmarks):
        yield (
            ("evaluate",),
            "there are no questions to evaluate on: give a task or benchmarks section",
        )
    for path, items in limits if study.task else ():
        if study.task and items > study.task.test:
            yield path, f"{items} questions, but task.test is {study.task.test}"
    if study.model.name is None:
        try:
            Shape(**study.model.sizes())
        except RobustokError as error:
            yield ("model",), str(error)
        if study.pretrain is None:
            yield ("model",), "random weights need a pretrain section, or give model.name"
        if study.tokenizer is None:
            yield ("tokenizer",), "a model from random weights needs a tokenizer section"
    on_text = study.pretrain is not None and study.pretrain.source == "corpus"
    corpus = study.corpus
    if on_text or study.perplexity:
        if corpus is None or not (corpus.hub or corpus.train or not on_text):
            yield ("corpus",), "this study needs text: give --corpus FILE... and --held-out FILE"
        elif study.perplexity and not (corpus.hub or corpus.held_out):
            yield ("corpus", "held_out"), "perplexity needs text held out: give --held-out FILE"


def normal_spec(spec: str, *, moves: bool = False) -> str:
    """A scheme's spec as results name it. The study's tokenizer is not needed.

    >>> normal_spec("stochastok( alpha = 1.0 )")
    'stochastok(alpha=1)'

    ``moves`` allows a schedule, for training. Raises RobustokError for an unknown scheme, parameter
    or value.
    """
    parsed = Spec.parse(spec)
    if parsed.is_schedule and not moves:
        raise RobustokError(f"{parsed} is a schedule: only training takes one")
    return str(parsed)
