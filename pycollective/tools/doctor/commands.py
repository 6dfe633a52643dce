"""The launchers and tools on PATH, and the versions that they print."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time

ANSWER_S = 1.0
# Arguments that print the version. Empty for Python scripts, which take seconds to print it: it is
# read from the package's metadata instead.
COMMANDS = {
    "mpirun": ("--version",),
    "mpiexec": ("--version",),
    "srun": ("--version",),
    "torchrun": (),
    "ray": (),
    "nvidia-smi": ("--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"),
}


def answers(path: str) -> dict[str, str]:
    """Returns the output of each command that exists. All of them run at the same time."""
    found: dict[str, str] = {}
    asked: dict[str, subprocess.Popen[str]] = {}
    for name, words in COMMANDS.items():
        where = shutil.which(name, path=path)
        if where is None:
            continue
        found[name] = where
        if words:
            try:
                asked[name] = _ask([where, *words])
            except OSError as error:
                found[name] = f"fails: cannot be run: {error.strerror}"
    deadline = time.monotonic() + ANSWER_S
    for name, process in asked.items():
        found[name] = _answer(process, deadline)
    return found


def _ask(words: list[str]) -> subprocess.Popen[str]:
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    return subprocess.Popen(
        words, stdin=null, stdout=pipe, stderr=subprocess.STDOUT, text=True, errors="replace"
    )


def _answer(process: subprocess.Popen[str], deadline: float) -> str:
    try:
        text, _ = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        # the command hangs in a driver and cannot be killed
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=0.2)
        return f"fails: no answer within {ANSWER_S:g} s"
    words = "; ".join(line.strip() for line in text.splitlines() if line.strip())
    return f"fails: {words or process.returncode}" if process.returncode else words
