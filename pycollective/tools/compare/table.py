"""The comparison as text: a block per collective, a line per size, two columns per library."""

from __future__ import annotations

from collections.abc import Sequence

from pycollective.tools.compare.figures import Row, ratio
from pycollective.tools.compare.roofline import RooflinePoint

WIDTH = 24


def size_text(nbytes: int) -> str:
    """Returns text such as `64 KiB`."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= factor and nbytes % factor == 0:
            return f"{nbytes // factor} {unit}"
    return f"{nbytes} B"


def block(rows: Sequence[Row], names: Sequence[str], ours: str) -> str:
    """Returns the block of one collective, with all sizes."""
    sizes = sorted({each.nbytes for each in rows})
    heads = [f"{'size':>10}", *(f"{name:>{WIDTH}}" for name in names), f"{'/ best peer':>14}"]
    lines = [f"# {rows[0].collective}", "".join(heads)]
    for nbytes in sizes:
        of_size = {each.peer: each for each in rows if each.nbytes == nbytes}
        found = ratio(list(of_size.values()), ours)
        cells = [f"{cell(of_size.get(name)):>{WIDTH}}" for name in names]
        lines.append(
            f"{size_text(nbytes) if nbytes else '-':>10}{''.join(cells)}{'-' if found is None else f'{found:.2f}':>14}"
        )
    return "\n".join(lines)


def cell(row: Row | None) -> str:
    """Returns the median and the 99th percentile, or `-` if the library lacks the collective."""
    if row is None:
        return "-"
    return f"{_number(row.median_s)} {_number(row.p99_s):>9}{'' if row.right else ' WRONG'}"


def roofline(found: Sequence[RooflinePoint]) -> str:
    """Returns the roofline with a line for each size."""
    names = ("memcpy", "add", "tcp")
    lines = ["# this machine at best: memcpy and a += b on one core, loopback TCP one way"]
    lines.append("".join([f"{'size':>10}", *(f"{name:>{WIDTH}}" for name in names)]))
    for nbytes in sorted({each.nbytes for each in found if each.nbytes}):
        of_size = {each.name: each for each in found if each.nbytes == nbytes}
        cells = [f"{_pair(of_size[name]) if name in of_size else '-':>{WIDTH}}" for name in names]
        lines.append(f"{size_text(nbytes):>10}{''.join(cells)}")
    lines += [f"# waking a thread on another core: {_pair(each)}" for each in found if each.name == "futex"]
    return "\n".join(lines)


def _pair(point: RooflinePoint) -> str:
    return f"{_number(point.median_s)} {_number(point.p99_s):>9}"


def _number(seconds: float) -> str:
    microseconds = seconds * 1e6
    return f"{microseconds:.3f}" if microseconds < 1 else f"{microseconds:.1f}"
