"""Reads a study from YAML: applies a scale, validates it, and reports errors with their line."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from robustok.checks import shown
from robustok.errors import RobustokError, check_choice, nearest
from robustok.runtime.files import JsonObject, studies
from robustok.runtime.hub import is_served, served_label
from robustok.runtime.registry import import_for_all
from robustok.samplers.strength import at_splits
from robustok.study.inputs import start_token_of
from robustok.study.schema import SCHEMES_SET, STUDY, Contradiction, Study
from robustok.training.recipe import PRESETS

STRICT = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)
"""How fields of a result are read: further ones are allowed, and other types are not."""
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")  # pydantic's, of unknown fields
_MEANT_NAME = ("dir", "file", "folder", "hub", "id", "model", "path", "tokenizer")


def find_study(name: str, **changes: Any) -> Study:
    """An included study by its name, or the study of a YAML file by its path.

    >>> find_study("quick").task.kind
    'langgame'

    Args:
        name: name of an included study, or path of a YAML file.
        **changes: the keyword arguments of :func:`load_study`, such as ``scale``.

    Raises RobustokError for an unknown name and for invalid YAML.
    """
    name = study_named(name)
    if name in studies():
        return load_study(studies()[name], f"{name}.yaml", **changes)
    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise RobustokError(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise RobustokError(f"the study {path} cannot be read: {error.strerror}") from None
    return load_study(text, str(path), **changes)


def study_named(name: str) -> str:
    """The name of an included study, also by the figure or table that it alone reproduces.

    >>> study_named("figure-1"), study_named("quick"), study_named("my.yaml")
    ('teaser', 'quick', 'my.yaml')

    The path of a YAML file stays. Raises RobustokError for a name that is none.
    """
    if name.endswith((".yaml", ".yml")) or "/" in name:
        return name
    names: dict[str, list[str]] = {other: [other] for other in studies()}
    for other, text in studies().items():
        if place := re.search(r"(?m)^  where: \W*(.*?)\W*$", text):
            names.setdefault(re.sub(r"\W+", "-", place[1].lower()), []).append(other)
    alone = {one: others[0] for one, others in names.items() if len(others) == 1}
    return alone[check_choice("study", name.lower(), alone)]


def study_schema() -> JsonObject:
    """The JSON Schema of a study's YAML, by which editors complete and check it.

    >>> sorted(study_schema()["$defs"]["TokenizerSection"]["properties"])
    ['name', 'size']

    Sections that contradict each other are found by ``study plan`` only.
    """
    schema = STUDY.json_schema()
    # `load_study` applies presets and scales; the fields of a scale are any part of a study.
    preset = {"enum": [*PRESETS], "description": "recipe whose fields hold where none are given"}
    for name in ("PretrainSection", "FinetuneSection"):
        schema["$defs"][name]["properties"]["preset"] = preset
        schema["$defs"][name]["required"] = ["schemes"]  # a preset has the others
    schema["properties"]["import"] = {
        "type": "string",
        "description": "file of Python beside the YAML, run first, which registers own schemes",
    }
    schema["properties"]["scales"] = {
        "type": "object",
        "additionalProperties": {"type": ["object", "null"]},
        "description": "by name, the fields that the scale of this name replaces",
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


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
    first_repeat: int | None = None,
    model: str | None = None,
    tokenizer: str | None = None,
    start_token: str | None = None,
) -> Study:
    """Read a study from YAML text.

    >>> from robustok.study import studies
    >>> study = load_study(studies()["teaser"], "teaser.yaml", scale="cpu")
    >>> study.task.words, study.finetune.steps
    (100, 1200)

    Args:
        text: the YAML text.
        source: name of the text in error messages, such as its file name.
        scale: one of the study's `scales`, whose fields replace those of the study, one by one;
            "full" and by default none.
        words_file: file of words that replaces those of the task and of the embeddings.
        corpus: text files that replace the training text of the corpus.
        held_out: text file that replaces the held-out text of the corpus.
        benchmarks: folder that replaces that of the benchmarks.
        repeats: number of seeds, in place of the study's.
        first_repeat: number of the first one, to add seeds to those of an earlier run. The
            questions are those of repeat 0, as in every repeat.
        model: folder or hub name that replaces the named model of the study and its tokenizer, or
            the address of a server. Its start token is the one that its tokenizer puts before a
            text, if any.
        tokenizer: that of a model behind a server: a file, a folder or a hub name.
        start_token: special token before every text of ``model``, instead of its own.

    Raises RobustokError, one line with the line number, the field and the nearest valid name, and
    for a replacement in a section that the study does not have.
    """
    data, lines = _parsed(text, source)
    if file := data.pop("import", None):
        import_for_all(str(Path(source).parent / str(file)))
    own_scales = data.pop("scales", None) or {}
    scales = {"full": None, **{str(name): fields for name, fields in own_scales.items()}}
    if scale is not None:
        if scale not in scales:
            raise RobustokError(f"{source} has no scale '{scale}': {nearest(scale, scales)}")
        data = _merged(data, scales[scale] or {}) | {"scale": scale}
        section = f"scales.{scale}."
        lines |= {f.removeprefix(section): lines[f] for f in lines if f.startswith(section)}
    files = {"train": corpus, "held_out": held_out}
    data = _with_files(data, source, words_file, files, benchmarks)
    numbers = {"repeats": repeats, "first_repeat": first_repeat}
    data |= {name: number for name, number in numbers.items() if number is not None}
    if model is not None:
        data = _with_model(data, model, tokenizer, start_token, source)
    elif tokenizer or start_token:
        raise RobustokError("a tokenizer and a start token are of a model: give --model")

    def error(field: str, message: str) -> RobustokError:
        """An error with the line of a field, or of the section around it."""
        place = field
        while place and place not in lines:
            place = place.rpartition(".")[0]
        return RobustokError(f"{source} line {lines.get(place, 1)}: {message}")

    _apply_presets(data, error)
    return checked_study(data, error)


def _with_files(
    data: JsonObject,
    source: str,
    words_file: str | None,
    texts: Mapping[str, object],
    benchmarks: str | None,
) -> JsonObject:
    """The fields of a study with files of the user's own; raises where it has no such section."""
    texts = {name: value for name, value in texts.items() if value}
    words = {"words_file": words_file} if words_file else {}
    for section, fields, names in (
        ("task" if "task" in data else "embeddings", words, "--words-file"),
        ("corpus", {**texts, "hub": None} if texts else {}, "--corpus and --held-out"),
        ("benchmarks", {"folder": benchmarks} if benchmarks else {}, "--benchmarks"),
    ):
        if fields and section not in data:
            raise RobustokError(f"{source} has no section '{section}': leave {names} out")
        if fields:
            data = _merged(data, {section: fields})
    return _merged(data, {"embeddings": words}) if words and "embeddings" in data else data


