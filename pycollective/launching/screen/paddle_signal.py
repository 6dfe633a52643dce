"""Removes the block that Paddle prints when the launcher's SIGTERM ends a rank.

The block appears on standard output and looks like a crash. It names the process that sent the
signal, and is removed only if this process sent it.
"""

from __future__ import annotations

import os
import re

__all__ = ["without_block"]

RULE = re.compile(rb"-{10,}")
HEADER = b"C++ Traceback (most recent call last):"
STOPPED = b"FatalError: `Termination signal` is detected by the operating system."
SENT = re.compile(
    rb"\s*\[SignalInfo: \*\*\* SIGTERM \(.*\) received by PID \d+ \(.*\) from PID (\d+) \*\*\*\]"
)


def without_block(lines: list[bytes]) -> list[bytes]:
    """Return the lines without the block, if this process sent the signal."""
    if HEADER not in lines:
        return lines
    header = lines.index(HEADER)
    last = next((number for number in range(header, len(lines)) if SENT.fullmatch(lines[number])), None)
    sent = None if last is None else SENT.fullmatch(lines[last])
    if last is None or sent is None or int(sent[1]) != os.getpid() or STOPPED not in lines[header:last]:
        return lines
    first = header - 1 if header and RULE.fullmatch(lines[header - 1]) else header
    while first and not lines[first - 1].strip():
        first -= 1
    after = next((number for number in range(last + 1, len(lines)) if lines[number].strip()), len(lines))
    return lines[:first] + lines[after:]
