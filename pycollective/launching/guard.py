"""If the launcher is killed, kills the processes that the ranks started.

In that case the kernel kills only the ranks themselves. This module runs as a process of its own,
`python guard.py`. It reads lines "+group" and "-group" on standard input. When the input ends,
because the launcher has ended in any manner, it kills the groups that are left. It imports nothing
of pycollective, to be small and quick.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the guard must briefly outlive the launcher
    groups: set[int] = set()
    for line in sys.stdin:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