def checked_study(data: Mapping[str, object], error: Callable[[str, str], RobustokError]) -> Study:
    """The study of these fields, as its YAML has them.

    ``error`` makes the exception of the first problem from the dotted name of the field and a
    message that begins with this name.
    """
    try:  # in JSON, of which a list makes a tuple where pydantic is strict
        study = STUDY.validate_json(json.dumps(data, default=str), strict=True)
    except ValidationError as invalid:
        raise error(*_first_problem(invalid)) from None
    if study.strength is not None:
        study = _at_strengths(study, study.strength.splits, error)
    return study


def _apply_presets(data: JsonObject, error: Callable[[str, str], RobustokError]) -> None:
    """Give trainings with a ``preset`` its fields, where they have none of their own."""
    for part in ("pretrain", "finetune"):
        section = data.get(part)
        if isinstance(section, dict) and "preset" in section:
            fields = {name: value for name, value in section.items() if name != "preset"}
            name, field = str(section["preset"]), f"{part}.preset"
            if name not in PRESETS:
                raise error(field, f"{field} is {name!r}: {nearest(name, PRESETS)}")
            data[part] = dataclasses.asdict(PRESETS[name]) | fields


def _with_model(
    data: JsonObject, name: str, tokenizer: str | None, start_token: str | None, source: str
) -> JsonObject:
    """The fields of a study with another model that exists, or the same with another start token.

    The tokenizer of the study goes with its model.
    """
    section: Any = data.get("model")
    named = section.get("name") if isinstance(section, dict) else None
    if named is None:
        raise RobustokError(f"{source} trains its own model: leave model out")
    if named != name:
        label = {"label": served_label(name)} if is_served(name) else {}
        if label and tokenizer is None:
            raise RobustokError("--tokenizer: a server does not give its tokenizer: name its file")
        start_token = start_token or start_token_of(tokenizer or name)
        section = {"name": name, **label}
        data = {field: data[field] for field in data if field != "tokenizer"}
    section = section | ({"start_token": start_token} if start_token else {})
    return data | {"model": section} | ({"tokenizer": {"name": tokenizer}} if tokenizer else {})


def _merged(base: JsonObject, over: JsonObject) -> JsonObject:
    """The fields of a study, those of each section replaced one by one; a null removes a section.

    The null of a field stays, since it may be another value than the default.
    """
    both = _replaced(base, over)
    return {name: value for name, value in both.items() if value is not None}


def _replaced(base: object, over: object) -> Any:
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return {**base, **{name: _replaced(base.get(name), value) for name, value in over.items()}}


