"""The result of one check: one line of text, or one object for programs."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Literal

Status = Literal["OK", "WARN", "FAIL"]
INDENT = 29


@dataclass(frozen=True)
class CheckResult:
    """A check and its result. A WARN or FAIL always has a remedy; the remedy of an OK is a hint."""

    check: str
    status: Status
    found: str
    remedy: str = ""

    def text(self) -> str:
        """Returns the line, with the remedy below it."""
        head = f"{self.status:<6}{self.check:<{INDENT - 6}}{self.found}"
        advice = "hint" if self.status == "OK" else "remedy"
        whole = f"{head}\n{advice}: {self.remedy}" if self.remedy else head
        first, *rest = whole.splitlines()
        return "\n".join([first, *(textwrap.indent(line, " " * INDENT) for line in rest)])


def ok(check: str, found: str, hint: str = "") -> CheckResult:
    """Returns an OK result. `hint` may suggest an improvement."""
    return CheckResult(check, "OK", found, hint)


def warn(check: str, found: str, remedy: str) -> CheckResult:
    """Returns a WARN result: what was found works, or may work, but can be improved."""
    return CheckResult(check, "WARN", found, remedy)


def fail(check: str, found: str, remedy: str) -> CheckResult:
    """Returns a FAIL result: what was found does not work."""
    return CheckResult(check, "FAIL", found, remedy)
