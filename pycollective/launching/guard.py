"""Kills what the ranks started if the launcher is killed: the kernel ends only the ranks.

Runs as its own process: `python guard.py`. Reads lines "+group" and "-group" on standard input.
When the input ends (the launcher has ended in any manner), it kills the groups that are left.
Imports nothing of pycollective, to be small and quick.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it must briefly outlive the launcher
    groups: set[int] = set()
    for line in sys.stdin:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
