"""Measure every defense of SmolLM2-135M-Instruct on harmless questions: one table, two figures.

    python examples/defenses.py --out runs/defenses     # 15 minutes of one core; resumes

Each question asks what kind of thing something is, with eight kinds as options. Two copies of the
model are trained on other things: one on drawn tokenizations, one on attacked ones as well. The
attacks and the trainings are kept in the folder, so that the same command continues a run that was
stopped. Writes defenses.json, the table's figure and the curves of the detectors.

The attack is run on each model that reads the client's ids: the plain one and every one trained to
be robust. Canonicalization, drawn inference and detection protect the plain model, and are given
the ids that broke it. For a model and questions of your own, call :func:`measure_defenses`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import robustok as rt
from robustok.attack import (
    Adversary,
    AttackSettings,
    NamedObjective,
    ObjectiveSettings,
    Prompt,
    attack_prompts,
    read_attacks,
    write_attacks,
)
from robustok.evaluation import clustered
from robustok.evaluation.questions import encode_options, item_keys
from robustok.models import load_model
from robustok.models.scored import Ids
from robustok.report.style import GRID, INK, OTHERS, figure_style, new_figure, save_all
from robustok.scoring import Request, score_many
from robustok.scoring.engine import scored_model
from robustok.tasks import Item
from robustok.training import finetune

Rows = Sequence[np.ndarray]
Reader = Callable[[Rows], tuple[np.ndarray, int]]  # the answers, and the tokens read
Detector = Callable[[Any], np.ndarray]  # scores of rows; higher is more suspicious

THINGS = {
    "bird": "robin sparrow parrot eagle penguin pigeon swan ostrich woodpecker flamingo seagull "
    "hummingbird canary pelican magpie nightingale",
    "fish": "salmon trout tuna herring mackerel sardine carp eel cod piranha goldfish catfish "
    "anchovy halibut swordfish barracuda",
    "fruit": "banana strawberry pineapple mango raspberry apricot papaya grapefruit watermelon "
    "blueberry nectarine cranberry tangerine pomegranate apple cherry",
    "tree": "willow sycamore eucalyptus redwood oak birch maple poplar cypress juniper spruce "
    "mahogany hemlock sequoia hawthorn magnolia",
    "tool": "hammer screwdriver wrench chisel crowbar hacksaw drill pliers sledgehammer pickaxe "
    "shovel spanner soldering-iron axe rake trowel",
    "vehicle": "bicycle motorcycle truck ambulance tractor helicopter submarine minivan bulldozer "
    "limousine taxi bus scooter train airplane tram",
    "instrument": "violin trumpet clarinet saxophone accordion xylophone harpsichord trombone "
    "guitar piano flute cello tambourine banjo mandolin ukulele",
    "metal": "iron copper aluminum zinc titanium nickel magnesium platinum tungsten chromium "
    "cobalt lithium silver gold manganese cadmium",
}
TRAINED_ON = 4  # things of each kind; the others are evaluated
_CLEAN, _ATTACKED = "#cbd2d9", "#0072b2"  # colors of the bars
SPEC, BENIGN = "uniform-k(alpha=0.5)", "stochastok(alpha=0.05)"


def questions(first: int, last: int | None) -> list[Item]:
    """A question for each thing, kinds in turn, so that a part of them is balanced."""
    kinds = tuple(THINGS)
    rows = [(thing, kind) for kind, line in THINGS.items() for thing in line.split()[first:last]]
    each = len(rows) // len(kinds)
    return [
        Item(
            thing,
            f"Question: What kind of thing is this: {thing.replace('-', ' ')}?\n"
            f"Answer: This is a kind of",
            tuple(f" {kind}" for kind in kinds),
            kinds.index(kind),
        )
        for at in range(each)
        for thing, kind in rows[at::each]
    ]


def trained(name: str, vocab: Any, out: Path, prefix: Any, steps: int) -> dict[str, Any]:
    """The model after stochastic fine-tuning, and after adversarial training."""
    models, items = {}, questions(0, TRAINED_ON)
    for training in ("stochastic fine-tuning", "adversarial training"):
        model = load_model(name, dtype="float32")
        adversary = None
        if training == "adversarial training":
            adversary = Adversary(model, vocab, items, every=4, max_scored=8, prefix=prefix)
        done = out / training.replace(" ", "-")
        finetune(
            model, vocab, items, sampler=rt.sampler(SPEC, vocab), seed=0, steps=steps,
            batch_size=8, learning_rate=2e-5, prefix=prefix, adversary=adversary, out=done,
        )  # fmt: skip
        models[training] = load_model(done, dtype="float32")
    return models


@dataclass(frozen=True)
class Defense:
    """One row of the table.

    A flagged input counts as wrong in ``accuracy``, on canonical ids, and as right in ``attacked``,
    since it is refused; ``low`` and ``high`` are the 95% bounds of ``attacked``. ``tokens`` is what
    the model reads of a canonical input, relative to no defense, and ``seconds`` the time for one.
    A detector has the area under its curve, the share of attacks that it flags and its threshold.
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


