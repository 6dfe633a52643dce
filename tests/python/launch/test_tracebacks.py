"""Which errors of ranks are held back or folded, and which error ended a rank. No line is lost."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from pycollective.launching.failures.last_error import begins, error_lines
from pycollective.launching.failures.root_cause import ended_by_itself, is_consequence, judged, root_cause
from pycollective.launching.screen import tracebacks
from pycollective.launching.screen.tail import TAIL_LINES, TAIL_NBYTES, Tail
from pycollective.launching.screen.tracebacks import Tracebacks, spans

HEAD = b"Traceback (most recent call last):"
FRAME = b'  File "x.py", line 1, in <module>'
ERROR = [HEAD, FRAME, b"ValueError: boom"]
VICTIM = [HEAD, FRAME, b"pycollective.errors.PeerFailure: barrier on rank 0: rank 1 failed"]
TRACKER = [
    b"/usr/lib/python3/multiprocessing/resource_tracker.py:224: UserWarning: leaked",
    b"  warnings.warn(",
]


def end_of(failed_first: int, **texts: list[bytes]) -> tracebacks.Ending:
    """Returns the end of ranks that have written this, each named as `r0`."""
    screen = Tracebacks()
    for name, lines in texts.items():
        screen.take(int(name[1:]), lines)
    return screen.end(failed_first)


def test_what_a_rank_repeats_is_shown_again() -> None:
    screen = Tracebacks()
    for _ in range(2):
        screen.take(0, ERROR)
        assert screen.release(0) == ERROR
    assert screen.reported() == []


def test_an_equal_error_is_printed_again_after_a_while() -> None:
    now = 0.0
    screen = Tracebacks(clock=lambda: now)
    screen.take(0, ERROR)
    assert screen.release(0) == ERROR
    now += tracebacks.WINDOW_S
    screen.take(1, ERROR)
    assert screen.release(1) == ERROR


def test_errors_behind_an_equal_report_of_ours_are_compared_too() -> None:
    timeout = [HEAD, FRAME, b"pycollective.errors.CollectiveTimeout: on rank %d", b"    ranks 0, 1: in step"]
    ending = end_of(
        0,
        r0=[*timeout, b"retries", HEAD, FRAME, b"KeyError: 1"],
        r1=[*timeout, b"retries", HEAD, FRAME, b"IndexError: 2"],
    )
    assert ending.alike == []
    assert b"[1] IndexError: 2" in ending.lines


OF_A_RANK = """rank %d; Rank %d; rank=%d; rank: %d; {'rank': %d}; local_rank=%d; [rank%d]; out/rank_%d.txt;
on cuda:%d; GPU %d; in worker %d; Process %d; PID %d; pid=%d; pid: %d"""


@pytest.mark.parametrize("words", re.split(r";\s", OF_A_RANK))
def test_errors_that_differ_in_the_number_of_their_rank_or_process_are_one(words: str) -> None:
    texts = {f"r{rank}": [*ERROR[:2], b"ValueError: " + (words % rank).encode()] for rank in range(8)}
    ending = end_of(3, **texts)
    assert ending.alike == [0, 1, 2, 4, 5, 6, 7]
    assert ending.lines == []


@pytest.mark.parametrize("words", ["file %d", "Frank %d", "rank 1%d", "expid %d"])
def test_errors_that_differ_in_other_numbers_are_not_one(words: str) -> None:
    texts = {f"r{rank}": [*ERROR[:2], b"ValueError: " + (words % rank).encode()] for rank in range(2)}
    assert end_of(0, **texts).alike == []


def test_the_number_of_another_rank_is_a_difference() -> None:
    texts = {f"r{rank}": [*ERROR[:2], b"ValueError: rank %d lags" % (rank + 1)] for rank in range(2)}
    assert end_of(0, **texts).alike == []
    texts = {f"r{rank}": [*ERROR[:2], b"ValueError: on cuda:0"] for rank in range(2)}
    assert end_of(0, **texts).alike == [1]


NO_DATA = [b"loads the data", b"no data in /data"]


def test_last_lines_that_several_ranks_write_are_the_root_causes() -> None:
    ending = end_of(2, r0=NO_DATA, r1=[b"saves"], r2=NO_DATA, r3=[b"rank 3", *NO_DATA])
    assert (ending.whole, ending.said_too, ending.alike) == (NO_DATA, [0], [])
    assert ending.lines == [b"[1] saves", b"[3] rank 3", *(b"[3] " + line for line in NO_DATA)]
    own = {f"r{rank}": [b"no data for rank %d" % rank] for rank in range(3)}
    assert end_of(1, **own).said_too == [0, 2]


def test_last_lines_of_the_root_cause_that_are_shown_are_not_shown_again_for_others() -> None:
    screen = Tracebacks()
    for rank in range(2):
        screen.take(rank, NO_DATA)
    assert screen.release_recent(1) == NO_DATA
    ending = screen.end(1)
    assert (ending.lines, ending.whole, ending.said_too) == ([], [], [0])
    for rank in range(2):
        screen.take(rank, NO_DATA)
    assert screen.release_recent(1) == NO_DATA
    screen.take(1, [b"goes on"])  # so they were not its last
    assert screen.end(1).lines == [b"[0] " + line for line in NO_DATA]


def test_an_error_and_equal_lines_beside_it_are_distinguished() -> None:
    ending = end_of(0, r0=[*NO_DATA, *ERROR], r1=NO_DATA, r2=ERROR)
    assert (ending.lines, ending.whole) == ([b"[1] " + line for line in NO_DATA], ERROR)
    assert (ending.alike, ending.said_too) == ([2], [])


def test_lines_that_may_be_the_last_are_shown_in_order_and_are_few() -> None:
    screen = Tracebacks()
    assert screen.take(0, [b"one"]) == []
    assert screen.take(0, [b"two", HEAD]) == [b"one", b"two"]
    assert screen.take(1, [b"x"] * tracebacks.MOST_LINES) == []
    assert len(screen.take(1, [b"x"])) == tracebacks.MOST_LINES + 1
    long = [b"x" * (tracebacks.MOST_LINES_NBYTES + 1)]
    assert screen.take(1, long) == long
    assert end_of(7, r0=[b"end"]).lines == [b"[0] end"]


def test_what_only_looks_like_an_error_is_not_folded() -> None:
    screen = Tracebacks()
    for rank in range(2):
        held = [b"usage: 80 % of the GPU"]
        assert screen.take(rank, held) == []
        assert screen.release(rank) == held
        assert screen.take(rank, [b"/usr/bin/python3: 3 processes"]) == []
        assert screen.release_recent(rank) == [b"/usr/bin/python3: 3 processes"]


def test_lines_before_a_traceback_that_breaks_off_are_shown() -> None:
    ending = end_of(
        0, r0=ERROR, r1=[*ERROR[:2], b"KeyError: survived", b"  saved", HEAD, FRAME], r2=[HEAD, FRAME, b" "]
    )
    assert ending.lines == [b"[1] " + line for line in (HEAD, FRAME, b"KeyError: survived", b"  saved")]
    assert ending.alike == [2]


def test_lines_around_a_victims_error_are_shown() -> None:
    survived = [HEAD, FRAME, b"KeyError: survived", b"saves"]
    ending = end_of(1, r0=[*survived, *VICTIM, b"deletes its files"], r1=ERROR)
    assert ending.lines == [b"[0] " + line for line in [*survived, VICTIM[-1], b"deletes its files"]]


def test_victims_of_different_ends_are_distinguished() -> None:
    other = [*VICTIM[:2], b"pycollective.errors.PeerFailure: the store on host b is gone"]
    ending = end_of(3, r0=VICTIM, r1=VICTIM, r2=other, r3=ERROR)
    assert ending.lines == [b"[0-1] " + VICTIM[-1], b"[2] " + other[-1]]


def test_a_header_alone_is_not_the_same_error() -> None:
    ending = end_of(0, r0=ERROR, r1=[HEAD], r2=ERROR[:2], r3=[*ERROR, *TRACKER])
    assert ending.alike == [2, 3]
    assert ending.lines == [b"[3] " + line for line in TRACKER]


def test_the_error_that_counts_is_the_one_that_was_written_last() -> None:
    screen = Tracebacks()
    second = [HEAD, FRAME, b"KeyError: 2"]
    for rank, lines in ((1, ERROR), (1, second), (0, ERROR)):
        screen.take(rank, lines)
        screen.release(rank)
    assert screen.end(1).alike == []
    screen.take(1, [b"goes on"])  # so that error did not end it
    assert not screen.end(1).shown


def test_little_is_kept_of_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracebacks, "LONGEST_NBYTES", 100)
    now = 0.0
    screen, tail = Tracebacks(clock=lambda: now), Tail()
    for number in range(100):
        lines = [HEAD, b"x" * 100 + b"%d" % number]
        assert screen.take(0, lines) == lines
        tail.add([b"x" * 1_000_000] * 2)
        now += 1.0
    assert not screen.held
    assert len(screen.shown) <= tracebacks.WINDOW_S
    assert sum(map(len, tail.lines)) <= TAIL_NBYTES


@pytest.mark.parametrize("bar", [b"\r 40%|##  \r 50%|## | 5/10 [00:01]", b"\x1b[2K", b"[rank0]: "])
def test_a_traceback_behind_a_progress_bar_is_one(bar: bytes) -> None:
    assert begins(bar + HEAD)
    assert end_of(0, r0=ERROR, r1=[bar + HEAD, *ERROR[1:]]).alike == [1]
    assert is_consequence([bar + HEAD, *VICTIM[1:]])


def coloured(lines: Sequence[bytes]) -> list[bytes]:
    """Colours the lines as Python 3.13 does with FORCE_COLOR=1."""
    place = b'  File \x1b[35m"x.py"\x1b[0m, line \x1b[35m1\x1b[0m, in \x1b[35m<module>\x1b[0m'
    kind, _, words = lines[-1].partition(b": ")
    return [lines[0], place, b"\x1b[1;35m%s\x1b[0m: \x1b[35m%s\x1b[0m" % (kind, words)]


def test_colours_hide_no_error() -> None:
    victim, error = coloured(VICTIM), coloured(ERROR)
    assert is_consequence(victim)
    assert root_cause([judged(0, 1, victim), judged(1, 1, error)]) == judged(1, 1, error)
    ending = end_of(1, r0=victim, r1=error, r2=error, r3=ERROR)
    assert ending.alike == [2, 3]
    assert ending.lines == [b"[0] " + victim[-1]]
    assert error_lines(error) == error[-1:]
    assert not ended_by_itself(1, coloured([HEAD, FRAME, b"KeyboardInterrupt: "]))
    assert begins(b'\x1b[0m  File \x1b[35m"x.py"\x1b[0m, line \x1b[35m1\x1b[0m')  # of a SyntaxError


def boxed(error: bytes, sides: Sequence[str]) -> list[bytes]:
    """Returns what rich and typer print, in a terminal with their lines or with only ASCII."""
    begin, middle, end, line, side = sides
    words = f"{begin}{line * 8} Traceback (most recent call last) {line * 8}{middle}"
    frame, below = f"{side} in <module>:7                           {side}", f"{end}{line * 50}{middle}"
    return [words.encode(), frame.encode(), below.encode(), error]


@pytest.mark.parametrize("sides", ["╭╮╰─│", "+++-|"])
def test_an_error_below_a_box_is_one(sides: str) -> None:
    victim, error = boxed(VICTIM[-1], sides), boxed(ERROR[-1], sides)
    assert begins(b" 40%|##  \r\x1b[31m" + error[0])
    assert is_consequence(victim)
    ending = end_of(1, r0=victim, r1=error, r2=error, r3=error[:2])
    assert ending.alike == [2, 3]
    assert ending.lines == [b"[0] " + victim[-1]]
    assert error_lines(error) == error[-1:]
    tail = Tail()
    tail.add(victim)
    assert tail.judged == [HEAD, VICTIM[-1]]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([*VICTIM, *TRACKER], True),
        ([*VICTIM, b"", b"During handling of the above exception:", b"", *ERROR], False),
        ([*ERROR, b"", *VICTIM], True),
        ([HEAD, FRAME], False),
        ([b"  + Exception Group " + HEAD, b"  | ExceptionGroup: errors (2 sub-exceptions)"], False),
    ],
)
def test_the_last_traceback_is_what_a_rank_ended_of(lines: Sequence[bytes], expected: bool) -> None:
    assert is_consequence(lines) is expected


def test_a_rank_killed_by_a_signal_is_no_victim_of_an_error_that_it_survived() -> None:
    victim, killed = judged(0, 1, VICTIM), judged(1, -9, VICTIM)
    assert victim.consequence
    assert root_cause([victim, killed]) is killed


def test_an_error_longer_than_what_is_kept_is_known() -> None:
    tail = Tail()
    tail.add([*VICTIM, *[b"more"] * TAIL_LINES])
    assert len(tail.lines) == TAIL_LINES
    assert is_consequence(tail.judged)


def test_the_error_stands_below_the_frames() -> None:
    assert error_lines([*ERROR, *TRACKER]) == [ERROR[-1], *TRACKER]
    assert error_lines([b"  File", b"Error: 1", b"more"]) == [b"Error: 1", b"more"]


def test_spans_count_each_rank_once() -> None:
    assert spans([0, 0, 1, 1]) == "0-1"
