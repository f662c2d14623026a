"""From a study to its cells: what is done, in which order, and what each piece depends on.

A cell is content-addressed: its key is a hash of all that decides its result. The same cell is
therefore done once, and changing one field changes the keys of what depends on it and no others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from robustok.errors import RobustokError
from robustok.study.cost import (
    attack_work,
    embeddings_work,
    evaluation_work,
    perplexity_work,
    training_work,
)
from robustok.study.schema import Corpus, Study, WordTask
from robustok.tasks.words import read_words

FORMAT = 2  # raise it when the same fields come to mean another result
TRAINED = ("pretrain", "finetune")


@dataclass(frozen=True)
class Cell:
    """One piece of work with a result that is kept.

    >>> data = Cell("data", {"words": 100})
    >>> data.key, Cell("data", {"words": 200}).key
    ('data-c634e38f756401d4', 'data-5d37dc9e9b88c21b')

    `fields` and the keys of `inputs` decide the result; `work` is a rough number of seconds on one
    core, for the progress bars; `files` says where its outside input lies, which may move.
    """

    kind: str
    fields: Mapping[str, Any]
    inputs: Mapping[str, Cell] = field(default_factory=dict)
    work: float = 1.0
    files: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        content = {
            "format": FORMAT,
            "kind": self.kind,
            "fields": dict(self.fields),
            "inputs": {role: cell.key for role, cell in self.inputs.items()},
        }
        text = json.dumps(content, sort_keys=True, ensure_ascii=False)
        return f"{self.kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    @property
    def label(self) -> str:
        """What people are shown.

        >>> Cell("evaluate", {"query": "uniform"}, {"model": Cell("finetune",
        ...     {"scheme": "canonical"})}).label
        'evaluate canonical on uniform'
        """
        match self.kind:
            case "finetune" | "pretrain" | "base":
                return f"{self.kind} {self.trained}"
            case "evaluate" | "perplexity":
                asked = f"{self.kind} {self.inputs['model'].trained} on {self.fields['query']}"
                return asked + self._about
            case "embeddings":
                return f"embeddings {self.inputs['model'].trained}"
            case "attack":
                asked = f"attack {self.inputs['model'].trained} from {self.fields['start']}"
                return asked + self._about
            case "benchmark":
                return f"benchmark {self.fields['name']}"
        return self.kind

    @property
    def _about(self) -> str:
        data = self.inputs.get("data")
        named = f" of {data.fields['name']}" if data and data.kind == "benchmark" else ""
        return named + (f" after {self.fields['context']}" if "context" in self.fields else "")

    @property
    def trained(self) -> str:
        """How a model's cell was trained, in a few words."""
        if self.kind == "base":
            return self.fields["name"].partition("@")[0]
        said = self.fields["scheme"]
        base = self.inputs.get("model")
        if base and base.kind == "pretrain" and base.fields["scheme"] != "canonical":
            said = f"{base.fields['scheme']}, then {said}"
        return said + (f" #{self.files['repeat']}" if self.files.get("repeat") else "")


def plan(study: Study, *, read: bool = True) -> tuple[Cell, ...]:
    """The cells of a study, each after all that it depends on.

    >>> from robustok.study import find_study
    >>> cells = plan(find_study("teaser", scale="cpu"))
    >>> [cell.label for cell in cells][:4]
    ['data', 'tokenizer', 'pretrain canonical', 'finetune canonical']

    Models are evaluated as soon as they are trained, so that a run that is cut short has whole
    rows to show. Without ``read`` no file of text is opened: its name stands for its content, and
    the cells are good for counting only. Names of the hub are resolved to commits.
    """
    made: dict[str, Cell] = {}
    if study.task:
        made["data"] = Cell("data", _task_fields(study, study.task))
    on_text = study.pretrain is not None and study.pretrain.source == "corpus"
    text = None
    if study.corpus and (on_text or study.perplexity):
        text = _text(study.corpus, _digest if read else str, read)
    made["tokenizer"] = _tokenizer(study, made, text if on_text else None, read)
    if text:
        made["corpus"] = Cell("corpus", text[0], {"tokenizer": made["tokenizer"]}, 30, text[1])
    cells = list(made.values())
    if study.examples:
        schemes = [s for part in (study.pretrain, study.finetune) if part for s in part.schemes]
        fields = study.examples.model_dump() | {"seed": study.seed}
        fields["schemes"] = list(dict.fromkeys(["canonical", *schemes]))
        cells.append(Cell("examples", fields, {"tokenizer": made["tokenizer"]}))
    for repeat in range(study.repeats):
        for base in _bases(study, made, repeat, read):
            cells += _from_base(study, made, base, repeat)
    return tuple({cell.key: cell for cell in cells}.values())


def _tokenizer(
    study: Study, made: Mapping[str, Cell], text: tuple[Any, Any] | None, read: bool
) -> Cell:
    chosen = study.tokenizer
    if chosen is None or chosen.name is not None:
        name = _pinned(str(chosen.name if chosen else study.model.name), read)
        return Cell("tokenizer", {"name": _identified(name)}, {}, files={"name": name})
    if text is None:
        return Cell("tokenizer", {"size": chosen.size}, {"data": made["data"]})
    return Cell("tokenizer", {"size": chosen.size, "text": text[0]}, {}, 60, text[1])


