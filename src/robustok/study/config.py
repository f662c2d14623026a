"""What a study's YAML may say. Every field is listed here, and nothing else is accepted."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Literal, NoReturn

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from robustok.errors import RobustokError, nearest
from robustok.models import Shape, train_tokenizer


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class LangGame(Strict):
    """The six question types of the paper's LangGame."""

    kind: Literal["langgame"]
    words: int = Field(200, ge=8)  # so many of the most frequent English words
    words_file: str | None = None  # or a file with one word a line, in place of them
    train: int = Field(ge=1)  # questions
    test: int = Field(ge=1)


class Tokenizer(Strict):
    """A byte-level BPE trained on the task's own training text."""

    size: int = Field(ge=257)


class Model(Strict):
    """A Llama-architecture causal language model, made small."""

    layers: int = Field(ge=1)
    width: int = Field(ge=8)
    heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    feed_forward: int = Field(ge=8)
    context: int = Field(ge=16)  # tokens
    tied: bool = True  # input and output embeddings are one


class Training(Strict):
    steps: int = Field(ge=1)
    batch_size: int = Field(ge=1)
    learning_rate: float = Field(gt=0)
    warmup: int = Field(0, ge=0)
    final_rate: float = Field(0.1, ge=0, le=1)
    weight_decay: float = Field(0.01, ge=0)
    save_every: int = Field(200, ge=1)  # steps between checkpoints


class Pretraining(Training):
    scheme: str = "canonical"


class Finetuning(Training):
    schemes: tuple[str, ...] = Field(min_length=1)


class Queries(Strict):
    queries: tuple[str, ...] = Field(min_length=1)
    items: int = Field(ge=1)
    draws: int = Field(10, ge=1)


class Adversary(Strict):
    """The greedy attack of the paper's Algorithm 2."""

    items: int = Field(ge=1)
    distances: tuple[int, ...] = (2,)
    start: str = "canonical"
    steps: int = Field(10, ge=1)
    objective: Literal["probability", "log-probability"] = "probability"


class Examples(Strict):
    """Texts whose draws the report shows in color."""

    texts: tuple[str, ...] = Field(min_length=1)
    draws: int = Field(3, ge=1)


