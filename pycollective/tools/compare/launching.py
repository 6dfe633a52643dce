"""Runs all cells once with the ranks of one library, and collects the ranks' results."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pycollective.tools.compare.compared_libraries import ComparedLibrary
from pycollective.tools.compare.figures import Figures, merge

GRACE_S = 10.0
LAST_WORDS = 3  # lines of the log that an error shows
FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_", "PYCOLLECTIVE_", "OMPI_", "PMI", "I_MPI", "MPIR_")


@dataclass(frozen=True)
class Task:
    """The request for one cell: the collective, the size, and the number of calls."""

    collective: str
    nbytes: int
    iterations: int


@dataclass(frozen=True)
class Launch:
    """The result of one launch: figures in the order of the tasks, None if not supported."""

    version: str = ""
    figures: list[Figures | None] = field(default_factory=list)
    failure: str = ""


def launch(library: ComparedLibrary, ranks: int, tasks: Sequence[Task], limit_s: float) -> Launch:
    """Starts the ranks, waits up to `limit_s`, and then ends the remaining ones."""
    with tempfile.TemporaryDirectory(prefix="pycollective-compare-") as folder:
        spec = Path(folder, "spec.json")
        cells = [(task.collective, task.nbytes, task.iterations) for task in tasks]
        spec.write_text(json.dumps({"adapter": library.adapter, "folder": folder, "cells": cells}))
        log = Path(folder, "log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                command(library, ranks, spec),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment(library),
                start_new_session=True,
            )
            why = wait(process, limit_s)
        files = [Path(folder, f"rank{rank}.json") for rank in range(ranks)]
        if why or not all(each.exists() for each in files):
            return Launch(failure=f"{why or 'a rank has left no result'}: {last_words(log)}")
        results = [json.loads(each.read_text()) for each in files]
        return Launch(results[0]["version"], merge([each["cells"] for each in results]))


def command(library: ComparedLibrary, ranks: int, spec: Path) -> list[str]:
    """Returns the command line that starts all ranks of a library."""
    here = Path(__file__).resolve().parent
    rank = [library.python, str(here / "start.py"), str(spec)]
    if library.launcher:
        return [*library.launcher, "-n", str(ranks), *rank]
    if library.adapter == "ours":
        rank = [library.python, "-m", "pycollective.tools.compare.rank", str(spec)]
    if library.environment:  # these variables are for the library's ranks, not for pycollective's launcher
        rank = ["env", *(f"{name}={value}" for name, value in library.environment.items()), *rank]
    return [sys.executable, "-m", "pycollective", "run", "--no-prefix", "-n", str(ranks), "--", *rank]


def environment(library: ComparedLibrary) -> dict[str, str]:
    """Returns the launcher's environment, without variables that describe this process as a rank.

    A library's own launcher, that of an MPI, also gets the variables for the library's ranks.
    """
    kept = dict(os.environ)
    if library.adapter != "ours":
        kept = {name: value for name, value in kept.items() if not name.startswith(FOREIGN)}
    return {**kept, "OMP_NUM_THREADS": "1", **(library.environment if library.launcher else {})}


def last_words(log: Path) -> str:
    """Returns the last lines of the log as one line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-LAST_WORDS:])


def wait(process: subprocess.Popen[bytes], limit_s: float) -> str:
    """Waits for the process. Returns why it did not end normally, or ""."""
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return f"not done after {limit_s:.0f} s"
    finally:
        end(process)
    return f"exit code {code}" if code != 0 else ""


def end(process: subprocess.Popen[bytes]) -> None:
    """Terminates the process group: by SIGTERM, then by SIGKILL if it still runs."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
