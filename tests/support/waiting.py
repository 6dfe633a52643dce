"""Waits, with a deadline, for what other threads do."""

from __future__ import annotations

import os
import time
from typing import Any

LATE_S = 60.0  # nothing here takes that long


def eventually(condition: Any) -> bool:
    """Lets other threads run until the condition holds."""
    deadline = time.monotonic() + LATE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        os.sched_yield()
    return True
