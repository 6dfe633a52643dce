"""Runs one command with a deadline of its own, so that a hang takes no time from the others."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GRACE_S = 2.0  # between SIGTERM and SIGKILL


@dataclass(frozen=True)
class Ended:
    """How a command ended. `code` is None if the deadline passed first."""

    code: int | None
    text: str  # of both outputs
    deadline_s: float = 0
    seconds: float = 0

    def why(self) -> str:
        if self.code is None:
            return f"its deadline of {self.deadline_s:.0f} s passed"
        if self.code < 0:
            return f"killed by signal {-self.code}"
        lines = [line for line in self.text.splitlines() if line.strip()]
        return f"ended with code {self.code}" + (f": {lines[-1].strip()}" if lines else "")


def run(command: Sequence[str], env: Mapping[str, str], deadline_s: float, log: Path) -> Ended:
    """Runs the command. `log` receives all its output, also if it is killed."""
    began = time.monotonic()
    with log.open("wb") as file:
        file.write(f"$ {shlex.join(command)}\n".encode())
        file.flush()
        begin = file.tell()
        code = _wait(command, env, deadline_s, file.fileno())
    seconds = time.monotonic() - began
    text = log.read_bytes()[begin:].decode(errors="replace")
    end = f"deadline of {deadline_s:.0f} s" if code is None else f"code {code}"
    with log.open("a") as file:
        file.write(f"\n$ {end} after {seconds:.1f} s\n")
    return Ended(code, text, deadline_s, seconds)


def _wait(command: Sequence[str], env: Mapping[str, str], deadline_s: float, output: int) -> int | None:
    try:
        process = subprocess.Popen(
            command,
            env=dict(env),
            cwd="/",  # not the sources, which have no compiled module there
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    except OSError as error:
        os.write(output, f"cannot start {command[0]}: {error.strerror}\n".encode())
        return 127
    try:
        return process.wait(deadline_s)
    except subprocess.TimeoutExpired:
        return None
    finally:  # and whatever it has started
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        with contextlib.suppress(subprocess.TimeoutExpired):  # a process that is stuck in a driver remains
            process.wait(GRACE_S)
