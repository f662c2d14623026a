"""Style of figures and tables: colors and short names of schemes, figures without a screen.

One color for each scheme, safe for color-blind readers.
The colors are Okabe and Ito's; canonical training is dark gray, as the paper prints it black. A
scheme without a color takes one of those that are left.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

from robustok.attack.settings import AttackSettings, is_attack, is_worst
from robustok.runtime.files import write_csv, write_whole
from robustok.samplers.parameters import Number, show
from robustok.samplers.spec import SCHEMES, Spec, call_parts, read_call, split_parameters
from robustok.samplers.strength import splits_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]  # what a figure draws; its fields are those of the CSV beside it

INK = "#1f2933"
MUTED = "#52606d"
GRID = "#e4e7eb"

_NO_SCHEME = {"before fine-tuning": "#9aa5b1"}
OTHERS = ("#d55e00", "#b8a800", "#882255", "#44aa99", "#332288")

MARKERS = ("o", "s", "D", "^", "v", "P", "X")
DASHES = ("-", (0, (5, 2)), (0, (1.2, 1.6)), (0, (6, 2, 1.2, 2)))

# Inches. On a phone, where a figure is 340 pixels wide, 10 points are 9 pixels then.
WIDTH = 5.2
_PALETTE = 128  # colors of a PNG

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
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid.axis": "y",
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "lines.linewidth": 1.7,
    "lines.markersize": 4.5,
    "figure.labelsize": 10,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.handlelength": 1.4,
    "legend.columnspacing": 1.6,
    "figure.facecolor": "white",  # a dark page inverts it
    "savefig.facecolor": "white",
    "savefig.dpi": 160,
    "svg.hashsalt": "robustok",
}


def family(spec: str) -> str:
    """The scheme's name without its settings."""
    return spec.split("(", 1)[0]


def colors(specs: Iterable[str]) -> dict[str, str]:
    """A color for each spec: its family's, lightened in turn where a family comes twice."""
    by_spec = dict.fromkeys(specs, "")
    families: dict[str, list[str]] = {}
    for spec in by_spec:
        name = family(spec).partition(",")[0]  # of "stochastok, 3 ways", too
        families.setdefault(name, []).append(spec)
    spare = cycle(OTHERS)
    for name, members in families.items():
        base = getattr(SCHEMES.find(name), "color", "") or _NO_SCHEME.get(name) or next(spare)
        for place, spec in enumerate(members):
            by_spec[spec] = _lighter(base, place / len(members) * 0.7)
    return by_spec


def _lighter(color: str, share: float) -> str:
    parts = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(p + (255 - p) * share):02x}" for p in parts)


@contextmanager
def figure_style() -> Iterator[None]:
    """Matplotlib in this style within the block."""
    import matplotlib as mpl

    with mpl.rc_context(RC):
        yield


def new_figure(
    size: tuple[float, float],
    rows: int = 1,
    columns: int = 1,
    *,
    sharey: Literal["all", "row", "none"] = "all",
    heights: Sequence[float] | None = None,
) -> tuple[Figure, list[Axes]]:
    """A figure of this many inches and its axes, row by row, drawn without a screen.

    ``sharey`` says which axes have one y axis. Of the ``heights`` of rows, the ratios count.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, sharey=sharey, height_ratios=heights)
    return figure, list(axes.flat)


@figure_style()
def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as SVG or as PNG with a palette, without the time of writing."""
    from PIL import Image

    kind = path.suffix.removeprefix(".")
    buffer = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {}
    options: Any = {"bbox_inches": "tight", "pad_inches": 0.12}
    figure.savefig(buffer, format=kind, metadata=metadata, **options)
    if kind == "png":
        # The widest coverage keeps the color of a few small marks beside much text.
        cover = Image.Quantize.MAXCOVERAGE
        reduced = Image.open(buffer).convert("RGB").quantize(_PALETTE, cover, kmeans=1)
        buffer = io.BytesIO()
        reduced.save(buffer, format="png", optimize=True)
    write_whole(path, buffer.getvalue())


