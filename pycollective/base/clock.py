"""The timeout of one call, shared by all its messages."""

from __future__ import annotations

import time

__all__ = ["Clock"]


class Clock:
    """Measures from its creation. Without a timeout, each message has the group's default."""

    def __init__(self, timeout: float | None) -> None:
        self._began = time.monotonic()
        self._end = None if timeout is None else self._began + timeout

    def left_s(self) -> float | None:
        """Return the remaining seconds, or None for the group's default."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def elapsed_s(self) -> float:
        """Return the seconds since its creation."""
        return time.monotonic() - self._began
