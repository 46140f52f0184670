"""Plots of results, drawn by Matplotlib as SVG: for a page, as a file, and as pixels.

The same curves give the same bytes. Drawings name their colours by role (``var(--ink)``), so on a page they follow
the reader's choice of light or dark; as a file they bring the roles along.
"""

from __future__ import annotations

import html
import importlib.util
import io
import itertools
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


@dataclass(frozen=True)
class Curve:
    """Points of one system, from left to right as they are given; ``spread`` is drawn as a band of y ± spread."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] | None = None
    #: Curves of one group have one colour on the whole page; each its own where there is none.
    group: str = ""

    @classmethod
    def through(cls, label: str, points: Iterable[tuple[float, float]], group: str = "") -> Curve:
        """The curve through ``points``, from left to right."""
        ordered = sorted(points)
        return cls(label, [x for x, _ in ordered], [y for _, y in ordered], group=group)


@dataclass(frozen=True)
class Plot:
    """Curves over common axes; with ``points`` not joined by lines."""

    name: str
    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    log_x: bool = False
    log_y: bool = False
    points: bool = False
    #: x are shares, and those near 1 are what matters: the axis is wide there.
    near_one_x: bool = False


#: Roles and their colours, light and dark. Hues: after Okabe and Ito, told apart by colour-blind eyes too.
COLOURS = {
    "ground": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#e6edf3"),
    "soft": ("#59636e", "#9aa4af"),
    "grid": ("#e3e6ea", "#2a313a"),
    "hue0": ("#d55e00", "#ff9d5c"),
    "hue1": ("#0072b2", "#79b8ff"),
    "hue2": ("#009e73", "#3ddba8"),
    "hue3": ("#b5538c", "#e69ac4"),
    "hue4": ("#c98a00", "#f2c14e"),
    "hue5": ("#38a0dc", "#a5dcff"),
    "hue6": ("#6f6f78", "#b9bfc8"),
    "hue7": ("#5b3fa0", "#b7a0ff"),
}
HUES = sum(role.startswith("hue") for role in COLOURS)

FONT = 'system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif'
_SCHEMES = [";".join(f"--{role}:{pair[scheme]}" for role, pair in COLOURS.items()) for scheme in (0, 1)]
ROLES = f":root{{color-scheme:light dark;{_SCHEMES[0]}}}@media(prefers-color-scheme:dark){{:root{{{_SCHEMES[1]}}}}}"

WIDTH, HEIGHT = 8.4, 4.2  # inches of 72 points
_DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (3, 1)), (0, (1, 4)))
_MARKERS = "osD^v<>p"
# More points than these are a curve: a mark at each would hide it.
_MARKED = 20
# Characters of a line of the legend.
_LABEL = 26
# More digits of a coordinate than an eye can see.
_DIGITS = re.compile(r"\d+\.\d{3,}")
# As many labels as an axis can bear.
_TICKS = 9
# An axis of shares is logarithmic in their distance to a little more than 1, and is labelled here.
_MORE_THAN_ONE = 1.005
_SHARES = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0)


@dataclass(frozen=True)
class Drawing:
    """A plot that was drawn: for a page, as a file, and as pixels."""

    figure: Figure
    inline: str
    alone: str

    def png(self) -> bytes:
        with io.BytesIO() as file:
            self.figure.savefig(file, format="png", dpi=144, metadata={"Software": None})
            return file.getvalue()


def can_draw() -> bool:
    """Whether Matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(plot: Plot, groups: Mapping[str, int], salt: str) -> Drawing:
    """A plot with the colours of its groups; ``salt``: other than that of other plots of a page."""
    import matplotlib

    light = {role: pair[0] for role, pair in COLOURS.items()}
    settings: dict[Any, Any] = {
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "text.parse_math": False,
        "text.color": light["ink"],
        "axes.edgecolor": light["soft"],
        "axes.labelcolor": light["soft"],
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "xtick.color": light["soft"],
        "ytick.color": light["soft"],
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
    }
    with matplotlib.rc_context(settings):
        figure = _figure(plot, groups)
        with io.StringIO() as file:
            figure.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
            svg = file.getvalue()
    inline = _by_roles(svg, plot)
    alone = inline.replace(">", f' xmlns="http://www.w3.org/2000/svg"><style>{ROLES}</style>', 1)
    return Drawing(figure, inline, alone + "\n")


def numbered_groups(plots: Iterable[Plot]) -> dict[str, int]:
    """Each group, and its number: small, and no other's with which it shares a plot.

    >>> a, b, c = (Curve(label, [], []) for label in "abc")
    >>> numbered_groups([Plot("one", "", "", "", [a, b]), Plot("two", "", "", "", [c, b])])
    {'a': 0, 'b': 1, 'c': 0}
    """
    together = [list(dict.fromkeys(map(_group, plot.curves))) for plot in plots]
    numbers: dict[str, int] = {}
    for group in itertools.chain.from_iterable(together):
        if group not in numbers:
            taken = {numbers.get(other) for beside in together if group in beside for other in beside}
            numbers[group] = next(number for number in itertools.count() if number not in taken)
    return numbers


def _group(curve: Curve) -> str:
    return curve.group or curve.label


