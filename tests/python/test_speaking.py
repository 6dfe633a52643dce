"""What one rank says for all."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import named_checks
import pytest

import pycollective as pc
from pycollective import speaking

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


def test_on_a_terminal_one_line_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaking, "REDRAW_S", 0)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    for _ in pc.progress(range(100, 103)):
        pass
    first, *lines = terminal.getvalue().split("\r")
    assert first == ""
    assert [line.partition(",")[0] for line in lines] == ["1/3 33%", "2/3 66%", "3/3 100%", "3/3 100%"]
    assert terminal.getvalue().endswith("in all\n")
    assert terminal.getvalue().count("\n") == 1


def test_elsewhere_lines_come_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    list(pc.progress(range(1000)))
    assert len(capsys.readouterr().err.splitlines()) == 1
    monkeypatch.setattr(speaking, "LINE_S", 0)
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