def save_all(
    figure: Figure,
    stem: Path,
    rows: Sequence[Row] | None = None,
    fields: Sequence[str] | None = None,
) -> list[Path]:
    """Write a figure as PNG and SVG, and the rows that it shows as CSV; returns the paths."""
    png, svg, csv = (stem.with_name(f"{stem.name}.{ending}") for ending in ("png", "svg", "csv"))
    save_figure(figure, svg)
    save_figure(figure, png)
    if rows is not None:
        write_csv(csv, rows, fields)
    return [png, svg, csv]


def draw_line(
    axes: Axes, rows: Sequence[Row], x: str, y: str, *, color: str, scale: float = 1.0, **style: Any
) -> None:
    """A line through a field of the rows, in a band from their ``low`` to their ``high``."""
    at = [row[x] for row in rows]
    low, high, mean = ([scale * row[name] for row in rows] for name in ("low", "high", y))
    axes.fill_between(at, low, high, color=color, alpha=0.15, linewidth=0)
    axes.plot(at, mean, color=color, **style)


def plain(text: str) -> str:
    """A text for a figure, where matplotlib would set what is between dollar signs as a formula."""
    return text.replace("$", "\\$")


def grouped(rows: Iterable[Row], field: str) -> dict[Any, list[Row]]:
    """The rows by a field, in their order."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[field], []).append(row)
    return groups


def legend_above(figure: Figure, *axes: Axes, more: Sequence[Any] = ()) -> None:
    """One legend above a figure: each name in the panels once, or other keys."""
    named = {key.get_label(): key for key in more}
    for panel in axes:
        for key, name in zip(*panel.get_legend_handles_labels(), strict=True):
            named.setdefault(name, key)
    names = sorted(named, key=lambda name: name == "chance")  # last
    # About as many columns as fit; a column is as wide as its longest name.
    columns = int(figure.get_figwidth() // (0.07 * max(map(len, names)) + 0.45))
    columns = max(1, min(columns, len(names)))
    keys = [named[name] for name in names]
    labels = ["\n".join(fill(line, 66) for line in name.split("\n")) for name in names]
    figure.legend(keys, labels, ncols=columns, loc="lower left", bbox_to_anchor=(0, 1), borderpad=0)


def note_below(figure: Figure, text: str) -> None:
    """A line below a figure that says what it is of, so that a copy of it still does."""
    figure.text(0, -0.01, fill(plain(text), int(17 * figure.get_figwidth())), fontsize=7.5,
                color=MUTED, va="top")  # fmt: skip


def percent_axis(axes: Axes) -> None:
    """The vertical axis of shares in percent, from 0 to 100."""
    axes.set_ylim(0, 100)
    axes.set_yticks(range(0, 101, 20), [f"{y}%" for y in range(0, 101, 20)])


def legend_key(**style: Any) -> Any:
    """A line for a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **style)


_LONGEST = 16  # characters of a name on one line


def short(spec: str, among: Iterable[str] = ()) -> str:
    """A spec in a few short lines, for the head of a column.

    An attack has also the settings that tell it from those ``among`` others of the same name.

    >>> short("stochastok(alpha=0.5)"), short("stochastok(ways=3, splits=0.5)")
    ('stochastok\\n0.5', 'stochastok\\n3 ways\\n0.5 splits')
    >>> short('bpe-dropout(p=0.1, rule="sentencepiece")')
    'bpe-dropout\\n0.1\\nsentencepiece'
    >>> short("adversarial(distances=(2), start=canonical, steps=10)")
    'attack\\nd = 2'
    >>> short("adversarial(steps=3)", ["adversarial(steps=3)", "adversarial(steps=10)"])
    'attack\\nd = 2\\nsteps = 3'
    >>> short("ensemble(uniform, draws=8)")
    'uniform\\n8 draws at once'
    >>> short("stochastok(alpha=0.1) → canonical")  # fine-tuned after pre-training
    'stochastok\\n0.1 →\\ncanonical'
    """
    if " → " in spec:
        return " →\n".join(short(part) for part in spec.split(" → "))
    name = family(spec)
    if name == "ensemble":
        scheme, _, draws = spec[len("ensemble(") : -1].rpartition(", draws=")
        return f"{short(scheme)}\n{draws} draws at once"
    if is_worst(spec):
        return spec.replace("worst of ", "worst of\n")
    if is_attack(spec):
        return "\n".join([_short_attack(spec), *_apart(spec, among)])
    title = name if len(name) <= _LONGEST else name.replace("-", "-\n", 1)
    return "\n".join([title, *_settings(spec)])


