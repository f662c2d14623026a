"""Defenses of one model on one task: accuracy, accuracy under attack, and costs; detectors.

The attack is run on each model that reads the client's ids: the plain one and every one trained to
be robust. Canonicalization, drawn inference and detection protect the plain model, and are given
the ids that broke it. An :class:`Adversary` attacks the batches of a fine-tuning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from robustok.attack.engine import AttackedModel, attack_prompts
from robustok.attack.objectives import TargetLikelihood
from robustok.attack.records import Prompt
from robustok.attack.settings import AttackSettings
from robustok.checks import check_integer
from robustok.errors import RobustokError
from robustok.evaluation.ensemble import METHODS, choose_many
from robustok.evaluation.intervals import clustered
from robustok.evaluation.questions import (
    Ids,
    append,
    check_questions,
    encode_options,
    item_keys,
    sequence_log_probs,
)
from robustok.guard import Guard
from robustok.lattice import distance
from robustok.ragged import Ragged
from robustok.runtime.display import Progress, part_of_progress
from robustok.samplers import sampler
from robustok.scoring import Request, score_many
from robustok.tasks.item import Item
from robustok.tokenizer.vocabulary import Vocabulary

Rows = Sequence[np.ndarray]
Reader = Callable[[Rows], tuple[np.ndarray, int]]  # the answers, and the tokens read
Detector = Callable[[Rows | Ragged], np.ndarray]  # scores of rows; higher is more suspicious


@dataclass(frozen=True)
class Defense:
    """One row of the table.

    >>> Defense("none", 0.9, 0.2, 0.1, 0.3, 1.0, 0.01).as_row()["defense"]
    'none'

    Args:
        defense: what protects the model.
        accuracy: accuracy on canonical ids; a flagged input counts as wrong.
        attacked: accuracy on attacked ids; a flagged attack counts as right, since it is refused.
        low: lower 95% bound of ``attacked``.
        high: upper 95% bound.
        tokens: tokens that the model reads of a canonical input, relative to those without a
            defense.
        seconds: wall-clock seconds for an input.
        auc: area under the curve of a detector; None for other defenses.
        detected: share of attacks flagged at the allowed rate of false positives; None likewise.
        threshold: the detector's threshold at this rate; None likewise.
    """

    defense: str
    accuracy: float
    attacked: float
    low: float
    high: float
    tokens: float
    seconds: float
    auc: float | None = None
    detected: float | None = None
    threshold: float | None = None

    def as_row(self) -> dict[str, Any]:
        """A plain dictionary, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class DefenseTable:
    """All defenses, and what was measured beside them.

    >>> table = measure_defenses(model, vocab, items[:2], draws=2, max_scored=8, seed=0)
    >>> table.rows[1].defense, table.n
    ('canonicalization', 2)

    Args:
        rows: the defenses, the model without one first.
        n: number of items.
        seed: seed of all random choices.
        curves: the curve of each detector, by name.
        false_positives: share of benign inputs that a detector could flag.
    """

    rows: list[Defense]
    n: int
    seed: int
    curves: dict[str, Roc]
    false_positives: float = 0.01

    def __str__(self) -> str:
        head = f"{'defense':<32}{'clean':>7}{'attacked':>10}{'95%':>16}{'tokens':>8}{'ms':>8}"
        lines = [head]
        for row in self.rows:
            bounds = f"[{row.low:.1%}, {row.high:.1%}]"
            detector = (
                "" if row.auc is None else f"   AUC {row.auc:.3f}, {row.detected:.1%} detected"
            )
            lines.append(
                f"{row.defense:<32}{row.accuracy:>7.1%}{row.attacked:>10.1%}{bounds:>16}"
                f"{row.tokens:>7.1f}x{1000 * row.seconds:>8.1f}{detector}"
            )
        return "\n".join(lines)


