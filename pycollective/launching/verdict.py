"""Whose fault was it? The first rank that failed for a reason of its own."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

# A rank that reports the end of another one is a victim, even if it exits first.
_CONSEQUENCE = re.compile(
    rb"^pycollective\.(\w+\.)*((Peer\w+|Aborted)\b|CollectiveMismatch: .*\bmade shutdown instead of\b)"
)
_TORCHS_PREFIX = re.compile(rb"^\[rank\d+\]: ?")  # torch.distributed puts it before each line of a traceback


@dataclass(frozen=True)
class Failure:
    rank: int
    status: int  # exit code, or minus a signal number
    consequence: bool

    @property
    def exit_code(self) -> int:
        return 128 - self.status if self.status < 0 else self.status

    @property
    def cause(self) -> str:
        if self.status >= 0:
            return f"exit code {self.status}"
        return f"signal {signal_name(-self.status)}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)


def is_consequence(last_lines: Sequence[bytes]) -> bool:
    """Whether a traceback at the end of a rank's standard error ends in an error that names another rank."""
    for line in map(plain, reversed(last_lines)):
        if line[:1] == b" ":
            return False  # inside a traceback's frames: the error's own lines are below and did not match
        if _CONSEQUENCE.match(line):
            return True
        if line.startswith(b"Traceback"):
            return False
    return False


def plain(line: bytes) -> bytes:
    """The line as Python wrote it."""
    return _TORCHS_PREFIX.sub(b"", line)


def error_lines(last_lines: Sequence[bytes]) -> list[bytes]:
    """Of a traceback, or what else ended a rank: the error itself, which stands below the frames."""
    found: list[bytes] = []
    for line in map(plain, reversed(last_lines)):
        if found and (line[:1] == b" " or line.startswith(b"Traceback")):
            break
        if line.strip() or found:
            found.append(line)
    return found[::-1]


def culprit(failures: Sequence[Failure]) -> Failure | None:
    return next((f for f in failures if not f.consequence), failures[0] if failures else None)
