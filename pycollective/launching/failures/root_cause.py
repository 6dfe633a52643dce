"""Whose fault was it? The first rank that failed for a reason of its own."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from pycollective.launching.failures.last_error import last_error, last_header, plain

SETTLE_S = 1.0  # how long a rank that only reports another rank's end leaves that rank to fail by itself
# A rank that reports the end of another one is a victim, even if it exits first.
_CONSEQUENCE = re.compile(
    rb"^pycollective\.(\w+\.)*((Peer\w+|Aborted)\b|CollectiveMismatch: .*\bmade shutdown instead of\b)"
)
_STOPPED = re.compile(rb"(KeyboardInterrupt|SystemExit)\b")  # what handlers of our signals usually raise


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


def is_consequence(lines: Sequence[bytes]) -> bool:
    """Whether the last error in what a rank wrote to its standard error names the end of another rank."""
    return consequence(lines) is not None


def consequence(lines: Sequence[bytes]) -> int | None:
    """Where that error stands. Warnings may follow it, as Python prints them when it ends."""
    if last_header(lines) is not None:
        error = last_error(lines)
        return error if error is not None and _CONSEQUENCE.match(plain(lines[error])) else None
    return next((number for number, line in enumerate(lines) if _CONSEQUENCE.match(plain(line))), None)


def judged(rank: int, status: int, lines: Sequence[bytes]) -> Failure:
    """A rank that was killed by a signal has not ended of an error, even if it has survived and reported one."""
    return Failure(rank, status, status >= 0 and is_consequence(lines))


def ended_by_itself(status: int, lines: Sequence[bytes]) -> bool:
    """Whether a rank that was being stopped has ended of an error of its own nevertheless, and not of our signals."""
    if status <= 0:
        return status not in (0, -signal.SIGTERM, -signal.SIGKILL)
    error = last_error(lines)
    return error is not None and not is_consequence(lines) and not _STOPPED.match(plain(lines[error]))


def root_cause(failures: Sequence[Failure]) -> Failure | None:
    return next((f for f in failures if not f.consequence), failures[0] if failures else None)
