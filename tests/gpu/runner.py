"""Starts programs as a user does, each with a deadline, and reports each outcome in one line."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from .table import TORCHRUN, Program

PASSED, FAILED, NOT_MADE = "passed", "failed", "not made"
CANNOT_RUN = 77
GRACE_S = 2.0  # between SIGTERM and SIGKILL
MARK = "PROGRAM_RUN"  # in the environment of everything that a program has started
ASK_S = 60.0  # for the query whether there is a GPU
MOST = 300  # characters of a line
# The last line of a traceback: an exception's name and its message.
RAISED = re.compile(r"((?:\w+\.)*[A-Z]\w+)(?:: (.*))?$")
# Exceptions that mean that another rank, or process, has failed.
OF_OTHERS = ("PeerFailure", "PeerExited", "ChildFailedError")
TORCHS_PREFIX = re.compile(r"\[rank\d+\]: ?")


@dataclass(frozen=True)
class Outcome:
    name: str
    how: str
    said: str
    seconds: float = 0.0

    def line(self) -> str:
        took = f" ({self.seconds:.1f} s)" if self.seconds else ""
        return f"{self.how:9} {self.name}: {self.said}{took}"


@dataclass
class Runner:
    """Runs programs. `until`: when all of them must have ended, by time.monotonic()."""

    device: str
    logs: Path
    until: float = float("inf")
    python: str = sys.executable
    _running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run_all(
        self, programs: Iterable[Program], at_once: int, done: Callable[[Outcome], None]
    ) -> list[Outcome]:
        """Runs `at_once` programs at a time; those that run alone follow one after the other."""
        everything = list(programs)
        outcomes = []
        with ThreadPoolExecutor(at_once) as pool:
            together = [pool.submit(self.run, each) for each in everything if not each.alone]
            for future in as_completed(together):
                outcomes.append(future.result())
                done(outcomes[-1])
        for program in everything:
            if program.alone:
                outcomes.append(self.run(program))
                done(outcomes[-1])
        return outcomes

    def run(self, program: Program) -> Outcome:
        if why := why_not(program, self.device, self.python):
            return Outcome(program.name, NOT_MADE, one_line(why))
        began = time.monotonic()
        deadline_s = min(program.deadline_s, self.until - began)
        if deadline_s <= 0:
            return Outcome(program.name, FAILED, "not begun: the time of all programs was over")
        log = self.logs / f"{program.name}.log"
        code = self._wait(program, deadline_s, log)
        text = log.read_text(errors="replace")
        how, said = judged(program, code, text, deadline_s)
        return Outcome(program.name, how, one_line(said), time.monotonic() - began)

    def _wait(self, program: Program, deadline_s: float, log: Path) -> int | None:
        """Returns the exit code, or None if the deadline passed first."""
        mark = uuid.uuid4().hex
        with log.open("wb") as file:
            process = subprocess.Popen(
                command(program, self.python),
                env=environment(program, self.device) | {MARK: mark},
                cwd="/",  # not the sources, which may have no compiled module
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
            with self._lock:
                self._running.add(process)
            try:
                return process.wait(deadline_s)
            except subprocess.TimeoutExpired:
                return None
            finally:
                with self._lock:
                    self._running.discard(process)
                end(process, mark)

    def stop(self) -> None:
        """Ends the running programs, in sessions of their own, from a handler of signals."""
        for process in list(self._running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)


def command(program: Program, python: str) -> list[str]:
    count, script = str(program.ranks), str(program.script)
    if program.launcher == TORCHRUN:
        return [python, "-m", "torch.distributed.run", "--nproc-per-node", count, script]
    # Gives the other ranks enough time to report what they have seen of a rank that dies.
    return [python, "-m", "pycollective", "run", "-n", count, "--no-prefix", "--grace", "10", script]


def environment(program: Program, device: str) -> dict[str, str]:
    env = {"OMP_NUM_THREADS": "1", **os.environ, "PROGRAM_DEVICE": device, **program.env}
    env |= {"PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
    env.pop("PROGRAM_WAY", None)
    if device == "cpu":
        env |= {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    elif program.by_nccl:
        env["PROGRAM_WAY"] = "nccl"
    return env


def why_not(program: Program, device: str, python: str) -> str:
    """Returns why it cannot be run here, as far as this is known without running it."""
    if program.needs_gpu and device != "cuda":
        return "it needs a GPU"
    missing = [name for name in program.needs if importlib.util.find_spec(name) is None]
    if missing:
        return f"{missing[0]} is not installed"
    return no_gpu(python, "torch" in program.needs) if device == "cuda" else ""


@functools.cache
def no_gpu(python: str, of_torch: bool) -> str:
    """Returns why there is no GPU, or "".

    A process that opens the driver cannot fork ranks that use it. So another process is asked,
    once.
    """
    ask = (
        "import torch; print('' if torch.cuda.is_available() else 'torch sees no GPU')"
        if of_torch
        else "import pycollective as pc; print('' if pc.available('cuda') else pc.available('cuda'))"
    )
    try:
        done = subprocess.run(
            [python, "-c", ask], capture_output=True, text=True, check=False, cwd="/", timeout=ASK_S
        )
    except subprocess.TimeoutExpired:
        return f"whether there is a GPU was not answered within {ASK_S:.0f} s"
    return done.stdout.strip() if done.returncode == 0 else one_line(done.stderr.strip().rpartition("\n")[2])


def judged(program: Program, code: int | None, text: str, deadline_s: float) -> tuple[str, str]:
    """Returns the outcome of a program with this exit code, or None, and this output."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    cause = first_cause(text)
    if code is None:
        last = cause or (f"the last that it said: {lines[-1]}" if lines else "it had said nothing")
        return FAILED, f"its deadline of {deadline_s:.0f} s passed: {last}"
    cannot = [line.partition(": ")[2] for line in lines if line.startswith("cannot be run here: ")]
    said_77 = code == CANNOT_RUN or (program.launcher == TORCHRUN and f"(exitcode: {CANNOT_RUN})" in text)
    if cannot and said_77 and not cause:
        return NOT_MADE, cannot[0]
    if code != program.ends:
        return FAILED, cause or why_it_ended(code, lines)
    proofs = [line.partition(": ")[2] for line in lines if line.startswith("proved: ")]
    if not proofs:
        return FAILED, f"{cause or f'it ended with code {code}'}, and has not said what it has proved"
    return PASSED, proofs[-1]