def _short_attack(spec: str) -> str:
    attack = AttackSettings.parse(spec)
    start = "" if attack.start == "canonical" else f"\nfrom {attack.start}"
    kind = "attack" if attack.search == "greedy" else f"{attack.search} attack"
    beam = f"\nbeam {attack.beam}" if attack.beam > 1 else ""
    beam += "\nsecond ids" if attack.second_ids else ""
    return f"{kind}\nd = {', '.join(map(str, attack.distances))}{start}{beam}"


def _apart(attack: str, among: Iterable[str]) -> list[str]:
    """The settings of an attack that another one of its short name does not have."""
    name = _short_attack(attack)
    same = [call_parts(one)[1] for one in among if is_attack(one) and _short_attack(one) == name]
    own = [part for part in call_parts(attack)[1] if any(part not in parts for parts in same)]
    return [part.replace("=", " = ") for part in own]


def _settings(spec: str, *, strength: bool = True) -> list[str]:
    """The numbers and words of a spec: the strength first, any other number with its name."""
    scheme = SCHEMES.find(family(spec))
    if scheme is None:
        return []
    named = splits_in(spec) is not None  # by its measured strength, which is no parameter
    params = read_call(spec).params if named else Spec.parse(spec).params
    values = []
    for name, value in params.items():
        if name in (scheme.strength, "splits" if named else "") and not strength:
            continue
        if isinstance(value, str):
            values.append(value)
        elif isinstance(value, tuple):  # the parts of a mix
            values += split_parameters(spec, spec.partition("(")[2][:-1])
        elif named and name == "splits":
            values.append(f"{show(value)} splits")
        elif isinstance(scheme.parameters[name], Number):
            plain = name == scheme.strength or len(params) == 1
            values.append(show(value) if plain else f"{show(value)} {name}")
    return values


def last_parts(names: Sequence[str]) -> list[str]:
    """Models by as many of the last parts of their names as tell different ones apart."""
    parts = [Path(name.partition("@")[0]).parts for name in names]
    for count in range(1, max(map(len, parts), default=0) + 1):
        short = ["/".join(part[-count:]) for part in parts]
        if len(set(short)) == len(set(names)):
            return short
    return list(names)


def one_line(text: str) -> str:
    """As `stochastok-uniform 0.5`."""
    return text.replace("-\n", "-").replace("\n", " ")


def panel_title(panel: Sequence[str], *more: str) -> str:
    """Schemes are how models were pre-trained; anything else, such as a task, names itself.

    >>> panel_title(["stochastok(alpha=0.1)"]), panel_title(["copa"], "attack"), panel_title([], "")
    ('stochastok 0.1 pre-training', 'copa\\nattack', '')

    ``panel`` has what its models share; empty lines are left out.
    """
    names = [one_line(short(part)) for part in panel]
    pretrained = len(panel) == 1 and SCHEMES.find(family(panel[0]))
    title = f"{names[0]} pre-training" if pretrained else ", ".join(names)
    return "\n".join(line for line in (title, *more) if line)


def scheme_and_strength(spec: str) -> tuple[str, str]:
    """A scheme without its strength, and the strength, empty for none.

    >>> scheme_and_strength("stochastok(alpha=1, ways=3)"), scheme_and_strength("uniform")
    (('stochastok, 3 ways', '1'), ('uniform', ''))
    >>> scheme_and_strength("stochastok(ways=3, splits=0.5)")
    ('stochastok, 3 ways', '0.5')
    """
    scheme, value = SCHEMES.find(family(spec)), splits_in(spec)
    if scheme is not None and value is None:
        value = Spec.parse(spec).params.get(scheme.strength)
    if not isinstance(value, (int, float)):
        return spec, ""
    return ", ".join([family(spec), *_settings(spec, strength=False)]), f"{value:g}"