class Study(Strict):
    """One figure, table or question, from data to report."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str
    about: str = ""
    seed: int
    threads: int | None = Field(None, ge=1)  # of a cell; as many cells as fit go side by side
    task: LangGame
    tokenizer: Tokenizer
    model: Model
    pretrain: Pretraining
    finetune: Finetuning
    evaluate: Queries
    attack: Adversary | None = None
    examples: Examples | None = None

    @field_validator("seed")
    @classmethod
    def _seed_fits(cls, seed: int) -> int:
        if not 0 <= seed < 2**63:
            raise ValueError("a seed is a whole number from 0 to 2^63 - 1")
        return seed


Where = tuple[str | int, ...]


def _lines(node: yaml.Node | None, source: str, at: Where = ()) -> dict[Where, int]:
    """The line of every key and list entry, by its path. A key given twice is an error here."""
    found: dict[Where, int] = {}
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*at, key.value)
            line = key.start_mark.line + 1
            if here in found:
                raise RobustokError(
                    f"{source} line {line}: {_dotted(here)} is already given on line {found[here]}"
                )
            found[here] = line
            found.update(_lines(value, source, here))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            found[*at, index] = value.start_mark.line + 1
            found.update(_lines(value, source, (*at, index)))
    return found


def _dotted(path: Where) -> str:
    return ".".join(str(part) for part in path)


def _allowed(path: Where) -> list[str]:
    """The fields allowed beside the one at `path`."""
    model: Any = Study
    for part in path[:-1]:
        field = model.model_fields.get(part)
        options = [field.annotation, *getattr(field.annotation, "__args__", ())] if field else []
        model = next((o for o in options if isinstance(o, type) and issubclass(o, Strict)), None)
        if model is None:
            return []
    return list(model.model_fields)


def _first_error(error: ValidationError, lines: dict[Where, int], source: str) -> str:
    # A misspelled field is also a missing one; the misspelling is what helps.
    problem = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    path: Where = tuple(problem["loc"])
    line = next((lines[path[:i]] for i in range(len(path), 0, -1) if path[:i] in lines), 1)
    name = _dotted(path)
    if problem["type"] == "extra_forbidden":
        said = f"there is no field {name}; {nearest(str(path[-1]), _allowed(path))}"
    elif problem["type"] == "missing":
        said = f"the field {name} is missing"
    else:
        reason = problem["msg"].removeprefix("Value error, ")
        given = problem["input"]
        said = f"{name} is {given!r}: {reason[0].lower()}{reason[1:]}"
    return f"{source} line {line}: {said}"


def load_study(text: str, source: str, **task: Any) -> Study:
    """Read a study from YAML text; `source` is what error messages call it.

    Keyword arguments replace fields of the task (`words_file="words.txt"`).

    Raises RobustokError, one line that names the line, the field and the nearest right name.
    """
    try:
        lines = _lines(yaml.compose(text, Loader=yaml.SafeLoader), source)
        data = yaml.safe_load(text)
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
    given = {key: value for key, value in task.items() if value is not None}
    if given and isinstance(data.get("task"), dict):
        data["task"] = data["task"] | given
    try:
        study = Study.model_validate(data)
    except ValidationError as error:
        raise RobustokError(_first_error(error, lines, source)) from None
    return _checked(study, lines, source)


def _checked(study: Study, lines: dict[Where, int], source: str) -> Study:
    """The study with its specs normalized, once what only makes sense across fields is seen to."""

    def fail(path: Where, said: str) -> NoReturn:
        line = next((lines[path[:i]] for i in range(len(path), 0, -1) if path[:i] in lines), 1)
        raise RobustokError(f"{source} line {line}: {_dotted(path)}: {said}")

    def normal(spec: str, *path: str | int) -> str:
        try:
            return normal_spec(spec)
        except RobustokError as error:
            fail(path, str(error))

    def normals(specs: tuple[str, ...], *path: str) -> tuple[str, ...]:
        found = tuple(normal(spec, *path, i) for i, spec in enumerate(specs))
        for i, spec in enumerate(found):
            if spec in found[:i]:
                fail((*path, i), f"{spec} is already in the list")
        return found

    for part, wanted in (("evaluate", study.evaluate), ("attack", study.attack)):
        if wanted and wanted.items > study.task.test:
            fail((part, "items"), f"{wanted.items} questions, but task.test is {study.task.test}")
    try:
        Shape(**study.model.model_dump())
    except RobustokError as error:
        fail(("model",), str(error))
    schemes = normals(study.finetune.schemes, "finetune", "schemes")
    queries = normals(study.evaluate.queries, "evaluate", "queries")
    first = normal(study.pretrain.scheme, "pretrain", "scheme")
    update: dict[str, Any] = {
        "pretrain": study.pretrain.model_copy(update={"scheme": first}),
        "finetune": study.finetune.model_copy(update={"schemes": schemes}),
        "evaluate": study.evaluate.model_copy(update={"queries": queries}),
    }
    if study.attack:
        start = normal(study.attack.start, "attack", "start")
        update["attack"] = study.attack.model_copy(update={"start": start})
    return study.model_copy(update=update)


def normal_spec(spec: str) -> str:
    """A scheme's spec as results name it; whether it exists is seen without the study's tokenizer.

    >>> normal_spec("stochastok( alpha = 1.0 )")
    'stochastok(alpha=1)'

    Raises RobustokError for an unknown scheme, parameter or value.
    """
    from robustok.samplers import sampler

    return sampler(spec, _smallest_vocabulary()).spec


@cache
def _smallest_vocabulary() -> Any:
    from robustok.vocabulary import Vocabulary

    return Vocabulary.load(train_tokenizer(["aa"], 258))
