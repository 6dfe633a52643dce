"""Errors that ranks end with, held back for a moment: equal ones are shown once, and the first cause last."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from pycollective.launching.verdict import error_lines, is_consequence, plain

HOLD_S = 2.0  # from its first line to its appearance, if the rank lives on
VICTIM_HOLD_S = 10.0  # of one that only reports another rank's end
LONGEST = 2000  # lines
COMPARED_NBYTES = 4096  # of a line; of what follows, a checksum
# A traceback, a SyntaxError's place, a crash in C, a usage message, and what Python itself says of a wrong path.
_BEGINNING = re.compile(
    rb'(\s*\+ Exception Group )?Traceback \(most recent call last\):|  File ".*", line \d+$|Fatal Python error: '
    rb"|usage: |\S*python[\d.]*: "
)
# What differs between ranks that fail alike: addresses of objects, processes, times.
_VARYING = re.compile(rb"0x[0-9a-f]+|(?<=pid )\d+|(?<=process )\d+|(?<![\d.])\d+(?:\.\d+)?(?:e-\d+)? m?s\b")
_OURS = re.compile(
    rb"^(pycollective\.[\w.]+): .*", re.MULTILINE | re.DOTALL
)  # and what follows: it is the last
_NUMBER = re.compile(rb"\d+")


def begins(line: bytes) -> bool:
    """Whether an error may begin here."""
    return _BEGINNING.match(plain(line)) is not None


def unfinished(lines: Sequence[bytes]) -> bool:
    """Whether the rank was stopped in the middle of a traceback, above the error itself."""
    last = next((plain(line) for line in reversed(lines) if line.strip()), b"")
    return last[:1] == b" " or begins(last)


def identity(rank: int, lines: Sequence[bytes]) -> bytes:
    """Equal for errors that are the same to a reader. Ours tell one story on all ranks, from the side of each."""
    text = _VARYING.sub(b"", b"\n".join(in_short(plain(line)) for line in lines).strip())
    text = _OURS.sub(rb"\1", text)
    if is_consequence(lines):
        return _NUMBER.sub(b"", text)
    return re.sub(rb"\brank %d\b" % rank, b"rank", text)


def in_short(line: bytes) -> bytes:
    """A line that costs little to compare, however long it is."""
    rest = line[COMPARED_NBYTES:]
    return line[:COMPARED_NBYTES] + blake2b(rest).hexdigest().encode() if rest else line


def spans(ranks: Sequence[int]) -> str:
    """`0-2, 5`."""
    words: list[str] = []
    begin = None
    for rank in sorted(ranks):
        begin = rank if begin is None else begin
        if rank + 1 not in ranks:
            words.append(str(rank) if begin == rank else f"{begin}-{rank}")
            begin = None
    return ", ".join(words)


def named(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0-2, 5`."""
    return f"rank{'s' if len(ranks) > 1 else ''} {spans(ranks)}"


@dataclass(frozen=True)
class Ending:
    """What the end of a world adds to the screen."""

    lines: list[bytes]  # with their ranks in front
    alike: list[int]  # the other ranks that wrote what the culprit wrote
    shown: bool  # whether the culprit's error is on the screen already
    whole: list[bytes]  # that error, if it is not


@dataclass
class Tracebacks:
    """Everything about one screen's errors."""

    held: dict[int, list[bytes]] = field(default_factory=dict)  # by rank
    writers: dict[bytes, list[int]] = field(default_factory=dict)  # by identity: the first has shown it
    untold: dict[bytes, list[int]] = field(default_factory=dict)  # those of whom nothing has been shown

    def take(self, rank: int, lines: list[bytes]) -> list[bytes]:
        """What of these lines is shown at once. From where an error may begin, all that follows is held back."""
        if rank not in self.held:
            first = next((number for number, line in enumerate(lines) if begins(line)), len(lines))
            lines, rest = lines[:first], lines[first:]
            if rest:
                self.held[rank] = rest
        else:
            self.held[rank] += lines
            lines = []
        if len(self.held.get(rank, ())) > LONGEST:
            lines += self.release(rank)
        return lines

    def release(self, rank: int) -> list[bytes]:
        """What was held back, to be shown now; nothing if an equal error has been shown."""
        lines = self.held.pop(rank, [])
        if not lines:
            return []
        key = identity(rank, lines)
        writers = self.writers.setdefault(key, [])
        writers.append(rank)
        if len(writers) == 1:
            return lines
        self.untold.setdefault(key, []).append(rank)
        return []

    def told(self) -> list[bytes]:
        """A line for each error that further ranks have written since the last call."""
        lines = [
            b"[%s] the same error as rank %d" % (spans(ranks).encode(), self.writers[key][0])
            for key, ranks in self.untold.items()
        ]
        self.untold.clear()
        return lines

    def end(self, culprit: int | None) -> Ending:
        """When no rank is left: of those that only report the culprit's end, one line for all that say the same."""
        of_culprit = self.identity_of(culprit)
        shown = of_culprit in self.writers
        whole = [] if culprit is None or shown else self.held.get(culprit, [])
        lines: list[bytes] = []
        victims: dict[bytes, list[int]] = {}  # by the type of their errors
        words: dict[bytes, list[bytes]] = {}
        alike = set(self.writers.get(of_culprit, []) if of_culprit else [])
        for rank in sorted(self.held):
            key = identity(rank, self.held[rank])
            if of_culprit is not None and of_culprit.startswith(key):  # a rank may be stopped while it writes
                alike.add(rank)
            elif culprit is not None and unfinished(self.held[rank]):
                continue
            elif culprit is not None and is_consequence(self.held[rank]):
                error = error_lines(self.held[rank])
                victims.setdefault(error[0].partition(b":")[0], []).append(rank)
                words.setdefault(error[0].partition(b":")[0], error)
            else:
                lines += [b"[%d] %s" % (rank, line) for line in self.release(rank)]
        if of_culprit:
            self.untold.pop(of_culprit, None)
        lines += self.told()
        for kind, ranks in victims.items():
            lines += [b"[%s] %s" % (spans(ranks).encode(), line) for line in words[kind]]
        self.held.clear()
        return Ending(lines, sorted(alike - {culprit}), shown, whole)

    def identity_of(self, rank: int | None) -> bytes | None:
        """Of the error that the rank has written last."""
        if rank is None:
            return None
        if rank in self.held:
            return identity(rank, self.held[rank])
        return next((key for key, ranks in self.writers.items() if rank in ranks), None)
