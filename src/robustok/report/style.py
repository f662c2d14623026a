"""Style of figures and tables: one color for each scheme, safe for color-blind readers.

The colors are Okabe and Ito's; canonical training is dark gray, as the paper prints it black. A
scheme without a color takes one of those that are left.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from robustok.samplers.registry import find_scheme

INK = "#1f2933"
MUTED = "#52606d"
GRID = "#e4e7eb"

OTHERS = ("#d55e00", "#b8a800", "#882255", "#44aa99")

# Light enough for black text, and distinguishable with any color vision.
TOKEN_COLORS = ("#cfe8fb", "#fde3b0", "#cdeedd", "#f6d5e6", "#e3e0fa", "#f3efb4")

RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid.axis": "y",
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "savefig.dpi": 200,
    "svg.hashsalt": "robustok",
}


def family(spec: str) -> str:
    """The scheme's name without its settings.

    >>> family("uniform-k(alpha=1)")
    'uniform-k'
    """
    return spec.split("(", 1)[0]


def colors(specs: list[str]) -> list[str]:
    """A color for each spec: its family's, lightened in turn where a family comes twice.

    >>> colors(["canonical", "uniform"])
    ['#3e4c59', '#009e73']
    """
    spare = iter(OTHERS * len(specs))
    base = {name: _color_of(name) or next(spare) for name in dict.fromkeys(map(family, specs))}
    members = {name: [s for s in specs if family(s) == name] for name in base}
    return [
        _lighter(base[family(s)], members[family(s)].index(s) / len(members[family(s)]) * 0.7)
        for s in specs
    ]


def _color_of(name: str) -> str:
    scheme = find_scheme(name)
    return scheme.color if scheme else ""


def _lighter(color: str, share: float) -> str:
    parts = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(p + (255 - p) * share):02x}" for p in parts)


@contextmanager
def house_style() -> Iterator[None]:
    """Matplotlib in this style within the block."""
    import matplotlib as mpl

    with mpl.rc_context(RC):
        yield
