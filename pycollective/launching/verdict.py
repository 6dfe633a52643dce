"""Whose fault was it? The first rank that failed for a reason of its own."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

# A rank that reports the end of another one is a victim, even if it exits first.
_CONSEQUENCE = re.compile(rb"^pycollective\.(\w+\.)*(Peer\w+|Aborted)\b")


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
    for line in reversed(last_lines):
        if line[:1] == b" ":
            return False  # inside a traceback's frames: the error's own lines are below and did not match
        if _CONSEQUENCE.match(line):
            return True
        if line.startswith(b"Traceback"):
            return False
    return False


def culprit(failures: Sequence[Failure]) -> Failure | None:
    return next((f for f in failures if not f.consequence), failures[0] if failures else None)
