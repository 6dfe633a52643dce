"""Messages that one rank prints for all."""

from __future__ import annotations

import io
import sys
import types
from collections.abc import Iterator

import named_checks
import pytest

import pycollective as pc
from pycollective.training import console

CHECKS = named_checks.Checks()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@CHECKS.on(1, 2, 3)
def one_rank_prints() -> None:
    for rank in range(pc.size()):
        out = io.StringIO()
        pc.print("epoch", rank, sep="=", end=";", file=out, rank=rank)
        assert out.getvalue() == (f"epoch={rank};" if pc.rank() == rank else "")
    with pytest.raises(pc.InvalidArgument, match=f"the world has {pc.size()} ranks"):
        pc.print("x", rank=pc.size())


@CHECKS.on(2)
def all_ranks_have_the_items_and_rank_0_shows_how_far_it_is() -> None:
    before, sys.stderr = sys.stderr, io.StringIO()
    try:
        assert list(pc.progress(range(5), description="epoch 1")) == [0, 1, 2, 3, 4]
        shown = sys.stderr.getvalue()
    finally:
        sys.stderr = before
    assert shown.startswith("epoch 1 5/5 100%, ") == (pc.rank() == 0)
    assert bool(shown) == (pc.rank() == 0)


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    named_checks.assert_passed(__name__, size, name)


def test_without_a_world_it_just_prints(capsys: pytest.CaptureFixture[str]) -> None:
    pc.print("a", 1, rank=3)
    assert capsys.readouterr().out == "a 1\n"


def test_what_is_printed_is_there_at_once() -> None:
    class Watched(io.StringIO):
        flushed = False

        def flush(self) -> None:
            self.flushed = True

    out = Watched()
    pc.print("x", file=out)
    assert out.flushed


class Clock:
    """Advances by the given seconds each time it is read."""

    def __init__(self, *steps_s: float) -> None:
        self._steps_s = iter(steps_s)
        self._now_s = 0.0

    def __call__(self) -> float:
        self._now_s += next(self._steps_s)
        return self._now_s


def test_on_a_terminal_one_line_is_written_anew_over_the_longer_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(console, "time", types.SimpleNamespace(monotonic=Clock(0, 0.3, 0.1, 0.6, 1)))
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    for _ in pc.progress(range(100, 103)):
        pass
    assert terminal.getvalue().split("\r") == [
        "",
        "1/3 33%, 3.33/s, 0:00:01 left",
        "2/3 66%, 5/s, 0:00:00 left   ",
        "3/3 100%, 3/s, 0:00:01 in all",
        "3/3 100%, 1.5/s, 0:00:02 in all\n",
    ]


def test_elsewhere_lines_come_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    list(pc.progress(range(1000)))
    assert len(capsys.readouterr().err.splitlines()) == 1
    monkeypatch.setattr(console, "LINE_S", 0)
    list(pc.progress(range(3)))
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_a_stream_has_no_total_unless_it_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(pc.progress(iter("ab"))) == ["a", "b"]
    assert capsys.readouterr().err.startswith("2, ")
    list(pc.progress(iter("ab"), total=4))
    assert capsys.readouterr().err.startswith("2/4 50%, ")
    assert list(pc.progress([])) == []
    assert capsys.readouterr().err.startswith("0, ")


def test_a_loop_that_is_left_early_ends_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("no more data")

    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with pytest.raises(OSError, match="no more data"):
        list(pc.progress(items()))
    shown = pc.progress(range(3))
    next(shown)
    shown.close()  # type: ignore[attr-defined]  # as a break does
    assert terminal.getvalue().count("\n") == 2


def test_what_is_no_iterable_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="not iterable"):
        pc.progress(3)  # type: ignore[arg-type]


def test_without_a_standard_error_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert list(pc.progress("ab")) == ["a", "b"]
