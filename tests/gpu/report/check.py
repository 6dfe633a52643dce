"""One check of the report, and how it came out."""

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
        """A check that could not be made, where it must be."""
        if self.outcome != SKIPPED:
            return self
        return replace(self, outcome=FAILED, said=f"not skipped, since a GPU is required: {self.said}")