def measure_defenses(
    model: Any,
    vocab: Vocabulary,
    items: Sequence[Item],
    *,
    trained: Mapping[str, Any] | None = None,
    spec: str = "uniform",
    draws: int = 10,
    benign: str = "canonical",
    false_positives: float = 0.01,
    max_scored: int = 200,
    prefix: Ids | None = None,
    suffix: Ids | None = None,
    seed: int,
    resume_dir: str | Path | None = None,
    progress: Progress | None = None,
) -> DefenseTable:
    """Measure every defense on multiple-choice items.

    >>> table = measure_defenses(model, vocab, items[:2], draws=2, max_scored=8, seed=0)
    >>> [row.defense for row in table.rows][:4]
    ['none', 'canonicalization', 'mean of 2 draws', 'vote of 2 draws']

    Args:
        model: the unprotected causal language model of transformers.
        vocab: its vocabulary.
        items: the questions, each with its own key.
        trained: models of the same vocabulary that were trained to be robust, by name, such as
            "stochastic fine-tuning" and "adversarial training"; by default none. Each is attacked
            itself.
        spec: scheme of drawn inference, by default ``"uniform"``.
        draws: draws of an input, at least 1.
        benign: scheme of benign traffic, ``draws`` of each question, which detectors must let pass.
            With ``"canonical"`` every other tokenization can be flagged; use a scheme such as
            ``"stochastok(alpha=0.05)"`` if clients re-tokenize.
        false_positives: share of benign inputs that a detector may flag.
        max_scored: tokenizations that the attack scores for an item.
        prefix: ids before every question that stay as they are; by default none.
        suffix: ids between every question and its options; by default none.
        seed: any integer; decides all draws.
        resume_dir: folder that keeps each finished attack, a file for each model. Another call with
            the same arguments reads them and attacks only the other questions.
        progress: called with (questions attacked, questions), all models together.

    The attack is the greedy one at distance 2, from the canonical tokenization and then from
    uniform draws, and stops where an answer is wrong. It does not adapt to a detector.

    Raises RobustokError as :func:`robustok.attack.attack_items`, and for attacks of other
    arguments in ``resume_dir``.
    """
    check_questions(items)
    check_integer("draws", draws, 1)
    task = _Task(vocab, items, prefix, suffix)
    trained = trained or {}
    settings = AttackSettings(steps=1000, restarts=1000, max_scored=max_scored)
    attacked = task.attack({"none": model, **trained}, settings, seed, resume_dir, progress)
    broken = attacked["none"]

    guard, read = Guard(vocab), partial(task.read, model)
    readers: dict[str, Reader] = {
        "none": read,
        "canonicalization": lambda rows: read([guard.check(row).repaired for row in rows]),
    }
    for how in METHODS:
        smoothed = partial(task.read_draws, model, spec, draws, how, seed)
        readers[f"{how} of {draws} draws"] = smoothed
    rows = [task.row(name, reader, broken) for name, reader in readers.items()]
    rows += [task.row(n, partial(task.read, m), attacked[n]) for n, m in trained.items()]

    detectors: dict[str, Detector] = {
        "distance": lambda rows: distance_scores(vocab, rows),
        "likelihood": lambda rows: likelihood_scores(model, vocab, rows, prefix=prefix),
        "uniform : canonical": lambda rows: scheme_scores(vocab, rows),
    }
    questions = [item.question for item in items]
    # Draws of an epoch of their own, so that drawn inference does not repeat them.
    traffic = sampler(benign, vocab).sample_batch(
        questions, seed=seed, draws=draws, keys=task.keys, epoch=7
    )
    curves = {}
    for name, detector in detectors.items():
        curve = roc(detector(traffic), detector(broken), false_positives=false_positives)
        row = task.row(
            f"detection by {name}", read, broken,
            lambda rows, at=curve.threshold, score=detector: score(rows) > at,
        )  # fmt: skip
        curves[name] = curve
        rows.append(replace(row, auc=curve.auc, detected=curve.detected, threshold=curve.threshold))
    rows = [replace(row, tokens=row.tokens / rows[0].tokens) for row in rows]
    return DefenseTable(rows, len(items), seed, curves, false_positives)


