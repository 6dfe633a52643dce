"""What one check found: one line for people, one object for programs."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Literal

Status = Literal["OK", "WARN", "FAIL"]
INDENT = 29


@dataclass(frozen=True)
class CheckResult:
    """What was looked at and found. A remedy stands beside every WARN and FAIL; beside an OK it is a hint."""

    check: str
    status: Status
    found: str
    remedy: str = ""

    def text(self) -> str:
        """The line as people read it, with the remedy below."""
        head = f"{self.status:<6}{self.check:<{INDENT - 6}}{self.found}"
        advice = "hint" if self.status == "OK" else "remedy"
        whole = f"{head}\n{advice}: {self.remedy}" if self.remedy else head
        first, *rest = whole.splitlines()
        return "\n".join([first, *(textwrap.indent(line, " " * INDENT) for line in rest)])


def ok(check: str, found: str, hint: str = "") -> CheckResult:
    """All is well."""
    return CheckResult(check, "OK", found, hint)


def warn(check: str, found: str, remedy: str) -> CheckResult:
    """It works, or may work, but not as well as it could."""
    return CheckResult(check, "WARN", found, remedy)


def fail(check: str, found: str, remedy: str) -> CheckResult:
    """It does not work like this."""
    return CheckResult(check, "FAIL", found, remedy)
