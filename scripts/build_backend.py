"""The package's build backend: scikit-build-core, with compilation progress on a terminal.

Without -v, pip shows only a spinner. This backend writes ninja's "[12/44]" beside the spinner.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from typing import BinaryIO

from scikit_build_core import build
from scikit_build_core.build import *  # noqa: F403  (the hooks that only say what is needed)

Settings = dict[str, list[str] | str] | None
SAVE_CURSOR, RESTORE_CURSOR, ERASE_TO_END = b"\0337", b"\0338", b"\033[K"


def build_wheel(folder: str, settings: Settings = None, metadata: str | None = None) -> str:
    with steps_shown():
        return build.build_wheel(folder, settings, metadata)


def build_editable(folder: str, settings: Settings = None, metadata: str | None = None) -> str:
    with steps_shown():
        return build.build_editable(folder, settings, metadata)


@contextlib.contextmanager
def steps_shown() -> Iterator[None]:
    """Show steps on the terminal of pip, the parent process. Without a terminal, show nothing."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            terminal = stack.enter_context(open(f"/proc/{os.getppid()}/fd/1", "wb", buffering=0))
            if terminal.isatty() and not os.isatty(1):
                stack.enter_context(output_watched(terminal))
        yield


@contextlib.contextmanager
def output_watched(terminal: BinaryIO) -> Iterator[None]:
    """Pass the output of this process and its children to its destination through a pipe."""
    before = os.dup(1)
    reading, writing = os.pipe()
    os.dup2(writing, 1)
    os.close(writing)
    watching = threading.Thread(target=watch, args=(reading, before, terminal), daemon=True)
    watching.start()
    try:
        yield
    finally:
        os.dup2(before, 1)
        watching.join(timeout=1)


def watch(reading: int, before: int, terminal: BinaryIO) -> None:
    with open(reading, "rb") as lines:
        for line in lines:
            os.write(before, line)
            if step := re.match(rb"\[\d+/\d+\]", line):
                terminal.write(SAVE_CURSOR + b" " + step[0] + ERASE_TO_END + RESTORE_CURSOR)
    terminal.write(ERASE_TO_END)
