"""Finds the root cause: the first rank that did not fail because of another rank."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from pycollective.launching.failures.last_error import last_error, last_header, plain

SETTLE_S = 1.0  # how long to wait for the root cause after a rank has reported that another rank ended
# If the last error of a rank matches, the rank reports the end of another rank. It is not the root
# cause then, even if it exits first.
_CONSEQUENCE = re.compile(
    rb"^pycollective\.(\w+\.)*((Peer\w+|Aborted)\b|CollectiveMismatch: .*\bmade shutdown instead of\b)"
)
# Exceptions that a program's handlers for SIGINT and SIGTERM usually raise.
_STOPPED = re.compile(rb"(KeyboardInterrupt|SystemExit)\b")


@dataclass(frozen=True)
class Failure:
    rank: int
    status: int  # exit code, or minus the number of the signal that killed the rank
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
    """Return whether the last error that a rank wrote reports the end of another rank."""
    return consequence(lines) is not None


def consequence(lines: Sequence[bytes]) -> int | None:
    """Return the position of the line that reports another rank's end, or None.

    Other lines, such as Python's warnings at exit, may follow it.
    """
    if last_header(lines) is not None:
        error = last_error(lines)
        return error if error is not None and _CONSEQUENCE.match(plain(lines[error])) else None
    return next((number for number, line in enumerate(lines) if _CONSEQUENCE.match(plain(line))), None)


def judged(rank: int, status: int, lines: Sequence[bytes]) -> Failure:
    """Classify a failure: it is a consequence if the rank's last error reports another rank's end.

    The end of a rank that was killed by a signal is never a consequence, whatever the rank
    reported.
    """
    return Failure(rank, status, status >= 0 and is_consequence(lines))


def ended_by_itself(status: int, lines: Sequence[bytes]) -> bool:
    """Return whether a rank that was being stopped ended by an error of its own instead."""
    if status <= 0:
        return status not in (0, -signal.SIGTERM, -signal.SIGKILL)
    error = last_error(lines)
    return error is not None and not is_consequence(lines) and not _STOPPED.match(plain(lines[error]))


def root_cause(failures: Sequence[Failure]) -> Failure | None:
    return next((f for f in failures if not f.consequence), failures[0] if failures else None)
