"""`--plot`: a picture if matplotlib is installed, else the command that installs it."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from pycollective import cli
from pycollective.tools.compare.figures import Figures, Row, row
from pycollective.tools.compare.plot import curves_of, draw, spread
from pycollective.tools.compare.roofline import RooflinePoint

pytestmark = pytest.mark.timeout(60)


def rows() -> list[Row]:
    return [
        row(name, nbytes, peer, [Figures(seconds * (1 + nbytes / 4096), seconds, 10, True)])
        for name in ("allreduce", "alltoall")
        for nbytes in (8, 4096, 1 << 20)
        for peer, seconds in (("pycollective", 4e-6), ("gloo", 9e-5))
    ]


ROOFLINE = [
    RooflinePoint("futex", 0, 5e-6, 9e-6),
    *(
        RooflinePoint(name, nbytes, 1e-6 + nbytes / speed, 1e-5)
        for name, speed in (("memcpy", 1e10), ("add", 8e9), ("tcp", 2e9))
        for nbytes in (8, 4096, 1 << 20)
    ),
]


def test_without_matplotlib_the_command_says_what_installs_it_before_it_measures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # an import of it fails
    assert cli.main(["bench", "--plot", str(tmp_path / "curves.png")]) == 2
    said = capsys.readouterr()
    assert "--plot needs matplotlib: pip install 'pycollective[plot]'" in said.err
    assert said.out == ""


def test_what_has_no_sizes_cannot_be_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "--ops", "barrier", "--plot", "curves.png"]) == 2
    assert "--plot: barrier has no sizes to draw over" in capsys.readouterr().err


def test_a_picture_has_every_library_and_every_point_of_the_roofline_by_name(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    png, svg = tmp_path / "curves.png", tmp_path / "curves.svg"
    draw(rows(), ROOFLINE, [png, svg], ranks=2, where="a machine")
    assert png.read_bytes().startswith(b"\x89PNG")
    drawn = svg.read_text()
    for words in (
        "pycollective",
        "gloo",
        "memcpy",
        "a += b",
        "TCP, one way",
        "allreduce: time, us",
        "a machine",
    ):
        assert f"<!-- {words}" in drawn or f"{words} -->" in drawn, words
    assert drawn.count("<!-- pycollective -->") == 4  # two collectives, time and bandwidth


def test_a_picture_of_one_size_without_a_roofline_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "curves.png"
    draw([each for each in rows() if each.nbytes == 8], [], [file], ranks=2, where="a machine")
    assert file.stat().st_size > 0


@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_a_roofline_far_from_the_libraries_leaves_them_their_place(tmp_path: Path, factor: float) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "curves.svg"
    far = [RooflinePoint(each.name, each.nbytes, each.median_s * factor, each.p99_s) for each in ROOFLINE]
    draw(rows(), far, [file], ranks=2, where="a machine")  # a panel squeezed to nothing warns
    assert file.read_text().count("<!-- pycollective -->") == 4


def test_the_command_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "curves.svg"
    assert cli.main(["bench", "--sizes", "8,4K", "--iters", "5", "--rounds", "1", "--plot", str(file)]) == 0
    assert "<!-- pycollective -->" in file.read_text()


def test_a_curve_has_its_points_in_order_of_libraries() -> None:
    found = curves_of([each for each in rows() if each.collective == "alltoall"])
    assert [name for name, _ in found] == ["pycollective", "gloo"]
    assert [nbytes for nbytes, _ in found[0][1]] == [8, 4096, 1 << 20]


@pytest.mark.parametrize("heights", [[0.1, 0.5, 0.9], [0.5, 0.5, 0.5], [0.9, 0.2, 0.88, 0.21, 0.25], []])
def test_labels_keep_their_order_and_a_distance(heights: list[float]) -> None:
    placed = spread(heights, 0.05)
    assert sorted(range(len(placed)), key=lambda i: placed[i]) == sorted(
        range(len(heights)), key=lambda i: heights[i]
    )
    assert all(above - below >= 0.05 - 1e-9 for below, above in pairwise(sorted(placed)))
    assert sum(placed) == pytest.approx(sum(heights))  # the labels move up as far as down
    if heights == [0.1, 0.5, 0.9]:
        assert placed == heights