class _Task:
    """The items, and how each defense reads their ids."""

    def __init__(
        self, vocab: Vocabulary, items: Sequence[Item], prefix: Ids | None, suffix: Ids | None
    ) -> None:
        self.vocab, self.items, self.prefix, self.suffix = vocab, items, prefix, suffix
        self.options = [encode_options(vocab, item.choices) for item in items]
        self.labels = np.array([item.label for item in items])
        self.keys = item_keys(item.key for item in items)
        self.clean = [vocab.encode(item.question) for item in items]

    def attack(
        self,
        models: Mapping[str, Any],
        settings: AttackSettings,
        seed: int,
        folder: str | Path | None,
        progress: Progress | None,
    ) -> dict[str, Rows]:
        """The attacked ids of every item by model; those in ``folder`` are read, new ones added."""
        prompts = [Prompt.of_item(item) for item in self.items]
        total = len(models) * len(prompts)
        attacked: dict[str, Rows] = {}
        for number, (name, model) in enumerate(models.items()):
            attacked_model = AttackedModel(model, self.vocab, self.prefix, self.suffix)
            attacks = attack_prompts(
                self.vocab, prompts, attacked_model.margin, settings=settings, seed=seed,
                resume_file=Path(folder) / f"{name.replace(' ', '-')}.jsonl" if folder else None,
                progress=part_of_progress(progress, number * len(prompts), total),
            )  # fmt: skip
            attacked[name] = [attack.ids for attack in attacks]
        return attacked

    def read(self, model: Any, rows: Rows) -> tuple[np.ndarray, int]:
        """A :data:`Reader` of the ids as they come."""
        requests = [
            Request(append(Ragged.from_rows([row]), self.suffix), options, self.prefix)
            for row, options in zip(rows, self.options, strict=True)
        ]
        scores = score_many(model, requests)
        answers = np.array([one.log_probs[0].argmax() for one in scores])
        return answers, sum(one.tokens_computed for one in scores)

    def read_draws(
        self, model: Any, spec: str, draws: int, how: str, seed: int, rows: Rows
    ) -> tuple[np.ndarray, int]:
        """A :data:`Reader` of draws of the text that the ids spell."""
        texts = [self.vocab.decode_bytes(row) for row in rows]
        options = [item.choices for item in self.items]
        answers = choose_many(
            model, self.vocab, texts, options, spec, draws=draws, seed=seed, keys=self.keys,
            prefix=self.prefix, suffix=self.suffix,
        )  # fmt: skip
        chosen = [a.answer if how == "mean" else a.majority for a in answers]
        return np.array(chosen), sum(a.tokens_computed for a in answers)

    def row(
        self,
        name: str,
        read: Reader,
        attacked: Rows,
        flags: Callable[[Rows], np.ndarray] = lambda rows: np.zeros(len(rows), bool),
    ) -> Defense:
        """A defense, which refuses the rows that ``flags``, bool [rows]."""
        began = time.perf_counter()
        answers, tokens = read(self.clean)
        right = (answers == self.labels) & ~flags(self.clean)
        seconds = (time.perf_counter() - began) / len(self.clean)
        held = (read(attacked)[0] == self.labels) | flags(attacked)
        accuracy, low, high = clustered(held.astype(float))
        tokens_each = tokens / len(self.clean)
        return Defense(name, float(right.mean()), accuracy, low, high, tokens_each, seconds)


