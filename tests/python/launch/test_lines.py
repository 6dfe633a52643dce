"""How the output of ranks is cut into lines: nothing visible is lost, and the cost is low."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import dataclass

import pytest

from pycollective.launching.streams import line_cutter, rows
from pycollective.launching.streams.line_cutter import LineCutter
from pycollective.launching.streams.lines import visible
from pycollective.launching.streams.rows import Rows


def cut(text: bytes, *, raw: bool, seed: int) -> bytes:
    """Returns the lines of text that arrives in pieces."""
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
    for _ in range(200_000):  # the dots of long tests
        cutter.cut(b".")
        cutter.unfinished()
    assert len(cutter.last()) == 200_000
    assert time.process_time() - began < 10  # seconds of the processor, whatever else runs


def test_a_line_without_end_comes_in_pieces() -> None:
    cutter = LineCutter()
    piece = b"x" * (line_cutter.LONGEST_LINE // 2)
    text = b"".join(cutter.cut(piece) for _ in range(5))
    assert text + cutter.last() == piece * 5
    assert len(text) > line_cutter.LONGEST_LINE


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def shown(text: bytes) -> list[bytes]:
    """Returns the lines as a terminal shows them."""
    return [visible(line).strip() for line in text.removesuffix(b"\n").split(b"\n") if text]


# tqdm draws a bar below another one and moves back up; `position=1` means the second line.
BELOW, BACK = b"\n", b"\x1b[A"
# rich hides the cursor, and redraws all lines from the first one.
HIDES, SHOWS, AGAIN = b"\x1b[?25l", b"\n\x1b[?25h", b"\r\x1b[2K\x1b[1A\x1b[2K"


def test_nested_bars_are_lines_that_change_until_they_end() -> None:
    cutter, cuts = LineCutter(), b""
    for outer in range(3):
        cuts += cutter.cut(b"\r outer %d" % outer)
        for inner in range(3):
            for piece in (BELOW, b"\r inner %d" % inner, BACK[:2], BACK[2:]):
                cuts += cutter.cut(piece)
            assert shown(cutter.unfinished()) == [b"outer %d" % outer, b"inner %d" % inner]
    assert cuts == b""
    cuts += cutter.cut(BELOW + b"\r        \r" + BACK)  # what tqdm prints for leave=False
    cuts += cutter.cut(b"\r outer 3\n") + cutter.cut(b"loss 0.1\n")
    cuts += cutter.cut(b"loss 0.2\n")
    assert shown(cuts) == [b"outer 3", b"loss 0.1", b"loss 0.2"]
    assert cutter.last() == b""


def test_a_table_of_bars_that_hides_the_cursor_stays_until_it_shows_it_again() -> None:
    clock = Clock()
    cutter = LineCutter(rows=Rows(clock))
    cuts = cutter.cut(HIDES + b"first 0\nsecond 0")
    for number in range(1, 4):
        cuts += cutter.cut(AGAIN + b"first %d\nsecond %d" % (number, number))
        assert shown(cutter.unfinished()) == [b"first %d" % number, b"second %d" % number]
        assert cutter.due_s() is None
        clock.now += 60
    assert cuts == b""
    cuts += cutter.cut(AGAIN + b"printed above\nfirst 4\nsecond 4")
    clock.now += rows.HOLD_S
    assert cutter.due_s() == 0
    assert shown(cutter.let_go()) == [b"printed above"]
    assert shown(cutter.cut(SHOWS)) == [b"first 4", b"second 4"]
    assert cutter.cut(b"after\n") == b"after\n"


def test_a_bar_that_has_ended_waits_a_moment_for_the_cursor_to_come_back() -> None:
    clock = Clock()
    cutter = LineCutter(rows=Rows(clock))
    assert cutter.cut(b"\r50 %\r100 %\n") == b""
    assert cutter.due_s() == rows.HOLD_S
    assert cutter.let_go() == b""
    clock.now += rows.HOLD_S
    assert shown(cutter.let_go()) == [b"100 %"]
    assert cutter.due_s() is None
    assert cutter.cut(b"\r100 %\n") + cutter.cut(b"loss\n") == b"100 %\nloss\n"  # text may follow it at once
    assert cutter.cut(b"\r100 %\n") + cutter.give_way() == b"100 %\n"


def test_a_move_above_all_that_is_kept_makes_no_lines_of_its_own() -> None:
    cutter = LineCutter()
    assert cutter.cut(b"one\ntwo") == b"one\n"
    cutter.cut(b"\x1b[A\rone again\n\rtwo again")
    assert shown(cutter.unfinished()) == [b"one again", b"two again"]
    cutter = LineCutter()
    assert cutter.cut(b"\x1b[9999A\x1b[30A\rbar\x1b[2B\x1b[99B") == b""
    assert shown(cutter.last()) == [b"bar"]


@pytest.mark.parametrize("hides", [b"", HIDES])
def test_little_is_kept_of_what_is_drawn_for_ever(hides: bytes) -> None:
    cutter = LineCutter()
    cuts = cutter.cut(hides + b"".join(b"\r%d\n" % number for number in range(1000)))
    assert len(cuts.splitlines()) == 1000 - rows.MOST_ROWS
    assert shown(cuts + cutter.last()) == [b"%d" % number for number in range(1000)]


def test_no_word_comes_twice_whatever_the_moves_and_the_pieces_are() -> None:
    chance = random.Random(1)
    for seed in range(300):
        words = [b"w%d" % number for number in range(8)]
        text = b"".join(word + chance.choice([b"\n", b"\r\n", b"\x1b[A\n\n", b"\x1b[2B\n"]) for word in words)
        lines = shown(cut(text, raw=False, seed=seed))
        found = [line for line in lines if line]
        assert sorted(found) == sorted(set(found)), text
        assert shown(cut(text, raw=False, seed=0)) == lines, text
