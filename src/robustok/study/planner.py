"""Plans the cells of a study, each after the cells that it depends on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from robustok.errors import RobustokError
from robustok.evaluation.results import FewShot
from robustok.models.load import pinned
from robustok.study.cells.base import Cell, parameters
from robustok.study.cells.inputs import (
    BenchmarkCell,
    CorpusCell,
    DataCell,
    ExistingTokenizerCell,
    FileText,
    HubText,
    QuestionsCell,
    Text,
    TokenizerCell,
    TrainedTokenizerCell,
    external_file,
    external_model,
)
from robustok.study.cells.measurements import (
    MEASUREMENTS,
    AttackCell,
    EvaluateCell,
    ExamplesCell,
    Subject,
    TransferCell,
)
from robustok.study.cells.models import (
    BaseCell,
    FinetuneCell,
    ModelCell,
    OriginCell,
    PretrainCell,
    StepCell,
)
from robustok.study.config import find_study, studies
from robustok.study.schema import CorpusSection, Study, WordTask
from robustok.tasks import HUB, benchmark_files
from robustok.tasks.words import read_words


def plan(study: Study, *, read: bool = True) -> tuple[Cell, ...]:
    """The cells of a study, each after all that it depends on.

    >>> from robustok.study import find_study
    >>> cells = plan(find_study("teaser", scale="cpu"))
    >>> [cell.label for cell in cells][:4]
    ['data', 'tokenizer', 'pretrain canonical', 'finetune canonical']

    Args:
        study: the study.
        read: whether keys depend on the content of files and on commits of the hub (default). False
            opens no file and sends no request; that suffices for counts and estimates of cost.

    Models are evaluated right after they are trained, so that an interrupted run has complete rows
    of results. Raises RobustokError for a file that cannot be read.
    """
    return tuple({cell.key: cell for cell in _Planner(study, read).cells()}.values())


def hub_names() -> dict[tuple[str, str], list[str]]:
    """The included studies that read each thing of the hub at full scale, by its kind and name.

    >>> sorted({kind for kind, _ in hub_names()})
    ['benchmark', 'model', 'text', 'tokenizer']
    """
    users: dict[tuple[str, str], list[str]] = {}
    for study in studies():
        for cell in plan(find_study(study), read=False):
            kind = {"base": "model", "corpus": "text"}.get(cell.kind, cell.kind)
            for name in cell.hub_names:
                name = cell.name if isinstance(cell, BenchmarkCell) else name
                own = users.setdefault((kind, name), [])
                own += [] if study in own else [study]
    return dict(sorted(users.items()))


class _Planner:
    """Makes the cells of one study; the inputs that several cells share are made once, at first."""

    def __init__(self, study: Study, read: bool) -> None:
        self.study, self.read = study, read
        self.parameters = parameters(study)
        self.data = _data(study, study.task, read) if study.task else None
        self.other_data = tuple(_data(study, task, read) for task in study.other_tasks or ())
        self.on_text = study.pretrain is not None and study.pretrain.source == "corpus"
        text = None
        corpus = study.corpus
        if corpus and (self.on_text or (study.perplexity and (corpus.hub or corpus.held_out))):
            text = _text(corpus, read, train=self.on_text)
        self.tokenizer = self._tokenizer(text if self.on_text else None)
        self.corpus = CorpusCell(text, self.tokenizer) if text else None
        self.benchmarks = tuple(self._benchmarks())
        _check_names((*self.other_data, *self.benchmarks), self.data)

    def cells(self) -> Iterator[Cell]:
        shared = (self.data, self.tokenizer, self.corpus)
        yield from (cell for cell in shared if cell is not None)
        yield from self._examples()
        for repeat in range(self.study.repeats):
            suites: dict[tuple[object, ...], list[AttackCell]] = {}
            for origin in self._origins(repeat):
                for cell in self._trained_from(origin, repeat):
                    yield cell
                    if isinstance(cell, AttackCell) and cell.attack.transfer:
                        group = cell.attack, cell.data, cell.few_shot
                        suites.setdefault(group, []).append(cell)
            for attacks in suites.values():
                yield from _transfers(attacks)

    def _tokenizer(self, text: Text | None) -> TokenizerCell:
        chosen = self.study.tokenizer
        if chosen is None or chosen.size is None:
            name = str(chosen.name if chosen else self.study.model.name)
            return ExistingTokenizerCell(external_model(name, read=self.read))
        return TrainedTokenizerCell(chosen.size, None if text else self.data, text)

    def _examples(self) -> Iterator[Cell]:
        examples, study = self.study.examples, self.study
        if examples is None:
            return
        trained = [s for part in (study.pretrain, study.finetune) if part for s in part.schemes]
        schemes = tuple(dict.fromkeys(["canonical", *trained]))
        yield ExamplesCell(examples.texts, schemes, examples.draws, study.seed, self.tokenizer)

    def _origins(self, repeat: int) -> Iterator[OriginCell]:
        """The models that others are trained from."""
        study = self.study
        if study.pretrain is None:
            name = external_model(str(study.model.name), read=self.read)
            yield BaseCell(name, self.parameters, study.model.start_token)
            return
        for scheme in study.pretrain.schemes:
            yield PretrainCell(
                options=study.pretrain, model=study.model, scheme=scheme, seed=study.seed + repeat,
                repeat=repeat, parameters=self.parameters, tokenizer=self.tokenizer,
                data=None if self.on_text else self.data,
                corpus=self.corpus if self.on_text else None,
            )  # fmt: skip

    def _trained_from(self, origin: OriginCell, repeat: int) -> Iterator[Cell]:
        """A model, those that are trained from it, and the measurements of all."""
        study, seed = self.study, self.study.seed + repeat
        yield origin
        options = study.finetune
        yield from self._measurements(origin, seed, is_last=options is None)
        if options is None:
            return
        for scheme in options.schemes:
            model = FinetuneCell(
                options=options, scheme=scheme, seed=seed, repeat=repeat, data=self.data,
                tokenizer=self.tokenizer, model=origin,
            )  # fmt: skip
            yield model
            yield from self._learning_curve(model, seed)
            yield from self._measurements(model, seed, is_last=True)

    def _learning_curve(self, model: FinetuneCell, seed: int) -> Iterator[Cell]:
        """The models kept before the last step, on questions of the task."""
        every, steps = model.options.keep_every, model.options.steps
        for step in range(every, steps, every) if every else ():
            kept = StepCell(step, model)
            yield kept
            assert self.data is not None
            subject = self._subject(kept, seed, (self.data,), is_last=True)
            yield from EvaluateCell.planned(self.study, subject)

    def _measurements(self, model: ModelCell, seed: int, *, is_last: bool) -> Iterator[Cell]:
        """The measurements of a model, after the questions that they read.

        `is_last` is false for a model that the study trains further: only perplexity and
        embeddings are measured.
        """
        own = (self.data,) if self.data else ()
        questions = (*own, *self.other_data, *self.benchmarks)
        if is_last:
            yield from questions
        subject = self._subject(model, seed, questions, is_last=is_last)
        for kind in MEASUREMENTS:
            yield from kind.planned(self.study, subject)

    def _subject(
        self, model: ModelCell, seed: int, questions: tuple[QuestionsCell, ...], *, is_last: bool
    ) -> Subject:
        part = self.study.few_shot
        few_shots = tuple(FewShot(part.examples, s) for s in part.schemes) if part else (None,)
        return Subject(model, seed, self.tokenizer, self.corpus, questions, few_shots, is_last)

    def _benchmarks(self) -> Iterator[BenchmarkCell]:
        part, few_shot = self.study.benchmarks, self.study.few_shot
        if part is None:
            return
        examples = few_shot.examples if few_shot else 0
        names = part.names
        if part.folder is not None and not names and self.read:
            names = tuple(benchmark_files(part.folder))
        for name in names:
            if part.folder is not None:
                file = external_file(Path(part.folder) / f"{name}.jsonl", read=self.read)
                yield BenchmarkCell(name, part.items + examples, file)
                continue
            revision = None
            if name in HUB:
                on_hub = HUB[name].name
                commit = pinned(on_hub, "dataset") if self.read else on_hub
                revision = commit.partition("@")[2] or None
            yield BenchmarkCell(name, part.items, None, revision, examples)


def _check_names(others: tuple[QuestionsCell, ...], data: DataCell | None) -> None:
    """Results name questions by their task, so two of one name cannot be told apart."""
    names = [cell.task for cell in (*((data,) if data else ()), *others)]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise RobustokError(
            f"two tasks are called '{repeated}': rename {repeated}.jsonl, or leave one out"
        )


def _transfers(attacks: list[AttackCell]) -> Iterator[TransferCell]:
    """Each model under the attacks of the same suite on all models; none for one model alone."""
    for own in attacks if len(attacks) > 1 else []:
        others = tuple(attack for attack in attacks if attack is not own)
        fields = {field.name: getattr(own, field.name) for field in dataclasses.fields(own)}
        yield TransferCell(**fields, own=own, others=others)


def _data(study: Study, task: WordTask, read: bool) -> DataCell:
    """The task's questions. Only the content of a file matters, not its place."""
    if task.data is not None:
        files = tuple(external_file(p, read=read) for p in (task.data.train, task.data.test))
        return DataCell(task.kind, 0, task.train, task.test, 0, task.format, files)
    words: int | tuple[str, ...] = task.words
    if task.words_file is not None and read:
        words = tuple(read_words(task.words_file))
    return DataCell(task.kind, words, task.train, task.test, study.seed, task.format)


def _text(corpus: CorpusSection, read: bool, *, train: bool) -> Text:
    """The text that is held out, and that to train on where a model is trained on text."""
    if corpus.hub:
        name = pinned(corpus.hub, "dataset") if read else corpus.hub
        return HubText(corpus.documents if train else 0, corpus.measured, name)
    files = tuple(external_file(path, read=read) for path in corpus.train) if train else ()
    held_out = external_file(corpus.held_out, read=read) if corpus.held_out else None
    return FileText(corpus.documents, corpus.measured, files, held_out, corpus.sample_by)