@dataclass(frozen=True)
class DefenseTable:
    """All defenses, the model without one first, and the curve of each detector."""

    rows: list[Defense]
    n: int
    seed: int
    curves: dict[str, Roc]
    false_positives: float

    def __str__(self) -> str:
        lines = [f"{'defense':<32}{'clean':>7}{'attacked':>10}{'95%':>16}{'tokens':>8}{'ms':>8}"]
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
    task: Task,
    *,
    trained: Mapping[str, Any] | None = None,
    spec: str = "uniform",
    draws: int = 10,
    benign: str = "canonical",
    false_positives: float = 0.01,
    max_scored: int = 200,
) -> DefenseTable:
    """Measure every defense on multiple-choice items.

    Args:
        model: the unprotected causal language model of transformers.
        task: the questions, and its vocabulary.
        trained: models of the same vocabulary that were trained to be robust, by name.
        spec: scheme of drawn inference.
        draws: draws of an input.
        benign: scheme of benign traffic, ``draws`` of each question, which detectors must let pass.
            With ``"canonical"`` every other tokenization can be flagged; use a scheme such as
            ``"stochastok(alpha=0.05)"`` if clients re-tokenize.
        false_positives: share of benign inputs that a detector may flag.
        max_scored: tokenizations that the attack scores for an item.

    The attack is the greedy one at distance 2, from the canonical tokenization and then from
    uniform draws. It does not adapt to a detector.
    """
    vocab, trained = task.vocab, trained or {}
    settings = AttackSettings(steps=1000, restarts=1000, max_scored=max_scored)
    models = {"none": model, **trained}
    attacked = {name: task.attack(name, one, settings) for name, one in models.items()}
    broken, guard, read = attacked["none"], rt.Guard(vocab), partial(task.read, model)
    readers: dict[str, Reader] = {
        "none": read,
        "canonicalization": lambda rows: read([guard.check(row).repaired for row in rows]),
    }
    for how in ("mean", "vote"):
        readers[f"{how} of {draws} draws"] = partial(task.read_draws, model, spec, draws, how)
    rows = [task.row(name, reader, broken) for name, reader in readers.items()]
    rows += [task.row(n, partial(task.read, m), attacked[n]) for n, m in trained.items()]

    detectors: dict[str, Detector] = {
        "distance": lambda rows: distance_scores(vocab, rows),
        "likelihood": lambda rows: likelihood_scores(model, vocab, rows, task.prefix),
        "uniform : canonical": lambda rows: scheme_scores(vocab, rows),
    }
    # Draws of an epoch of their own, so that drawn inference does not repeat them.
    traffic = rt.sampler(benign, vocab).sample_batch(
        [item.question for item in task.items], seed=task.seed, draws=draws, keys=task.keys, epoch=7
    )
    curves = {}
    for name, detector in detectors.items():
        curve = roc(detector(traffic), detector(broken), false_positives)
        row = task.row(
            f"detection by {name}", read, broken,
            lambda rows, at=curve.threshold, score=detector: score(rows) > at,
        )  # fmt: skip
        curves[name] = curve
        rows.append(replace(row, auc=curve.auc, detected=curve.detected, threshold=curve.threshold))
    rows = [replace(row, tokens=row.tokens / rows[0].tokens) for row in rows]
    return DefenseTable(rows, len(task.items), task.seed, curves, false_positives)


