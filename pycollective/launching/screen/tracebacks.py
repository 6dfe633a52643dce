"""Holds back the ranks' last errors briefly, to show equal errors once and the root cause last."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from pycollective.launching.failures.last_error import (
    HEADER,
    begins,
    is_header,
    last_error,
    last_header,
    plain,
)
from pycollective.launching.failures.root_cause import consequence

HOLD_S = 2.0  # how long an error is held back if the rank still runs
VICTIM_HOLD_S = 10.0  # how long an error that only reports another rank's end is held back
LINES_HOLD_S = 0.5  # how long lines without an error are held back, if the rank prints nothing meanwhile
WINDOW_S = 10.0  # an equal error is shown again after this time
LONGEST, LONGEST_NBYTES = 2000, 1 << 20  # maximum lines and bytes that are held back for a rank
# maximum lines and bytes without an error that are held back for a rank
MOST_LINES, MOST_LINES_NBYTES = 40, 1 << 14
COMPARED_NBYTES = 4096  # bytes of a line that are compared directly; the rest is compared by checksum
# Text that may differ between equal errors of two ranks: object addresses, process ids, local
# devices, times.
_VARYING = re.compile(
    rb"0x[0-9a-f]+|(?i:(?<=\bpid[ =:])|(?<=\bpid: )|(?<=\bprocess )|(?<=\bcuda:)|(?<=\bgpu )|(?<=\bworker ))\d+"
    rb"|(?<![\d.])\d+(?:\.\d+)?(?:e-\d+)? m?s\b"
)
# A message of pycollective. Its further lines are indented.
_OURS = re.compile(rb"^(pycollective\.[\w.]+): .*(?:\n .*)*", re.MULTILINE)
_NUMBER = re.compile(rb"\d+")


def identity(rank: int, lines: Sequence[bytes]) -> bytes:
    """Return a key that is equal for two errors that mean the same.

    The texts of pycollective's messages are left out, because they describe the same failure from
    each rank's perspective.
    """
    text = b"\n".join(HEADER if is_header(line) else in_short(plain(line)) for line in lines)
    text = _OURS.sub(rb"\1", _VARYING.sub(b"", text.strip()))
    return re.sub(rb"(?i)(?<![a-z])rank[\"']?[ :=_-]{0,3}%d\b" % rank, b"rank", text)


def kind(lines: Sequence[bytes]) -> bytes:
    """Return a key that is equal for reports of the same rank's end, whatever call reports it."""
    return _NUMBER.sub(b"", _VARYING.sub(b"", b"\n".join(map(in_short, lines)).strip()))


def is_beginning(lines: Sequence[bytes], of: Sequence[bytes], rank: int, of_rank: int) -> bool:
    """Return whether `lines` is the error `of`, cut off because `rank` was stopped.

    At least the header and one frame must be equal.
    """
    there, whole = identity(rank, lines), identity(of_rank, of)
    first, *more = there.split(b"\n", 2)
    return bool(more) and whole.startswith(b"%s\n%s\n" % (first, more[0])) and whole.startswith(there)


def folds(lines: Sequence[bytes]) -> bool:
    """Return whether the lines are an error, which is shown once if several ranks write it."""
    return not lines[0].startswith(b"usage: ") or any(b"error: " in line.lower() for line in lines)


def in_short(line: bytes) -> bytes:
    """Return the line, or a form of limited length for comparison if it is long."""
    rest = line[COMPARED_NBYTES:]
    return line[:COMPARED_NBYTES] + blake2b(rest).hexdigest().encode() if rest else line


def spans(ranks: Sequence[int]) -> str:
    """Format ranks as `0-2, 5`."""
    words: list[str] = []
    begin = None
    for rank in sorted(set(ranks)):
        begin = rank if begin is None else begin
        if rank + 1 not in ranks:
            words.append(str(rank) if begin == rank else f"{begin}-{rank}")
            begin = None
    return ", ".join(words)