@dataclass(frozen=True)
class Roc:
    """How well a score separates attacks from benign inputs.

    >>> curve = roc([0, 0, 1], [4, 5, 6], false_positives=0.01)
    >>> curve.auc, curve.threshold, curve.detected
    (1.0, 1.0, 1.0)

    Args:
        auc: area under the curve: probability that an attack scores higher than a benign input,
            ties counted by half.
        threshold: inputs that score higher are flagged.
        flagged_benign: share of the benign inputs that are flagged, at most the rate allowed.
        detected: share of the attacks that are flagged.
        false_positive_rates: the curve's first coordinate, from 0 to 1.
        true_positive_rates: its second one.
    """

    auc: float
    threshold: float
    flagged_benign: float
    detected: float
    false_positive_rates: tuple[float, ...]
    true_positive_rates: tuple[float, ...]


def roc(
    benign: Sequence[float] | np.ndarray,
    attacked: Sequence[float] | np.ndarray,
    *,
    false_positives: float = 0.01,
) -> Roc:
    """The curve of a score, and the lowest threshold with few enough false positives.

    >>> roc([0, 1, 2, 3], [1, 2, 3, 4], false_positives=0.25).detected
    0.5

    Args:
        benign: scores of benign inputs; higher means more suspicious.
        attacked: scores of attacks.
        false_positives: greatest share of benign inputs that are flagged, from 0 to 1.

    Raises RobustokError where either is missing or not a number.
    """
    low, high = np.asarray(benign, np.float64), np.asarray(attacked, np.float64)
    if not len(low) or not len(high) or np.isnan(low).any() or np.isnan(high).any():
        raise RobustokError("a curve needs scores of benign inputs and of attacks, all numbers")
    if not 0 <= false_positives <= 1:
        raise RobustokError(f"false_positives {false_positives} is not between 0 and 1")
    thresholds = np.concatenate([[np.inf], np.unique(np.concatenate([low, high]))[::-1]])
    false_rates = np.array([np.mean(low > t) for t in thresholds] + [1.0])
    true_rates = np.array([np.mean(high > t) for t in thresholds] + [1.0])
    best = int(np.flatnonzero(false_rates[:-1] <= false_positives)[-1])
    above = np.mean(high[:, None] > low[None]) + np.mean(high[:, None] == low[None]) / 2
    return Roc(
        float(above), float(thresholds[best]), float(false_rates[best]), float(true_rates[best]),
        tuple(false_rates.tolist()), tuple(true_rates.tolist()),
    )  # fmt: skip


def distance_scores(vocab: Vocabulary, rows: Sequence[Ids] | Ragged) -> np.ndarray:
    """Distance of each tokenization from the canonical one of its text, float64 [rows].

    >>> distance_scores(vocab, [vocab.encode("hello")]).tolist()
    [0.0]

    Args:
        vocab: the vocabulary.
        rows: the tokenizations, of any texts.
    """
    return np.array([float(distance(vocab, vocab.canonicalize(row), row)) for row in rows])


def likelihood_scores(
    model: Any, vocab: Vocabulary, rows: Sequence[Ids] | Ragged, *, prefix: Ids | None = None
) -> np.ndarray:
    """How much less likely each tokenization is than the canonical one of its text, in nats.

    >>> likelihood_scores(model, vocab, [vocab.encode("hello")]).tolist()
    [0.0]

    Args:
        model: any causal language model of transformers.
        vocab: its vocabulary.
        rows: the tokenizations, of any texts.
        prefix: ids before each, by default the model's start token.

    Costs two forward passes for each tokenization, and none for a canonical one.
    """
    scores, cache = [], {}
    for row in rows:
        pair = [vocab.canonicalize(row), np.asarray(row, np.int32)]
        if np.array_equal(*pair):
            scores.append(0.0)
            continue
        canonical, given = sequence_log_probs(model, pair, prefix, cache).tolist()
        scores.append(canonical - given)
    return np.array(scores)


