"""Plans the cells of a study, each after the cells that it depends on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path

from robustok.errors import RobustokError, nearest
from robustok.models.load import pinned
from robustok.study import inputs, models
from robustok.study.cell import Cell, parameters
from robustok.study.measurements import Subject
from robustok.study.schema import Study
from robustok.study.sections import BenchmarksSection, CorpusSection, WordTask
from robustok.tasks import HUB, benchmark_files
from robustok.tasks.item import benchmark_of
from robustok.tasks.words import read_words

MAX_CELLS = 20_000  # with those that are planned more than once


def plan(study: Study, *, by_content: bool = True) -> tuple[Cell, ...]:
    """The cells of a study, each after all that it depends on.

    >>> from robustok.study import find_study
    >>> cells = plan(find_study("teaser", scale="cpu"))
    >>> [cell.label for cell in cells][:4]
    ['data', 'tokenizer', 'pretrain canonical', 'finetune canonical']

    Args:
        study: the study.
        by_content: whether keys depend on the content of files and on commits of the hub (default).
            False opens no file and sends no request; that suffices for counts and estimates of
            cost.

    Models are evaluated right after they are trained, so that an interrupted run has complete rows
    of results. Raises RobustokError for a file that cannot be read, and for more than `MAX_CELLS`.
    """
    cells: dict[str, Cell] = {}
    planned = chain.from_iterable(_Planner(s, by_content).cells() for s in study.by_model)
    for number, cell in enumerate(planned):
        earlier = cells.setdefault(cell.key, cell)
        if isinstance(cell, models.BaseCell) and earlier.label != cell.label:
            names = " and ".join(c.label.removeprefix("base ") for c in (earlier, cell))
            raise RobustokError(f"{names} are one model, with the same weights: leave one out")
        if number >= MAX_CELLS:  # repeats of a model alone are one cell
            raise RobustokError(
                f"the study '{study.name}' has more than {MAX_CELLS:,} cells: lower its repeats, "
                "or shorten its lists"
            )
    return tuple(cells.values())


class _Planner:
    """Makes the cells of one study; the inputs that several cells share are made once, at first."""

    def __init__(self, study: Study, by_content: bool) -> None:
        self.study, self.by_content = study, by_content
        self.file = partial(inputs.external_file, by_content=by_content)
        self.named_model = partial(inputs.external_model, by_content=by_content)
        self.examples = study.few_shot.examples if study.few_shot else 0
        self.parameters = parameters(study.model, study.tokenizer)
        self.data = self._data(study.task) if study.task else None
        self.on_text = study.pretrain is not None and study.pretrain.source == "corpus"
        text = None
        corpus = study.corpus
        if corpus and (self.on_text or (study.perplexity and (corpus.hub or corpus.held_out))):
            text = self._text(corpus)
        self.tokenizer = self._tokenizer(text if self.on_text else None)
        self.corpus = inputs.CorpusCell(text, self.tokenizer) if text else None
        self.questions = tuple(self._questions())
        names = [cell.task for cell in self.questions]  # by which results name them
        for name in names:
            if names.count(name) > 1:
                raise RobustokError(
                    f"two tasks are called '{name}': rename {name}.jsonl, or leave one out"
                )

    def cells(self) -> Iterator[Cell]:
        # Questions before models: a file that cannot be read is found before a model is loaded.
        study, shared = self.study, (self.data, self.tokenizer, self.corpus, *self.questions)
        yield from (cell for cell in shared if cell is not None)
        for repeat in study.repeat_numbers:
            for origin in self._origins(repeat):
                yield from self._trained_from(origin, repeat)

    def _tokenizer(self, text: inputs.Text | None) -> inputs.TokenizerCell:
        chosen = self.study.tokenizer
        if chosen is None or chosen.size is None:
            name = str(chosen.name if chosen else self.study.model.name)
            return inputs.ExistingTokenizerCell(self.named_model(name))
        return inputs.TrainedTokenizerCell(chosen.size, None if text else self.data, text)

    def _origins(self, repeat: int) -> Iterator[models.OriginCell]:
        """The models that others are trained from."""
        study = self.study
        if study.pretrain is None:
            name = self.named_model(str(study.model.name))
            model = study.model
            given = name, self.parameters, model.start_token, model.dtype, model.label
            chat = models.ChatCell(*given, model.system)
            yield chat if model.is_chat else models.BaseCell(*given)
            return
        for scheme in study.pretrain.schemes:
            yield models.PretrainCell(
                options=study.pretrain,
                model=study.model,
                scheme=scheme,
                seed=study.seed + repeat,
                repeat=repeat,
                parameters=self.parameters,
                tokenizer=self.tokenizer,
                data=None if self.on_text else self.data,
                corpus=self.corpus if self.on_text else None,
            )

    def _trained_from(self, origin: models.OriginCell, repeat: int) -> Iterator[Cell]:
        """A model, those that are trained from it, and the measurements of all."""
        seed, options = self.study.seed + repeat, self.study.finetune
        yield origin
        yield from self._measurements(origin, seed, is_last=options is None)
        if options is None:
            return
        for scheme in options.schemes:
            model = models.FinetuneCell(
                options=options,
                scheme=scheme,
                seed=seed,
                repeat=repeat,
                data=self.data,
                tokenizer=self.tokenizer,
                model=origin,
            )
            yield model
            every = options.keep_every
            for step in range(every, options.steps, every) if every else ():
                kept = models.StepCell(step, model)
                yield kept
                yield from self._measurements(kept, seed, is_last=True)
            yield from self._measurements(model, seed, is_last=True)

    def _measurements(self, model: models.ModelCell, seed: int, *, is_last: bool) -> Iterator[Cell]:
        """The measurements of a model, after the questions that they read."""
        study, questions, few_shot = self.study, self.questions, self.study.few_shot
        wanted = list(study.measurements)
        if isinstance(model, models.StepCell):  # evaluated alone, on the task
            questions, wanted = questions[:1], [study.evaluate] if study.evaluate else []
        yield from questions
        few_shots = tuple(few_shot.variants()) if few_shot else (None,)
        subject = Subject(model, seed, self.tokenizer, self.corpus, questions, few_shots, is_last)
        for measurement in wanted:
            yield from measurement.planned(subject)

    def _questions(self) -> Iterator[inputs.QuestionsCell]:
        """All that the study evaluates on: its tasks, its benchmarks, and the user's own."""
        study = self.study
        if self.data:
            yield self.data
        yield from map(self._data, study.other_tasks or ())
        if study.benchmarks:
            yield from self._benchmarks(study.benchmarks)
        for source in study.questions.items if study.questions else ():
            yield from self._own_questions(source)

    def _benchmarks(self, part: BenchmarksSection) -> Iterator[inputs.BenchmarkCell]:
        if part.folder is None:
            yield from (self._benchmark(name, part.items) for name in part.names)
            return
        for name in part.names or (benchmark_files(part.folder) if self.by_content else ()):
            path = Path(part.folder) / name  # a copy of the benchmark's repository
            path = path if path.is_dir() else path.with_name(f"{name}.jsonl")
            yield self._benchmark(name, part.items, path)

    def _own_questions(self, source: str) -> Iterator[inputs.BenchmarkCell]:
        """The questions of a file or a folder, or of a benchmark of the hub by its name."""
        name, _, revision = source.partition("@")
        if name in HUB and not Path(source).exists():
            yield self._benchmark(name, revision=revision)
            return
        if not source or not Path(source).exists():
            raise RobustokError(f"no file and no benchmark '{source}': {nearest(name, HUB)}")
        path = Path(source)
        files = benchmark_files(path) if path.is_dir() else {benchmark_of(path): path}
        yield from (self._benchmark(task, path=path) for task, path in files.items())

    def _benchmark(
        self,
        name: str,
        items: int | None = None,
        path: str | Path | None = None,
        revision: str = "",
    ) -> inputs.BenchmarkCell:
        """The first questions of a benchmark, or all of a user's, from a file or the hub."""
        file = None if path is None else self.file(path)
        if file is None and not revision:
            revision = self._pinned(HUB[name].name).partition("@")[2]
        is_own = items is None
        return inputs.BenchmarkCell(name, items, file, revision or None, self.examples, is_own)

    def _pinned(self, name: str) -> str:
        """A data set of the hub, with its commit where content counts."""
        return pinned(name, "dataset") if self.by_content else name

    def _data(self, task: WordTask) -> inputs.DataCell:
        """The task's questions. Only what is read of a file matters, not its place."""
        if task.data is not None:
            read = partial(inputs.external_questions, by_content=self.by_content)
            files = read(task.data.train), read(task.data.test)
            return inputs.DataCell(task.kind, 0, task.train, task.test, 0, task.format, files)
        words: int | tuple[str, ...] = task.words
        if task.words_file is not None and self.by_content:
            words = tuple(read_words(task.words_file))
        seed = self.study.seed
        return inputs.DataCell(task.kind, words, task.train, task.test, seed, task.format)

    def _text(self, corpus: CorpusSection) -> inputs.Text:
        """The text that is held out, and that to train on where a model is trained on text."""
        count, measured = corpus.documents, corpus.measured
        if corpus.hub:
            name = self._pinned(corpus.hub)
            return inputs.HubText(count if self.on_text else 0, measured or 0, name)
        file = partial(inputs.external_text, by_content=self.by_content)
        files = tuple(map(file, corpus.train)) if self.on_text else ()
        held_out = tuple(map(file, corpus.held_out))
        return inputs.FileText(count, measured, files, held_out, corpus.sample_by)
