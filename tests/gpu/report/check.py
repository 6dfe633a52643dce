"""One check of the report, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass, replace

PASSED, FAILED, SKIPPED, FIGURE = "passed", "failed", "skipped", "figure"


@dataclass(frozen=True)
class Check:
    """`said`: the figure, or why it failed or was skipped."""

    part: str
    name: str
    outcome: str
    said: str = ""

    def where_required(self) -> Check:
        """Returns it as failed if it could not be made but is required."""
        if self.outcome != SKIPPED:
            return self
        return replace(self, outcome=FAILED, said=f"not skipped, since a GPU is required: {self.said}")
