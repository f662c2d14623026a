"""Plans the cells of a study, each after the cells that it depends on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from robustok.samplers.spec import Spec
from robustok.study.cells import (
    AttackCell,
    BaseCell,
    BenchmarkCell,
    Cell,
    CorpusCell,
    DataCell,
    EmbeddingsCell,
    EvaluateCell,
    ExamplesCell,
    ExistingTokenizerCell,
    FewShot,
    FinetuneCell,
    ModelCell,
    PerplexityCell,
    PretrainCell,
    QuestionsCell,
    TokenizerCell,
    TrainedTokenizerCell,
    TransferCell,
)
from robustok.study.cost import parameters
from robustok.study.equal_strength import splits_in
from robustok.study.external import external_file, external_model, pinned_name
from robustok.study.schema import Corpus, Study, WordTask
from robustok.study.text import FileText, HubText, Text
from robustok.tasks import HUB
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


@dataclass(frozen=True)
class _Shared:
    """The cells that all models of a study use."""

    tokenizer: TokenizerCell
    data: DataCell | None
    corpus: CorpusCell | None


class _Planner:
    def __init__(self, study: Study, read: bool) -> None:
        self.study, self.read = study, read
        self.parameters = parameters(study)
        self.shared = self._shared()
        self.benchmarks = tuple(self._benchmarks())

    def cells(self) -> Iterator[Cell]:
        shared = (self.shared.data, self.shared.tokenizer, self.shared.corpus)
        yield from (cell for cell in shared if cell is not None)
        yield from self._examples()
        for repeat in range(self.study.repeats):
            suites: dict[tuple[object, ...], list[AttackCell]] = {}
            for base in self._bases(repeat):
                for cell in self._base_and_finetuned(base, repeat):
                    yield cell
                    if isinstance(cell, AttackCell) and cell.attack.transfer:
                        suites.setdefault((cell.attack, cell.few_shot), []).append(cell)
            for attacks in suites.values():
                yield from _transfers(attacks)

    def _shared(self) -> _Shared:
        study = self.study
        data = _data(study, study.task, self.read) if study.task else None
        on_text = study.pretrain is not None and study.pretrain.source == "corpus"
        text = None
        if study.corpus and (on_text or study.perplexity):
            text = _text(study.corpus, self.read)
        tokenizer = self._tokenizer(data, text if on_text else None)
        return _Shared(tokenizer, data, CorpusCell(text, tokenizer) if text else None)

    def _tokenizer(self, data: DataCell | None, text: Text | None) -> TokenizerCell:
        chosen = self.study.tokenizer
        if chosen is None or chosen.size is None:
            name = str(chosen.name if chosen else self.study.model.name)
            return ExistingTokenizerCell(external_model(name, read=self.read))
        return TrainedTokenizerCell(chosen.size, None if text else data, text)

    def _examples(self) -> Iterator[Cell]:
        examples, study = self.study.examples, self.study
        if examples is None:
            return
        trained = [s for part in (study.pretrain, study.finetune) if part for s in part.schemes]
        schemes = tuple(dict.fromkeys(["canonical", *trained]))
        yield ExamplesCell(
            examples.texts, schemes, examples.draws, study.seed, self.shared.tokenizer
        )

    def _bases(self, repeat: int) -> Iterator[ModelCell]:
        """The models that others are trained from."""
        study, shared = self.study, self.shared
        options = study.pretrain
        if options is None:
            name = external_model(str(study.model.name), read=self.read)
            yield BaseCell(name, self.parameters, study.model.start_token)
            return
        on_text = options.source == "corpus"
        for scheme in options.schemes:
            yield PretrainCell(
                options,
                study.model,
                scheme,
                seed=study.seed + repeat,
                repeat=repeat,
                parameters=self.parameters,
                tokenizer=shared.tokenizer,
                data=None if on_text else shared.data,
                corpus=shared.corpus if on_text else None,
            )

    def _base_and_finetuned(self, base: ModelCell, repeat: int) -> Iterator[Cell]:
        """A base model, the models trained from it, and their measurements."""
        study, shared, seed = self.study, self.shared, self.study.seed + repeat
        yield base
        if study.perplexity:
            assert shared.corpus is not None
            for scheme in study.perplexity.eval_schemes:
                yield PerplexityCell(scheme, seed, shared.tokenizer, shared.corpus, base)
        yield from self._embeddings(base, seed)
        if study.finetune is None:
            yield from self._accuracies(base, seed)
            return
        assert shared.data is not None
        for scheme in study.finetune.schemes:
            model = FinetuneCell(
                study.finetune, scheme, seed, repeat, shared.data, shared.tokenizer, base
            )
            yield model
            yield from self._accuracies(model, seed)
            yield from self._embeddings(model, seed)

    def _embeddings(self, model: ModelCell, seed: int) -> Iterator[Cell]:
        if part := self.study.embeddings:
            yield EmbeddingsCell(part.words, part.draws, seed, self.shared.tokenizer, model)

    def _accuracies(self, model: ModelCell, seed: int) -> Iterator[Cell]:
        """The measurements of a model on its task and on the benchmarks."""
        data: tuple[QuestionsCell, ...] = self.benchmarks
        if self.shared.data:
            data = (self.shared.data, *data)
        yield from data
        for questions in data:
            for few_shot in self._few_shots():
                yield from self._evaluations(model, questions, few_shot, seed)
                if isinstance(questions, DataCell):
                    for attack in self.study.attacks:
                        yield AttackCell(
                            attack, seed, questions, self.shared.tokenizer, model, few_shot
                        )

    def _few_shots(self) -> list[FewShot | None]:
        part = self.study.few_shot
        if part is None:
            return [None]
        return [FewShot(part.examples, scheme) for scheme in part.schemes]

    def _evaluations(
        self, model: ModelCell, data: QuestionsCell, few_shot: FewShot | None, seed: int
    ) -> Iterator[Cell]:
        part = self.study.evaluate
        if part is None:
            return
        for scheme in part.eval_schemes:
            fixed = splits_in(scheme) is None and Spec.parse(scheme).is_deterministic
            draws = 1 if fixed else part.draws
            yield EvaluateCell(
                scheme, part.items, draws, seed, data, self.shared.tokenizer, model, few_shot
            )
            if part.ensemble is not None and not fixed:
                yield EvaluateCell(
                    scheme, part.items, part.ensemble, seed, data, self.shared.tokenizer, model,
                    few_shot, "mean",
                )  # fmt: skip

    def _benchmarks(self) -> Iterator[BenchmarkCell]:
        part, few_shot = self.study.benchmarks, self.study.few_shot
        if part is None:
            return
        examples = few_shot.examples if few_shot else 0
        for name in part.names:
            if part.folder is not None:
                file = external_file(Path(part.folder) / f"{name}.jsonl", read=self.read)
                yield BenchmarkCell(name, part.items + examples, file)
                continue
            revision = None
            if name in HUB:
                pinned = pinned_name(HUB[name].name, "dataset", read=self.read)
                revision = pinned.partition("@")[2] or None
            yield BenchmarkCell(name, part.items, None, revision, examples)


def _transfers(attacks: list[AttackCell]) -> Iterator[TransferCell]:
    """Each model under the attacks of the same suite on all models; none for one model alone."""
    for own in attacks if len(attacks) > 1 else []:
        others = tuple(attack for attack in attacks if attack is not own)
        yield TransferCell(
            own.attack, own.seed, own.data, own.tokenizer, own.model, own.few_shot, own, others
        )


def _data(study: Study, task: WordTask, read: bool) -> DataCell:
    """The task's questions. Only the content of a file matters, not its place."""
    if task.data is not None:
        files = tuple(external_file(p, read=read) for p in (task.data.train, task.data.test))
        return DataCell(task.kind, 0, task.train, task.test, 0, task.format, files)
    words = task.words if task.words_file is None else tuple(read_words(task.words_file))
    return DataCell(task.kind, words, task.train, task.test, study.seed, task.format)


def _text(corpus: Corpus, read: bool) -> Text:
    if corpus.hub:
        name = pinned_name(corpus.hub, "dataset", read=read)
        return HubText(corpus.documents, corpus.measured, name)
    train = tuple(external_file(path, read=read) for path in corpus.train)
    held_out = external_file(corpus.held_out, read=read) if corpus.held_out else None
    return FileText(corpus.documents, corpus.measured, train, held_out, corpus.sample_by)