def why_it_ended(code: int, lines: Sequence[str]) -> str:
    reports = [line for line in lines if line.startswith("pycollective run: ")]
    last = reports[:1] or lines[-1:]
    how = f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return f"{how}: {last[0]}" if last else how


def first_cause(text: str) -> str:
    """Returns the end of the first traceback that is not about another rank's end.

    The line that raised it follows if the exception has no message.
    """
    causes: list[tuple[str, str]] = []  # the exception's name, and the line
    source, inside = "", False
    for line in (TORCHS_PREFIX.sub("", each, count=1) for each in text.splitlines()):
        if line.startswith("Traceback (most recent call last):"):
            inside, source = True, ""
        elif line.startswith("During handling of the above exception") and causes:
            causes.pop()  # the next exception is the one with which the program ended
        elif inside and line.startswith("    ") and set(line.strip()) - set("^~"):
            source = line.strip()
        elif inside and (found := RAISED.match(line)):  # other lines are of other ranks, or blank
            name, said = found.groups()
            causes.append((name, line if said else f"{name}: {source}"))
            inside = False
    own = [line for name, line in causes if not name.endswith(OF_OTHERS)]
    others = [line for name, line in causes if not name.endswith("ChildFailedError")]
    return (own or others or [""])[0]


def one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MOST else f"{line[: MOST - 3]}..."


def end(process: subprocess.Popen[bytes], mark: str) -> None:
    """Ends the launcher, if it runs, and all that the program has left, in any session."""
    if process.poll() is None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            # a process that is stuck in a driver remains
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
                break
    for pid in marked(mark):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def marked(mark: str) -> list[int]:
    wanted, found = f"{MARK}={mark}".encode(), []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process ended, or belongs to another user
            if wanted in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
    return found