def scheme_scores(
    vocab: Vocabulary, rows: Sequence[Ids] | Ragged, benign: str = "canonical"
) -> np.ndarray:
    """Log-likelihood ratio of ``uniform`` against the scheme of benign traffic, in nats.

    >>> bool(scheme_scores(vocab, [vocab.encode("hello")])[0] < 0)
    True

    Args:
        vocab: the vocabulary.
        rows: the tokenizations, of any texts.
        benign: spec of a scheme with exact probabilities. Against ``"canonical"``, which gives all
            other tokenizations probability 0, every other tokenization scores infinity.

    Needs no model.

    Raises RobustokError for a scheme without exact probabilities.
    """
    uniform, other = sampler("uniform", vocab), sampler(benign, vocab)
    return np.array([uniform.log_prob(row) - other.log_prob(row) for row in rows])


class Adversary:
    """Attacks the questions of every n-th batch; the option ``adversary`` of ``finetune``.

    >>> from robustok.training import finetune
    >>> adversary = Adversary(model, vocab, items, every=2, max_scored=8, seed=0)
    >>> done = finetune(model, vocab, items, sampler=rt.sampler("uniform", vocab), steps=2,
    ...                 batch_size=2, learning_rate=1e-3, seed=0, out="runs/adv",
    ...                 adversary=adversary)
    >>> adversary.n_scored > 0
    True

    Args:
        model: the model in training.
        vocab: its vocabulary.
        items: the questions that it is trained on, in the same order.
        every: attacks one batch of so many, at least 1.
        max_scored: tokenizations scored for a question, at least 2.
        prefix: ids before every question, those given to ``finetune``; by default none.
        seed: any integer; it decides which neighbors are scored.

    An attack is a greedy ascent of minus the log-probability of the answer, from the canonical
    tokenization, with a quarter of ``max_scored`` neighbors a step. It reads the weights when its
    batch is loaded, which is a step before the batch is trained on. A question too long for the
    model is not attacked.

    Raises RobustokError for a number out of range.
    """

    def __init__(
        self, model: Any, vocab: Vocabulary, items: Sequence[Item], *, every: int = 4,
        max_scored: int = 32, prefix: Ids | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        if every < 1 or max_scored < 2:
            raise RobustokError("every must be at least 1, and max_scored at least 2")
        self.model, self.vocab, self.items = model, vocab, items
        self.every, self.prefix, self.seed, self.n_scored = every, prefix, seed, 0
        self.settings = AttackSettings(
            steps=8, max_neighbors=max(1, max_scored // 4), max_scored=max_scored
        )

    @property
    def spec(self) -> str:
        """The settings as one string, for the record of a training."""
        return f"every {self.every}: {self.settings}, seed {self.seed}"

    def __call__(self, numbers: Sequence[int]) -> Ragged:
        """A tokenization with a low probability of the answer, for some numbers of ``items``."""
        prompts: list[Prompt] = []
        ids: dict[str, np.ndarray] = {}
        losses: dict[str, _AnswerLoss] = {}
        for number in dict.fromkeys(numbers):
            key, item = str(number), self.items[number]
            ids[key] = self.vocab.encode(item.question)
            losses[key] = _AnswerLoss(self.model, self.vocab, item.answer, prefix=self.prefix)
            longest = losses[key].max_length
            # A question too long for an attack is left to the data set's overflow policy.
            if longest is None or len(ids[key]) <= longest:
                prompts.append(Prompt(key, item.question))
        if prompts:
            attacks = attack_prompts(
                self.vocab, prompts, lambda prompt: losses[prompt.key], settings=self.settings,
                seed=self.seed,
            )  # fmt: skip
            self.n_scored += sum(attack.n_scored for attack in attacks)
            ids |= {attack.key: attack.ids for attack in attacks}
        return Ragged.from_rows([ids[str(number)] for number in numbers])


class _AnswerLoss(TargetLikelihood):
    """Minus the log-probability of an answer."""

    name = "loss"

    def read(self, log_probs: np.ndarray) -> np.ndarray:
        return -super().read(log_probs)
