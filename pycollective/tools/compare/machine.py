"""Describes the measured machine in one line."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def describe() -> str:
    """Returns the processor, the number of usable cores, and the kernel."""
    return f"{_processor()}, {len(os.sched_getaffinity(0))} usable cores, Linux {platform.release()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