def _figure(plot: Plot, groups: Mapping[str, int]) -> Figure:
    from matplotlib.figure import Figure

    labels = [textwrap.fill(curve.label, _LABEL) for curve in plot.curves]
    height = max(HEIGHT, 0.8 + 0.2 * sum(label.count("\n") + 1 for label in labels))
    figure = Figure(figsize=(WIDTH, height), layout="constrained", facecolor=COLOURS["ground"][0])
    axes = figure.add_subplot(facecolor="none")
    axes.set_title(plot.title, loc="left", fontweight="bold", fontsize=11)
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    axes.grid(color=COLOURS["grid"][0], linewidth=0.8)
    axes.tick_params(length=0)
    lines: list[Line2D] = []
    seen: dict[str, int] = {}
    for number, curve in enumerate(plot.curves):
        group = groups[_group(curve)]
        again = seen[_group(curve)] = seen.get(_group(curve), -1) + 1
        lines.append(_add(axes, plot, curve, f"{plot.name}-curve-{number}", group, again))
    xs = [x for curve in plot.curves for x in curve.x]
    ys = [y for curve in plot.curves for y in curve.y]
    if plot.log_x and any(x > 0 for x in xs):
        axes.set_xscale("log")
    if plot.log_y and any(y > 0 for y in ys):
        axes.set_yscale("log")
    _label(axes.xaxis, xs)
    _label(axes.yaxis, ys)
    if plot.near_one_x:
        _widen_near_one(axes, min(xs, default=0.0))
    figure.legend(lines, labels, loc="outside right center", frameon=False, fontsize=9, handlelength=3)
    return figure


def _add(axes: Axes, plot: Plot, curve: Curve, name: str, group: int, again: int) -> Line2D:
    """The ``again``-th curve of a group: colour and mark tell the group, dashes and other marks the curves in it."""
    colour = COLOURS[f"hue{group % HUES}"][0]
    (line,) = axes.plot(
        curve.x,
        curve.y,
        color=colour,
        linewidth=1.8,
        linestyle="none" if plot.points else _DASHES[(again + group // HUES) % len(_DASHES)],
        marker=_MARKERS[(group + again) % len(_MARKERS)] if plot.points or len(curve.x) <= _MARKED else "none",
        markersize=6,
        markeredgecolor=COLOURS["ground"][0],
        markeredgewidth=0.8,
    )
    line.set_gid(name)
    if curve.spread is not None:
        low, high = ([y + sign * by for y, by in zip(curve.y, curve.spread, strict=True)] for sign in (-1, 1))
        if plot.points:
            bars = axes.errorbar(curve.x, curve.y, curve.spread, fmt="none", ecolor=colour, elinewidth=1)
            bars.lines[2][0].set_gid(f"{name}-spread")
        else:
            axes.fill_between(curve.x, low, high, color=colour, alpha=0.18, linewidth=0).set_gid(f"{name}-spread")
    return line


def _label(axis: Axis, values: Sequence[float]) -> None:
    """Plain numbers along the axis; where few values were measured on a logarithmic one, those."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    if axis.get_scale() == "log":
        measured = sorted({float(value) for value in values if value > 0})
        few = len(measured) <= _TICKS and all(value.is_integer() for value in measured)
        if few and all(b >= 1.3 * a for a, b in itertools.pairwise(measured)):
            axis.set_major_locator(FixedLocator(measured))
        elif measured[-1] >= 10 * measured[0]:
            steps = (1.0, 2.0, 5.0) if measured[-1] < 1000 * measured[0] else (1.0,)
            axis.set_major_locator(LogLocator(subs=steps, numticks=_TICKS))
        else:
            axis.set_major_locator(MaxNLocator(5))
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))


def _widen_near_one(axes: Axes, least: float) -> None:
    import numpy as np
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set_xscale(
        "function",
        functions=(
            lambda share: -np.log10(np.maximum(_MORE_THAN_ONE - np.asarray(share), 1e-9)),
            lambda place: _MORE_THAN_ONE - 10.0 ** -np.asarray(place),
        ),
    )
    axes.xaxis.set_major_locator(FixedLocator([share for share in _SHARES if share >= least - 0.1]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(least - 0.05, 1.001)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))


def _tick(value: float) -> str:
    """
    >>> [_tick(v) for v in (0.30000000000000004, 2000.0, 1e6, -0.5, 1e-7, 1e12)]
    ['0.3', '2,000', '1,000,000', '-0.5', '1e-07', '1e+12']
    """
    rounded = float(f"{value:.6g}")
    return f"{rounded:,g}" if abs(rounded) < 1e6 else f"{rounded:,.0f}" if abs(rounded) < 1e10 else f"{rounded:g}"


def _by_roles(svg: str, plot: Plot) -> str:
    """The drawing itself, without what Matplotlib puts around it; colours by role, the reader's font, own ids only."""
    svg = svg[svg.index("<svg") :].strip()
    size = re.search(r'viewBox="[^"]+"', svg)
    assert size is not None
    svg = svg[svg.index(">") + 1 :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>|\s*<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r' id="[a-z0-9A-Z]+(?:\.[a-zA-Z]+)?_\d+"', "", svg)
    svg = svg.replace("xlink:href", "href").replace("'DejaVu Sans'", html.escape(FONT))
    svg = re.sub(r"<[^>]+>", lambda tag: _DIGITS.sub(lambda number: f"{float(number[0]):.2f}", tag[0]), svg)
    for role, (light, _) in COLOURS.items():
        svg = svg.replace(light, f"var(--{role})")
    return f'<svg {size[0]} role="img" aria-label="{html.escape(plot.title)}">{svg}'
