"""Defenses of one model on one task, in one table: accuracy, accuracy under attack, and costs.

The attack is run on each model that reads the client's ids: the plain one and every one trained to
be robust. Canonicalization, drawn inference and detection protect the plain model, and are given
the ids that broke it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.attack_settings import AttackSettings
from robustok.display import Progress
from robustok.ensemble import choose_many
from robustok.errors import RobustokError
from robustok.evaluation.adversarial.problem import append
from robustok.evaluation.intervals import clustered
from robustok.evaluation.questions import Ids, check_questions, encode_options, item_key
from robustok.evaluation.resume import RowFile
from robustok.models.fingerprint import model_fingerprint
from robustok.ragged import Ragged
from robustok.redteam.attacks import attack_prompt
from robustok.redteam.causal import Margin
from robustok.redteam.detection import (
    Roc,
    distance_scores,
    likelihood_scores,
    roc,
    scheme_scores,
)
from robustok.scoring import Request, score_many

if TYPE_CHECKING:
    from robustok.tasks.item import Item
    from robustok.vocabulary import Vocabulary

Rows = Sequence[np.ndarray]


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
        tokens: tokens that the model reads for an input, relative to those without a defense.
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
    >>> table.rows[1].defense, table.survived
    ('canonicalization', 0)

    Args:
        rows: the defenses, the model without one first.
        n: number of items.
        seed: seed of all random choices.
        survived: attacked inputs whose ids are still not canonical after re-encoding. None can be:
            the guard returns the canonical ids of their text.
        curves: the curve of each detector, by name.
        false_positives: share of benign inputs that a detector could flag.
    """

    rows: list[Defense]
    n: int
    seed: int
    survived: int
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

    Raises RobustokError as :func:`robustok.evaluation.attack_items`, and for attacks of other
    arguments in ``resume_dir``.
    """
    check_questions(items)
    if draws < 1:
        raise RobustokError(f"{draws} draws give no answer: ask for at least 1")
    task = _Task(vocab, items, prefix, suffix)
    settings = AttackSettings(steps=1000, restarts=1000, max_scored=max_scored)
    models = {"none": model, **(trained or {})}
    attacked: dict[str, Rows] = {}
    for number, (name, one) in enumerate(models.items()):
        file = Path(resume_dir) / f"{name.replace(' ', '-')}.jsonl" if resume_dir else None

        def show(done: int, before: int = number * len(items)) -> None:
            if progress is not None:
                progress(before + done, len(models) * len(items))

        attacked[name] = task.attack(one, settings, seed, file, show)
    clean = [np.asarray(vocab.encode(item.question), np.int32) for item in items]
    broken = attacked["none"]

    none = task.row("none", task.reader(model), clean, broken)
    base = none.tokens
    from robustok.guard import Guard

    guard = Guard(vocab)
    repaired = [guard.check(row).repaired for row in broken]
    survived = sum(not np.array_equal(a, b) for a, b in zip(repaired, clean, strict=True))
    rows = [none, task.row("canonicalization", task.canonicalizer(model, guard), clean, broken)]
    for how in ("mean", "vote"):
        reader = task.smoother(model, spec, draws, how, seed)
        rows.append(task.row(f"{how} of {draws} draws", reader, clean, broken))
    rows += [task.row(n, task.reader(m), clean, attacked[n]) for n, m in (trained or {}).items()]
    traffic = task.traffic(benign, draws, seed)
    detectors: dict[str, Callable[[Rows], np.ndarray]] = {
        "distance": lambda rows: distance_scores(vocab, rows),
        "likelihood": lambda rows: likelihood_scores(model, vocab, rows, prefix=prefix),
        "uniform : canonical": lambda rows: scheme_scores(vocab, rows),
    }
    curves = {}
    for name, detector in detectors.items():
        row, curve = task.detection(
            name, detector, task.reader(model), (clean, broken, traffic), false_positives
        )
        rows.append(row)
        curves[name] = curve
    rows = [Defense(**{**asdict(row), "tokens": row.tokens / base}) for row in rows]
    return DefenseTable(rows, len(items), seed, survived, curves, false_positives)


class _Task:
    """The items, and how each defense reads ids: a function from rows to (answers, tokens)."""

    def __init__(
        self, vocab: Vocabulary, items: Sequence[Item], prefix: Ids | None, suffix: Ids | None
    ) -> None:
        self.vocab, self.items, self.prefix, self.suffix = vocab, items, prefix, suffix
        self.options = [encode_options(vocab, item.choices) for item in items]
        self.labels = np.array([item.label for item in items])
        self.keys = np.array([item_key(item.key) for item in items], np.int64)

    def attack(
        self,
        model: Any,
        settings: AttackSettings,
        seed: int,
        file: Path | None,
        progress: Callable[[int], None],
    ) -> Rows:
        """The attacked ids of every item; those in ``file`` are read, new ones are added to it."""
        ids: dict[str, list[int]] = {}
        with ExitStack() as stack:
            resume = None
            if file is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
                frame = [None if part is None else np.asarray(part).tolist()
                         for part in (self.prefix, self.suffix)]  # fmt: skip
                config = {
                    "settings": asdict(settings), "seed": seed, "prefix": frame[0],
                    "suffix": frame[1], "model": model_fingerprint(model),
                    "vocabulary": self.vocab.size,
                }  # fmt: skip
                resume = stack.enter_context(RowFile(file, config, self.items))
                ids = {key: row["ids"] for key, row in resume.rows.items()}
            for number, item in enumerate(self.items):
                if item.key not in ids:
                    ids[item.key] = self.attack_one(model, item, settings, seed)
                    if resume is not None:
                        resume.add_row({"key": item.key, "ids": ids[item.key]})
                progress(number + 1)
        return [np.asarray(ids[item.key], np.int32) for item in self.items]

    def attack_one(self, model: Any, item: Item, settings: AttackSettings, seed: int) -> list[int]:
        """The attacked ids of one item."""
        objective = Margin(
            model, self.vocab, item.choices, item.label, prefix=self.prefix, suffix=self.suffix
        )
        return attack_prompt(self.vocab, item.question, objective, settings=settings, seed=seed).ids

    def log_probs(self, model: Any, groups: Sequence[Rows]) -> tuple[list[np.ndarray], int]:
        """Log-probabilities of the options after each tokenization of each item, and the tokens."""
        requests = [
            Request(append(Ragged.from_rows(rows), self.suffix), options, self.prefix)
            for rows, options in zip(groups, self.options, strict=True)
        ]
        scores = score_many(model, requests)
        return [s.log_probs for s in scores], sum(s.tokens_computed for s in scores)

    def reader(self, model: Any) -> Any:
        """The model on the ids as they come."""

        def read(rows: Rows) -> tuple[np.ndarray, int]:
            log_probs, tokens = self.log_probs(model, [[row] for row in rows])
            return np.array([p[0].argmax() for p in log_probs]), tokens

        return read

    def canonicalizer(self, model: Any, guard: Any) -> Any:
        """The model on the ids that the guard returns."""
        read = self.reader(model)
        return lambda rows: read([guard.check(row).repaired for row in rows])

    def smoother(self, model: Any, spec: str, draws: int, how: str, seed: int) -> Any:
        """The model on draws of the text that the ids spell."""
        options = [item.choices for item in self.items]

        def read(rows: Rows) -> tuple[np.ndarray, int]:
            texts = [self.vocab.decode_bytes(row) for row in rows]
            answers = choose_many(
                model, self.vocab, texts, options, spec, draws=draws, seed=seed, keys=self.keys,
                prefix=self.prefix, suffix=self.suffix,
            )  # fmt: skip
            chosen = [a.answer if how == "mean" else a.majority for a in answers]
            return np.array(chosen), sum(a.tokens_computed for a in answers)

        return read

    def traffic(self, spec: str, draws: int, seed: int) -> Rows:
        """Benign inputs: draws of every question."""
        from robustok.samplers import sampler

        drawn = sampler(spec, self.vocab).sample_batch(
            [item.question for item in self.items], seed=seed, draws=draws, keys=self.keys, epoch=7
        )
        return drawn.rows()

    def row(self, name: str, read: Any, clean: Rows, attacked: Rows) -> Defense:
        """A defense that answers every input."""
        began = time.perf_counter()
        answers, tokens = read(clean)
        seconds = (time.perf_counter() - began) / len(clean)
        accuracy = float(np.mean(answers == self.labels))
        held, low, high = clustered((read(attacked)[0] == self.labels).astype(float))
        return Defense(name, accuracy, held, low, high, tokens / len(clean), seconds)

    def detection(
        self,
        name: str,
        detector: Callable[[Rows], np.ndarray],
        read: Any,
        inputs: tuple[Rows, Rows, Rows],
        false_positives: float,
    ) -> tuple[Defense, Roc]:
        """A defense that refuses what a detector flags."""
        clean, attacked, traffic = inputs
        began = time.perf_counter()
        clean_scores = detector(clean)
        answers, tokens = read(clean)
        seconds = (time.perf_counter() - began) / len(clean)
        attack_scores = detector(attacked)
        curve = roc(detector(traffic), attack_scores, false_positives=false_positives)
        right = (answers == self.labels) & (clean_scores <= curve.threshold)
        held = (read(attacked)[0] == self.labels) | (attack_scores > curve.threshold)
        accuracy, low, high = clustered(held.astype(float))
        more = 1 if name == "likelihood" else 0  # a second pass over the ids
        tokens = tokens + more * sum(len(row) for row in clean)
        return (
            Defense(
                f"detection by {name}", float(right.mean()), accuracy, low, high,
                tokens / len(clean), seconds, curve.auc, curve.detected, curve.threshold,
            ),
            curve,
        )  # fmt: skip