class Task:
    """Questions, and how each defense reads their ids.

    Args:
        vocab: the models' vocabulary.
        items: the questions, each with its own key.
        prefix: ids before every question that stay as they are; by default none.
        seed: any integer; decides all draws.
        folder: keeps the attacks on each model in a file, written when all are done.
    """

    def __init__(
        self, vocab: rt.Vocabulary, items: Sequence[Item], prefix: Ids | None = None, *,
        seed: int, folder: Path | None = None,
    ) -> None:  # fmt: skip
        self.vocab, self.items, self.prefix = vocab, items, prefix
        self.seed, self.folder = seed, folder
        self.options = [encode_options(vocab, item.choices) for item in items]
        self.labels = np.array([item.label for item in items])
        self.keys = item_keys(item.key for item in items)
        self.clean = [vocab.encode(item.question) for item in items]

    def attack(self, name: str, model: Any, settings: AttackSettings) -> Rows:
        """The attacked ids of every item; those in the folder are read."""
        file = self.folder and self.folder / f"{name.replace(' ', '-')}.jsonl"
        attacks = {a.key: a for a in read_attacks(file)} if file and file.exists() else {}
        if any((a.settings, a.seed) != (str(settings), self.seed) for a in attacks.values()):
            raise rt.RobustokError(f"{file} holds attacks with other settings: delete it")
        prompts = [Prompt.of_item(item) for item in self.items]
        missing = [prompt for prompt in prompts if prompt.key not in attacks]
        if not missing:
            return [attacks[prompt.key].ids for prompt in prompts]
        margin = NamedObjective(model, self.vocab, ObjectiveSettings("margin"), prefix=self.prefix)
        new = attack_prompts(
            self.vocab,
            missing,
            margin,
            seed=self.seed,
            progress=lambda done, total: print(
                f"\r{done} of {total} attacks, {name}", end="", file=sys.stderr
            ),
            **vars(settings),
        )
        attacks |= {attack.key: attack for attack in new}
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_attacks(file, [*attacks.values()])
        return [attacks[prompt.key].ids for prompt in prompts]

    def read(self, model: Any, rows: Rows) -> tuple[np.ndarray, int]:
        """A :data:`Reader` of the ids as they come."""
        requests = [
            Request(rt.Ragged.from_rows([row]), options, self.prefix, item.key)
            for row, options, item in zip(rows, self.options, self.items, strict=True)
        ]
        scores = score_many(model, requests)
        answers = np.array([one.log_probs[0].argmax() for one in scores])
        return answers, sum(one.tokens_computed for one in scores)

    def read_draws(
        self, model: Any, spec: str, draws: int, how: str, rows: Rows
    ) -> tuple[np.ndarray, int]:
        """A :data:`Reader` of draws of the text that the ids spell."""
        drawn = rt.sampler(spec, self.vocab).sample_batch(
            [self.vocab.decode_bytes(row) for row in rows],
            seed=self.seed, draws=draws, keys=self.keys,
        )  # fmt: skip
        requests = [
            Request(drawn[i * draws : (i + 1) * draws], options, self.prefix, item.key)
            for i, (options, item) in enumerate(zip(self.options, self.items, strict=True))
        ]
        scores = score_many(model, requests)
        if how == "mean":
            chosen = [np.logaddexp.reduce(one.log_probs).argmax() for one in scores]
        else:
            chosen = [np.bincount(one.log_probs.argmax(axis=1)).argmax() for one in scores]
        return np.array(chosen), sum(one.tokens_computed for one in scores)

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

    ``auc`` is the probability that an attack scores higher than a benign input, ties counted by
    half. Inputs that score above ``threshold`` are flagged: the shares ``flagged_benign`` and
    ``detected``. The rates are the coordinates of the curve, from 0 to 1.
    """

    auc: float
    threshold: float
    flagged_benign: float
    detected: float
    false_positive_rates: tuple[float, ...]
    true_positive_rates: tuple[float, ...]


def roc(
    benign: np.ndarray | Sequence[float], attacked: np.ndarray | Sequence[float],
    false_positives: float = 0.01,
) -> Roc:  # fmt: skip
    """The curve of a score, and the lowest threshold with few enough false positives."""
    low, high = np.asarray(benign, np.float64), np.asarray(attacked, np.float64)
    thresholds = np.concatenate([[np.inf], np.unique(np.concatenate([low, high]))[::-1]])
    false_rates = np.array([np.mean(low > t) for t in thresholds] + [1.0])
    true_rates = np.array([np.mean(high > t) for t in thresholds] + [1.0])
    best = int(np.flatnonzero(false_rates[:-1] <= false_positives)[-1])
    above = np.mean(high[:, None] > low[None]) + np.mean(high[:, None] == low[None]) / 2
    return Roc(
        float(above), float(thresholds[best]), float(false_rates[best]), float(true_rates[best]),
        tuple(false_rates.tolist()), tuple(true_rates.tolist()),
    )  # fmt: skip


def distance_scores(vocab: rt.Vocabulary, rows: Rows | rt.Ragged) -> np.ndarray:
    """Distance of each tokenization from the canonical one of its text, float64 [rows]."""
    return np.array([float(rt.distance(vocab, vocab.canonicalize(row), row)) for row in rows])


def likelihood_scores(
    model: Any, vocab: rt.Vocabulary, rows: Rows | rt.Ragged, prefix: Ids | None = None
) -> np.ndarray:
    """How much less likely each tokenization is than the canonical one of its text, in nats.

    Costs two forward passes for each tokenization, and none for a canonical one.
    """
    scores, cache = [], {}
    before = scored_model(model).start_ids() if prefix is None else prefix
    for row in rows:
        pair = [vocab.canonicalize(row), np.asarray(row, np.int32)]
        if np.array_equal(*pair):
            scores.append(0.0)
            continue
        request = Request(rt.Ragged.from_rows([[]]), pair, before)
        (scored,) = score_many(model, [request], prefix_cache=cache)
        canonical, given = scored.log_probs[0].tolist()
        scores.append(canonical - given)
    return np.array(scores)


def scheme_scores(
    vocab: rt.Vocabulary, rows: Rows | rt.Ragged, benign: str = "canonical"
) -> np.ndarray:
    """Log-likelihood ratio of ``uniform`` against the scheme of benign traffic, in nats.

    Against ``"canonical"``, which gives all other tokenizations probability 0, every other
    tokenization scores infinity. Needs no model, and a scheme with exact probabilities.
    """
    uniform, other = rt.sampler("uniform", vocab), rt.sampler(benign, vocab)
    return np.array([uniform.log_prob(row) - other.log_prob(row) for row in rows])


def draw_defenses(table: DefenseTable, stem: Path) -> None:
    """Accuracy on canonical and on attacked ids with each defense, with 95% intervals.

    Args:
        table: what was measured.
        stem: the figure's path without its ending; written as PNG and SVG.
    """
    rows = table.rows[::-1]
    with figure_style():
        figure, (axes,) = new_figure((7.2, 1.2 + 0.44 * len(rows)))
        for at, row in enumerate(rows):
            axes.barh(at + 0.19, 100 * row.accuracy, 0.36, color=_CLEAN,
                      label="canonical ids" if not at else None)  # fmt: skip
            axes.barh(at - 0.19, 100 * row.attacked, 0.36, color=_ATTACKED,
                      label="attacked ids" if not at else None)  # fmt: skip
            axes.hlines(at - 0.19, 100 * row.low, 100 * row.high, color=INK, linewidth=1.2)
        axes.set_yticks(range(len(rows)), [f"{r.defense} ({r.tokens:.1f}x tokens)" for r in rows])
        axes.set_xlim(0, 100)
        axes.set_xlabel(f"accuracy of {table.n} questions, %")
        axes.grid(visible=False)
        axes.grid(axis="x")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
        save_all(figure, stem)


def draw_roc(table: DefenseTable, stem: Path) -> None:
    """Share of attacks flagged by each detector, against the share of benign inputs flagged.

    A dot marks the threshold of the table. The first axis is logarithmic from the share of one
    benign input on.

    Args:
        table: what was measured.
        stem: the figure's path without its ending; written as PNG and SVG.
    """
    with figure_style():
        figure, (axes,) = new_figure((6.4, 4.4))
        smallest = min(
            (r for c in table.curves.values() for r in c.false_positive_rates if r), default=1.0
        )
        for (name, curve), color in zip(table.curves.items(), (INK, *OTHERS), strict=False):
            axes.plot(
                [100 * r for r in curve.false_positive_rates],
                [100 * r for r in curve.true_positive_rates],
                color=color, linewidth=1.8, label=f"{name}, AUC {curve.auc:.3f}",
            )  # fmt: skip
            axes.plot(
                100 * curve.flagged_benign, 100 * curve.detected, "o", color=color, markersize=7,
                clip_on=False, zorder=3,
            )  # fmt: skip
        allowed = 100 * table.false_positives
        axes.axvline(allowed, color=GRID, linewidth=1.4, zorder=0)
        axes.set_xscale("symlog", linthresh=100 * smallest, linscale=0.5)
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 100)
        ticks = [tick for tick in (0.1, 1, 10, 100) if tick >= 100 * smallest]
        axes.set_xticks([0, *ticks], [f"{tick:g}" for tick in (0, *ticks)])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("benign inputs flagged, %")
        axes.set_ylabel("attacks flagged, %")
        axes.grid(axis="y")
        axes.legend(loc="upper left", title=f"dots: thresholds at {allowed:g}% of benign inputs")
        save_all(figure, stem)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="smollm2-135m", help="a folder or hub name")
    parser.add_argument("--questions", type=int, default=96)
    parser.add_argument("--max-scored", type=int, default=32, help="of an attack")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--steps", type=int, default=24, help="of each training")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    model, vocab = load_model(given.model, dtype="float32"), rt.Vocabulary.load(given.model)
    prefix = np.array([model.config.bos_token_id], np.int32)
    items = questions(TRAINED_ON, None)[: given.questions]
    began = time.perf_counter()
    models = trained(given.model, vocab, given.out, prefix, given.steps)
    table = measure_defenses(
        model, Task(vocab, items, prefix, seed=0, folder=given.out / "attacks"), trained=models,
        spec=SPEC, draws=given.draws, benign=BENIGN, max_scored=given.max_scored,
    )  # fmt: skip
    record = {
        "n": table.n, "seed": table.seed, "seconds": time.perf_counter() - began,
        "rows": [asdict(row) for row in table.rows],
    }  # fmt: skip
    (given.out / "defenses.json").write_text(json.dumps(record, indent=1))
    draw_defenses(table, given.out / "defenses")
    draw_roc(table, given.out / "roc")
    print(f"\n{table}")


if __name__ == "__main__":
    main()