def named(ranks: Sequence[int]) -> str:
    """Format ranks as `rank 3` or `ranks 0-2, 5`."""
    return f"rank{'s' if len(ranks) > 1 else ''} {spans(ranks)}"


@dataclass(frozen=True)
class Ending:
    """What to show when all ranks have ended."""

    lines: list[bytes]  # held-back lines, prefixed with their ranks
    alike: list[int]  # the other ranks that wrote the same error as the rank that failed first
    shown: bool  # whether the error of the rank that failed first has been shown
    whole: list[bytes]  # error or last lines of the rank that failed first, if not shown yet
    # Other ranks with the same last lines as the rank that failed first, if these are no error.
    said_too: list[int] = field(default_factory=list)


@dataclass
class Shown:
    """An error that has been shown, and when."""

    at: float
    writers: list[int]  # ranks that wrote the error; the text of the first rank was shown


@dataclass
class Consequences:
    """Ranks that report the end of the same rank."""

    words: list[bytes]  # the report of the first of these ranks
    ranks: list[int] = field(default_factory=list)


@dataclass
class Tracebacks:
    """The errors of all ranks of one screen."""

    clock: Callable[[], float] = time.monotonic
    held: dict[int, list[bytes]] = field(default_factory=dict)  # by rank: lines that are held back
    held_nbytes: dict[int, int] = field(default_factory=dict)
    # by rank: lines without an error, which may be the rank's last
    recent: dict[int, list[bytes]] = field(default_factory=dict)
    # by rank: the checksum of the lines that were released last
    said: dict[int, bytes] = field(default_factory=dict)
    shown: dict[bytes, Shown] = field(
        default_factory=dict
    )  # by checksum of the error's identity; expires after WINDOW_S
    last: dict[int, bytes] = field(
        default_factory=dict
    )  # by rank: the checksum of its error, if it has written nothing since
    unreported: dict[tuple[bytes, int], list[int]] = field(
        default_factory=dict
    )  # by (checksum, rank that showed the error): ranks that wrote an equal error

    def take(self, rank: int, lines: list[bytes]) -> list[bytes]:
        """Return the lines to show now.

        All lines from the possible beginning of an error on are held back.
        """
        if rank not in self.held:
            first = next((number for number, line in enumerate(lines) if begins(line)), len(lines))
            lines, rest = lines[:first], lines[first:]
            if lines:
                self.last.pop(rank, None)
                self.said.pop(rank, None)
            lines = self.but_for_recent(rank, lines, go=bool(rest))
            if rest:
                self.held[rank], self.held_nbytes[rank] = [], 0
        else:
            lines, rest = [], lines
        if rest:
            self.held[rank] += rest
            self.held_nbytes[rank] += sum(map(len, rest))
            if len(self.held[rank]) > LONGEST or self.held_nbytes[rank] > LONGEST_NBYTES:
                lines += self.release(rank)
        return lines

    def release(self, rank: int) -> list[bytes]:
        """Release a held-back error. Returns [] if another rank has just shown an equal one."""
        return self.but_for_equal(rank, self.let_go(rank))

    def but_for_recent(self, rank: int, lines: list[bytes], *, go: bool) -> list[bytes]:
        lines = self.recent.pop(rank, []) + lines
        if go or len(lines) > MOST_LINES or sum(map(len, lines)) > MOST_LINES_NBYTES:
            return lines
        if lines:
            self.recent[rank] = lines
        return []

    def release_recent(self, rank: int) -> list[bytes]:
        """Release lines that were held back because they may have been the rank's last."""
        lines = self.recent.pop(rank, [])
        if lines:
            self.said[rank] = checksum(identity(rank, lines))
        return lines

    def let_go(self, rank: int) -> list[bytes]:
        self.held_nbytes.pop(rank, None)
        return self.held.pop(rank, [])

    def but_for_equal(self, rank: int, lines: list[bytes]) -> list[bytes]:
        self.last.pop(rank, None)
        if not lines or not folds(lines):
            return lines
        now = self.clock()
        self.shown = {key: each for key, each in self.shown.items() if now - each.at < WINDOW_S}
        key = self.last[rank] = checksum(identity(rank, lines))
        if key not in self.shown or rank in self.shown[key].writers:
            self.shown[key] = Shown(now, [rank])
            return lines
        self.shown[key].writers.append(rank)
        self.unreported.setdefault((key, self.shown[key].writers[0]), []).append(rank)
        return []

    def reported(self) -> list[bytes]:
        """Return a line for each error that further ranks have written since the last call."""
        lines = [
            b"[%s] the same error as rank %d" % (spans(ranks).encode(), first)
            for (_, first), ranks in self.unreported.items()
        ]
        self.unreported.clear()
        return lines

    def end(self, failed_first: int | None) -> Ending:
        """Return what to show when all ranks have ended.

        Ranks that report the end of `failed_first` in the same words share one line.
        """
        if failed_first is None:
            lines = [line for rank in sorted(self.recent) for line in label(rank, self.recent.pop(rank))]
            lines += [line for rank in sorted(self.held) for line in self.labelled(rank, self.let_go(rank))]
            return Ending(lines + self.reported(), [], shown=False, whole=[])
        its = self.let_go(failed_first)
        words = self.recent.pop(failed_first, [])
        key = checksum(identity(failed_first, its)) if its else self.last.get(failed_first, b"")
        shown = key in self.shown
        lines, said_too = self.end_of_words(
            checksum(identity(failed_first, words)) if words else self.said.get(failed_first)
        )
        alike = {rank for rank, last in self.last.items() if last == key}
        self.unreported = {about: ranks for about, ranks in self.unreported.items() if about[0] != key}
        consequences: dict[bytes, Consequences] = {}  # by kind()
        for rank in sorted(self.held):
            its_own = self.let_go(rank)
            if same := bool(its) and is_beginning(its_own, its, rank, failed_first):
                its_own = []
            elif same := checksum(identity(rank, its_own[: len(its) or None])) == key:
                its_own = its_own[len(its) :] if its else []
            if same:
                alike.add(rank)
            lines += self.labelled(rank, without_end(rank, its_own, consequences))
        lines += self.reported()
        for each in consequences.values():
            lines += [b"[%s] %s" % (spans(each.ranks).encode(), line) for line in each.words]
        return Ending(lines, sorted(alike - {failed_first}), shown, [] if shown else its or words, said_too)

    def end_of_words(self, key: bytes | None) -> tuple[list[bytes], list[int]]:
        """Return the last lines of ranks if they are no error, prefixed with the ranks.

        `key` is the checksum of the last lines of the rank that failed first. Ranks with equal
        lines are returned in the second list instead.
        """
        lines: list[bytes] = []
        alike = []
        for rank in sorted(self.recent):
            its_own = self.recent.pop(rank)
            if checksum(identity(rank, its_own)) == key:
                alike.append(rank)
            else:
                lines += label(rank, its_own)
        return lines, alike

    def labelled(self, rank: int, lines: list[bytes]) -> list[bytes]:
        return label(rank, self.but_for_equal(rank, lines))


def label(rank: int, lines: Sequence[bytes]) -> list[bytes]:
    return [b"[%d] %s" % (rank, line) for line in lines]


def without_end(rank: int, lines: list[bytes], consequences: dict[bytes, Consequences]) -> list[bytes]:
    """Remove a traceback that was cut off, or that only reports another rank's end.

    The reports are added to `consequences`.
    """
    header = last_header(lines)
    if header is not None and last_error(lines) is None:
        return lines[:header]
    error = consequence(lines)
    if error is None:
        return lines
    words = lines[error:]
    consequences.setdefault(kind(words), Consequences(words)).ranks.append(rank)
    return lines[: error if header is None else header]


def checksum(text: bytes) -> bytes:
    return blake2b(text, digest_size=16).digest()
