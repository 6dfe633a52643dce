"""Commands end quietly when the reader of their output has ended: `pycollective env | head -3`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def test_a_command_ends_without_a_traceback_when_its_reader_has_gone() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pycollective", "env"],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    finally:
        os.close(writer)
    assert done.stderr == ""
    assert done.returncode == 128 + signal.SIGPIPE
