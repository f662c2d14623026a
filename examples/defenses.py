"""Measure every defense of SmolLM2-135M-Instruct on harmless questions: one table, two figures.

    python examples/defenses.py --out runs/defenses     # 15 minutes of one core; resumes

Each question asks what kind of thing something is, with eight kinds as options. Two copies of the
model are trained on other things: one on drawn tokenizations, one on attacked ones as well. The
attacks and the trainings are kept in the folder, so that the same command continues a run that was
stopped. Writes defenses.json, the table's figure and the curves of the detectors.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import robustok as rt
from robustok.attack import Adversary, DefenseTable, measure_defenses
from robustok.evaluation import certify_smoothed
from robustok.models import load_model
from robustok.report.style import GRID, INK, OTHERS, figure_style, new_figure, save_all
from robustok.tasks import Item
from robustok.training import finetune

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
        model, vocab, items, trained=models, spec=SPEC, draws=given.draws, benign=BENIGN,
        max_scored=given.max_scored, prefix=prefix, seed=0, resume_dir=given.out / "attacks",
        progress=lambda done, total: print(f"\r{done} of {total} attacks", end="", file=sys.stderr),
    )  # fmt: skip
    certified = certify_smoothed(
        model, vocab, items[0].question, items[0].choices, SPEC, draws=50, prefix=prefix, seed=0
    )
    record = {
        "n": table.n, "seed": table.seed, "seconds": time.perf_counter() - began,
        "rows": [row.as_row() for row in table.rows],
        "certificate": [certified.answer, certified.lower, certified.certified],
    }  # fmt: skip
    (given.out / "defenses.json").write_text(json.dumps(record, indent=1))
    draw_defenses(table, given.out / "defenses")
    draw_roc(table, given.out / "roc")
    print(f"\n{table}")
    print(
        f"'{items[0].choices[certified.answer].strip()}' is the vote for '{items[0].key}' with "
        f"probability {certified.lower:.1%} or more"
    )


if __name__ == "__main__":
    main()