class _Loader(yaml.SafeLoader):
    """Reads 1e-3 as a number, as YAML 1.2 has it."""


_FLOAT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789"))


def _parsed(text: str, source: str) -> tuple[JsonObject, dict[str, int]]:
    """The values of a YAML text, and the line of every field by its dotted name."""
    loader = _Loader(text)
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
            f"{source} line {lines['scales']}: scales holds names, each with the fields it changes"
        )
    return data, lines


def _lines_of(root: yaml.Node | None, source: str) -> dict[str, int]:
    """The line of every field; those inside of a value that an alias repeats once."""
    lines: dict[str, int] = {}
    visited: set[int] = set()

    def error(node: yaml.Node, message: str) -> RobustokError:
        return RobustokError(f"{source} line {node.start_mark.line + 1}: {message}")

    def visit(node: yaml.Node | None, prefix: str) -> None:
        if not isinstance(node, yaml.CollectionNode) or id(node) in visited:
            return
        visited.add(id(node))
        for index, child in enumerate(node.value):
            key, value = child if isinstance(child, tuple) else (None, child)
            if key is not None and not isinstance(key, yaml.ScalarNode):
                raise error(key, "a field's name must be plain text")
            field = f"{prefix}{index if key is None else key.value}"
            if field in lines:
                raise error(key or value, f"{field} is already given on line {lines[field]}")
            lines[field] = (key or value).start_mark.line + 1
            visit(value, f"{field}.")

    visit(root, "")
    return lines


_adapter: Any = cache(TypeAdapter)


def check_fields(value: object, kind: Any, path: Path, advice: str) -> None:
    """Raise RobustokError where the value of a JSON file is not of a type, as of a TypedDict."""
    try:
        _adapter(kind).validate_json(json.dumps(value))
    except ValidationError as invalid:
        message = f"is damaged, or of another program ({_first_problem(invalid)[1]}): {advice}"
        raise RobustokError(f"{path} {message}") from None


def _first_problem(invalid: ValidationError) -> tuple[str, str]:
    """The field and the message of the most helpful of pydantic's errors."""
    # A misspelled field is also missing; the misspelling is the helpful message.
    problem = min(invalid.errors(), key=lambda error: error["type"] not in _UNKNOWN)
    field, value, reason = ".".join(map(str, problem["loc"])), problem["input"], problem["msg"]
    if problem["type"] in _UNKNOWN:
        allowed, unknown = _allowed(problem["loc"]), str(problem["loc"][-1])
        is_named = "name" in allowed and unknown in _MEANT_NAME
        suggestion = nearest("name" if is_named else unknown, allowed)
        return field, f"there is no field {field}; {suggestion}"
    if problem["type"] == "missing":
        return field, f"the field {field} is missing"
    if problem["type"] == "value_error":
        error = problem.get("ctx", {})["error"]
        if isinstance(error, Contradiction):
            return error.field, str(error)
        return field, f"{field}: {reason.removeprefix('Value error, ')}"
    text = f" is {shown(value)}" if value is None or isinstance(value, (str, int, float)) else ""
    return field, f"{field}{text}: {reason[0].lower()}{reason[1:]}"


def _allowed(path: tuple[str | int, ...]) -> list[str]:
    """The allowed fields of the section that has the last part of `path`."""
    section: Any = Study
    for name in path[:-1]:
        if not isinstance(name, int):
            section = next(_sections_in(get_type_hints(section)[name]))
    return [field.name for field in dataclasses.fields(section)]


def _sections_in(hint: object) -> Iterator[Any]:
    """The sections in a type hint: itself, members of a union, items of a tuple."""
    if dataclasses.is_dataclass(hint):
        yield hint
    for argument in get_args(hint):
        yield from _sections_in(argument)


def _at_strengths(
    study: Study, strengths: tuple[float, ...], error: Callable[[str, str], RobustokError]
) -> Study:
    """The study with each scheme at each measured strength."""
    sections: JsonObject = {}
    for section_name, name in SCHEMES_SET:
        section, specs = getattr(study, section_name), []
        for i, spec in enumerate(getattr(section, name, ())):
            field = f"{section_name}.{name}.{i}"
            try:
                named = dict.fromkeys(at_splits(spec, splits) for splits in strengths)
            except RobustokError as wrong:
                raise error(field, f"{field}: {wrong}") from None
            if repeated := next((spec for spec in named if spec in specs), None):
                reason = f"{repeated}, which is already in the list"
                raise error(field, f"{field}: {spec} at the given strength is {reason}")
            specs += named
        if section is not None:
            sections[section_name] = dataclasses.replace(section, **{name: tuple(specs)})
    return dataclasses.replace(study, **sections)