def _bases(study: Study, made: Mapping[str, Cell], repeat: int, read: bool) -> Iterator[Cell]:
    """The models that others start from."""
    model, first = study.model, study.pretrain
    if model.name is not None and first is None:
        name = _pinned(model.name, read)
        yield Cell("base", {"name": _identified(name)}, {}, files={"name": name})
        return
    assert first is not None
    roles = ("tokenizer", "corpus") if first.source == "corpus" else ("tokenizer", "data")
    fields = first.model_dump(exclude={"schemes"})
    if first.end_of_text is None and "name" not in made["tokenizer"].fields:
        del fields["end_of_text"]  # a tokenizer trained here always has the same one
    for scheme in first.schemes:
        yield Cell(
            "pretrain",
            fields | {"model": model.sizes(), "scheme": scheme, "seed": study.seed + repeat},
            {role: made[role] for role in roles},
            training_work(study, first, scheme),
            {"repeat": repeat},
        )


def _from_base(study: Study, made: Mapping[str, Cell], base: Cell, repeat: int) -> list[Cell]:
    """A base model, all that is trained from it, and what is measured of them."""
    seed, cells = study.seed + repeat, [base]
    if study.perplexity:
        inputs = {"tokenizer": made["tokenizer"], "corpus": made["corpus"], "model": base}
        for query in study.perplexity.queries:
            fields = {"query": query, "seed": seed}
            cells.append(Cell("perplexity", fields, inputs, perplexity_work(study)))
    cells += _embeddings(study, made, base, seed)
    if study.finetune is None:
        return cells + _measurements(study, made, base, seed)
    for scheme in study.finetune.schemes:
        model = Cell(
            "finetune",
            study.finetune.model_dump(exclude={"schemes"}) | {"scheme": scheme, "seed": seed},
            {"data": made["data"], "tokenizer": made["tokenizer"], "model": base},
            training_work(study, study.finetune, scheme),
            {"repeat": repeat},
        )
        cells += [model, *_measurements(study, made, model, seed)]
        cells += _embeddings(study, made, model, seed)
    return cells


def _embeddings(study: Study, made: Mapping[str, Cell], model: Cell, seed: int) -> list[Cell]:
    if study.embeddings is None:
        return []
    fields = study.embeddings.model_dump() | {"seed": seed}
    inputs = {"tokenizer": made["tokenizer"], "model": model}
    return [Cell("embeddings", fields, inputs, embeddings_work(study, study.embeddings))]


def _measurements(study: Study, made: Mapping[str, Cell], model: Cell, seed: int) -> list[Cell]:
    """All questions to one model: of its task and the benchmarks, without or in each context."""
    cells = []
    asked = ([made["data"]] if study.task else []) + _benchmarks(study)
    for data in asked:
        inputs = {"data": data, "tokenizer": made["tokenizer"], "model": model}
        for context in _contexts(study):
            cells += _queries(study, inputs, context | {"seed": seed})
            if data.kind == "data":
                cells += _attacks(study, inputs, context | {"seed": seed})
    named = {cell.key: cell for cell in (*asked, *cells)}
    return list(named.values())


def _contexts(study: Study) -> list[dict[str, Any]]:
    if study.context is None:
        return [{}]
    return [{"shots": study.context.shots, "context": spec} for spec in study.context.schemes]


def _benchmarks(study: Study) -> list[Cell]:
    chosen = study.benchmarks
    if chosen is None:
        return []
    shots = study.context.shots if study.context else 0
    cells = []
    for name in chosen.names:
        fields: dict[str, Any] = {"name": name, "items": chosen.items + shots}
        if chosen.folder is None:
            cells.append(Cell("benchmark", fields))
        else:
            file = Path(chosen.folder) / f"{name}.jsonl"
            content = {"content": _digest(file)}
            cells.append(Cell("benchmark", fields | content, files={"file": str(file)}))
    return cells


def _queries(study: Study, inputs: Mapping[str, Cell], fields: dict[str, Any]) -> list[Cell]:
    asked, cells = study.evaluate, []
    for query in asked.queries if asked else ():
        draws = 1 if query == "canonical" or asked is None else asked.draws
        items = asked.items if asked else 0
        work = evaluation_work(study, items * draws)
        mine = fields | {"query": query, "items": items, "draws": draws}
        cells.append(Cell("evaluate", mine, inputs, work))
    return cells


def _attacks(study: Study, inputs: Mapping[str, Cell], fields: dict[str, Any]) -> list[Cell]:
    return [
        Cell("attack", attack.model_dump() | fields, inputs, attack_work(study, attack))
        for attack in study.attacks
    ]


def _task_fields(study: Study, task: WordTask) -> dict[str, Any]:
    """The task's fields. A word file stands here as its words: its place does not matter."""
    fields = task.model_dump(exclude={"words_file"}) | {"seed": study.seed}
    if task.words_file is not None:
        fields["words"] = read_words(task.words_file)
    return fields


def _text(
    corpus: Corpus, identify: Callable[[Path], str], read: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What decides a corpus (files by their content), and where it lies."""
    fields: dict[str, Any] = {"documents": corpus.documents, "measured": corpus.measured}
    if corpus.hub:
        return fields | {"hub": _pinned(corpus.hub, read, "dataset")}, {}
    files = {"train": list(corpus.train), "held_out": corpus.held_out}
    fields["train"] = [identify(Path(path)) for path in corpus.train]
    fields["held_out"] = identify(Path(corpus.held_out)) if corpus.held_out else None
    fields["sample_by"] = corpus.sample_by
    return fields, files


def _pinned(name: str, read: bool, kind: str = "model") -> str:
    """A hub name with its commit, so that another revision is another cell."""
    if not read:
        return name
    from robustok.models.hub import pinned

    return pinned(name, kind)


def _identified(name: str) -> str:
    """A name of the hub as it is; a folder or file by its content, for it may change or move."""
    path = Path(name)
    if path.is_file():
        return _digest(path)
    if not path.is_dir():
        return name
    kinds = ("*.safetensors", "tokenizer.json", "config.json")
    parts = [_digest(file) for kind in kinds for file in sorted(path.glob(kind))]
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise RobustokError(f"{path} cannot be read: {error.strerror}") from None
