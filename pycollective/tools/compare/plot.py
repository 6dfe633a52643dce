"""Plots time and bandwidth over size: a row with two panels for each collective."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pycollective.tools.compare.compared_libraries import KINDS, OURS
from pycollective.tools.compare.figures import Row
from pycollective.tools.compare.roofline import RooflinePoint
from pycollective.tools.compare.table import size_text

OURS_COLOUR, ROOFLINE_COLOUR = "#b2182b", "#999999"
COLOURS = dict(zip(KINDS, ("#2166ac", "#1b7837", "#b35806", "#762a83", "#01665e"), strict=True))
LABEL_GAP = 0.065  # smallest distance of two labels, in units of a panel's height
PANEL = (5.2, 3.2)  # width and height of a panel in inches

Curve = tuple[str, list[tuple[int, float]]]  # the name, and (size, seconds) for each size


def missing_library() -> str:
    """Returns what to install for plots, or "" if nothing is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return "--plot needs matplotlib: pip install 'pycollective[plot]', or pip install matplotlib"
    return ""


def draw(
    rows: Sequence[Row], roofline: Sequence[RooflinePoint], files: Sequence[Path], *, ranks: int, where: str
) -> None:
    """Draws all collectives that move data in one figure, and writes it into each of the files."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(each.collective for each in rows if each.nbytes))
    figure = Figure(figsize=(2 * PANEL[0], PANEL[1] * max(1, len(names)) + 0.6), layout="constrained")
    figure.suptitle(f"{ranks} ranks, {where}", fontsize=9, x=0.01, ha="left", color="#444444")
    panels = figure.subplots(max(1, len(names)), 2, squeeze=False)
    for (left, right), name in zip(panels, names, strict=False):
        curves = curves_of([each for each in rows if each.collective == name])
        best = roofline_curves(roofline)
        panel(left, curves, best, f"{name}: time, us", _microseconds)
        floor(left, roofline)
        panel(right, curves, best, f"{name}: size / time, GB/s", _gigabytes_per_second)
    for file in files:
        figure.savefig(file, dpi=150)


def curves_of(rows: Sequence[Row]) -> list[Curve]:
    """Returns a curve for each library, in the order of the rows."""
    names = dict.fromkeys(each.peer for each in rows)
    return [(name, [(each.nbytes, each.median_s) for each in rows if each.peer == name]) for name in names]


def roofline_curves(roofline: Sequence[RooflinePoint]) -> list[Curve]:
    """Returns the curves of the roofline points that have a size."""
    labels = {"memcpy": "memcpy", "add": "a += b", "tcp": "TCP, one way"}
    return [
        (label, [(each.nbytes, each.median_s) for each in roofline if each.name == name])
        for name, label in labels.items()
        if any(each.name == name for each in roofline)
    ]


def _microseconds(nbytes: int, seconds: float) -> float:
    del nbytes
    return seconds * 1e6


def _gigabytes_per_second(nbytes: int, seconds: float) -> float:
    return nbytes / seconds / 1e9


def panel(
    axes: Any,
    curves: Sequence[Curve],
    best: Sequence[Curve],
    title: str,
    value: Callable[[int, float], float],
) -> None:
    """Draws the curves on logarithmic axes, each labelled at its right end.

    Roofline values far below those of the libraries are cut off.
    """
    sizes = sorted({x for _, points in curves for x, _ in points})
    ends: list[tuple[str, int, float]] = []
    for name, points in [*best, *curves]:
        ordered = sorted(points)
        axes.plot([x for x, _ in ordered], [value(*each) for each in ordered], **style_of(name))
        ends.append((name, ordered[-1][0], value(*ordered[-1])))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    lowest = min((value(*each) for _, points in curves for each in points), default=1.0)
    axes.set_ylim(bottom=lowest / 2)
    axes.set_title(title, fontsize=9, loc="left")
    step = -(-len(sizes) // 8)
    axes.set_xticks(sizes[:: max(1, step)], [size_text(each) for each in sizes[:: max(1, step)]], fontsize=7)
    axes.set_xticks([], minor=True)
    axes.tick_params(axis="y", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#eeeeee", linewidth=0.6)
    axes.set_axisbelow(True)
    label(axes, [each for each in ends if each[2] >= lowest / 2])


def style_of(name: str) -> dict[str, Any]:
    """Returns a line style that emphasizes pycollective and mutes the roofline."""
    if name == OURS.name:
        return {"color": OURS_COLOUR, "linewidth": 2.0, "marker": "o", "markersize": 3, "zorder": 4}
    if name in COLOURS:
        return {"color": COLOURS[name], "linewidth": 1.2, "marker": "o", "markersize": 2.5, "zorder": 3}
    return {"color": ROOFLINE_COLOUR, "linewidth": 0.9, "linestyle": (0, (4, 2)), "zorder": 2}


def label(axes: Any, ends: Sequence[tuple[str, int, float]]) -> None:
    """Writes the curves' names beside the panel, connected to the ends of the curves."""
    low, high = (math.log(each) for each in axes.get_ylim())
    heights = [(math.log(value) - low) / (high - low) for _, _, value in ends]
    for (name, size, value), height in zip(ends, spread(heights, LABEL_GAP), strict=True):
        colour = style_of(name)["color"]
        axes.annotate(
            name,
            (size, value),
            (1.05, height),
            textcoords="axes fraction",
            fontsize=7.5,
            color=colour,
            va="center",
            fontweight="bold" if name == OURS.name else "normal",
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.5,
                "relpos": (0, 0.5),
                "shrinkA": 1,
                "shrinkB": 2,
            },
            annotation_clip=False,
        )


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Returns heights in the same order that are at least `gap` apart, moved as little as possible.

    Labels that would overlap are moved as one group.
    """
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    # groups of labels that move together: preferred height of the lowest label, and number of
    # labels
    groups: list[list[float]] = []
    for here in order:
        groups.append([heights[here], 1])
        while len(groups) > 1 and groups[-1][0] < groups[-2][0] + gap * groups[-2][1]:
            above, below = groups.pop(), groups.pop()
            count = below[1] + above[1]
            lowest = (below[0] * below[1] + (above[0] - gap * below[1]) * above[1]) / count
            groups.append([lowest, count])
    places = [lowest + gap * number for lowest, count in groups for number in range(int(count))]
    placed = list(heights)
    for here, place in zip(order, places, strict=True):
        placed[here] = place
    return placed


def floor(axes: Any, roofline: Sequence[RooflinePoint]) -> None:
    """Draws the time that waking a thread takes: only ranks that do not sleep can be faster."""
    for each in roofline:
        if each.name == "futex" and each.median_s * 1e6 > axes.get_ylim()[0]:
            axes.axhline(each.median_s * 1e6, color=ROOFLINE_COLOUR, linewidth=0.9, linestyle=(0, (1, 2)))
            axes.annotate(
                "waking another core",
                (0.01, each.median_s * 1e6),
                xycoords=("axes fraction", "data"),
                fontsize=6.5,
                color=ROOFLINE_COLOUR,
                va="bottom",
            )
