"""The seconds of one call, divided among the messages that it is made of."""

from __future__ import annotations

import time

__all__ = ["Clock"]


class Clock:
    """Runs from its making. Without a timeout every message has the group's default."""

    def __init__(self, timeout: float | None) -> None:
        self._began = time.monotonic()
        self._end = None if timeout is None else self._began + timeout

    def left_s(self) -> float | None:
        """What is left; None: the group's default."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def elapsed_s(self) -> float:
        """Since it was made."""
        return time.monotonic() - self._began
