"""How what ranks write is cut into lines: nothing is lost that a terminal would show, and much costs little."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from pycollective.launching import lines
from pycollective.launching.lines import LineCutter, visible


def cut(text: bytes, *, raw: bool, seed: int) -> bytes:
    """Of text that comes in pieces."""
    chance, cutter = random.Random(seed), LineCutter(raw=raw)
    places = sorted(chance.choices(range(len(text) + 1), k=5))
    pieces = [text[begin:end] for begin, end in itertools.pairwise([0, *places, len(text)])]
    return b"".join(cutter.cut(piece) for piece in pieces if piece) + cutter.last()


def test_lines_are_the_same_however_they_come() -> None:
    chance = random.Random(0)
    for seed in range(300):
        text = bytes(chance.choices(b"ab\r\r\n", k=chance.randint(1, 12)))
        assert cut(text, raw=True, seed=seed) == text
        shown = cut(text, raw=False, seed=seed)
        assert list(map(visible, shown.split(b"\n"))) == list(map(visible, text.split(b"\n"))), text


MOVES = (b"\x1b[2K", b"\x1b[?25l", b"\x1b7", b"\x1b8", b"\x1bM", b"\x1b[3d", b"\x1b[1;9r")
TITLES = (b"\x1b]0;a title\x07", b"\x1b]0;b\x1b\\")


@pytest.mark.parametrize("moves", [*MOVES, *TITLES])
def test_moves_of_the_cursor_are_left_out_and_colours_stay(moves: bytes) -> None:
    assert visible(b"a" + moves + b"b \x1b[31mred\x1b[0m") == b"ab \x1b[31mred\x1b[0m"


def test_a_progress_bar_leaves_its_last_state_alone() -> None:
    cutter, began = LineCutter(), time.process_time()
    for number in range(200_000):
        assert cutter.cut(b"\r%6d" % number) == b""
    assert cutter.unfinished() == b"199999"
    cutter = LineCutter(raw=True)
    for number in range(100_000):
        cutter.cut(b"\r%6d" % number)
        assert visible(cutter.unfinished()) == b"%6d" % number
    cutter = LineCutter()
    for _ in range(200_000):  # tests that are long under way
        cutter.cut(b".")
        cutter.unfinished()
    assert len(cutter.last()) == 200_000
    assert time.process_time() - began < 10  # seconds of the processor, whatever else runs


def test_a_line_without_end_comes_in_pieces() -> None:
    cutter = LineCutter()
    piece = b"x" * (lines.LONGEST_LINE // 2)
    text = b"".join(cutter.cut(piece) for _ in range(5))
    assert text + cutter.last() == piece * 5
    assert len(text) > lines.LONGEST_LINE
