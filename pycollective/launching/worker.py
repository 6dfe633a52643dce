"""The child's side of pycollective.testing.run: calls the function between init and shutdown, leaves the outcome."""

from __future__ import annotations

import faulthandler
import functools
import importlib
import importlib.util
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from typing import IO, Any

MAIN = "__pycollective_main__"  # what a rank calls the main script of its parent


@dataclass(frozen=True)
class Job:
    module: str
    script: str | None  # the file of a function that was defined in the main script
    function: str  # its qualified name
    args: bytes  # pickled: they are unpickled when their module can be found
    timeout_s: float
    init: bool


@dataclass
class Outcome:
    """Holds the user's objects as pickles only: it can be read wherever this module is."""

    returned: bool = False
    result: bytes = b""  # pickled: the parent may not be able to read it
    error: str | None = None  # "ValueError: boom"
    traceback: str = ""
    exception: bytes | None = None  # pickled, if it survives that

    def failed(self, error: BaseException) -> None:
        self.error = traceback.format_exception_only(error)[-1].strip()
        self.traceback = "".join(traceback.format_exception(error))
        try:
            pickled = pickle.dumps(error)
            pickle.loads(pickled)
            self.exception = pickled
        except Exception:  # an exception's pickling may raise whatever it likes
            self.exception = None


def main() -> None:
    reply_fd = int(sys.argv[1])
    job: Job = pickle.load(sys.stdin.buffer)
    # A thread of its own prints all stacks at the deadline, whoever holds the interpreter; the parent then kills us.
    faulthandler.dump_traceback_later(job.timeout_s)
    outcome = Outcome()
    with os.fdopen(reply_fd, "wb") as reply:
        try:
            call(job, outcome, reply)
        except BaseException as error:  # SystemExit and KeyboardInterrupt are outcomes too
            outcome.failed(error)
            leave(outcome, reply)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if outcome.error else 0)  # threads that the function left behind must not hold up the test


def call(job: Job, outcome: Outcome, reply: IO[bytes]) -> None:
    import pycollective as pc

    function = find(job)
    args = pickle.loads(job.args)
    if job.init:
        pc.init()
    result = function(*args)
    try:
        outcome.result = pickle.dumps(result)
    except Exception as error:
        raise TypeError(f"the result cannot be pickled: {error}") from error
    outcome.returned = True
    leave(outcome, reply)  # before shutdown, which waits for the others: they may be late
    if job.init and pc.is_initialized():
        pc.shutdown()


def find(job: Job) -> Callable[..., Any]:
    if job.script is None:
        module = importlib.import_module(job.module)
    else:  # as multiprocessing does: the script's definitions, without its `if __name__ == "__main__"`
        spec = importlib.util.spec_from_file_location(MAIN, job.script)
        if spec is None:  # a script's name need not end in .py
            spec = importlib.util.spec_from_loader(MAIN, SourceFileLoader(MAIN, job.script))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["__main__"] = sys.modules[MAIN] = module
        spec.loader.exec_module(module)
    found: Any = resolve(module, job.function)
    return found  # type: ignore[no-any-return]


def resolve(module: object, qualified_name: str) -> object:
    return functools.reduce(getattr, qualified_name.split("."), module)


def leave(outcome: Outcome, reply: IO[bytes]) -> None:
    reply.seek(0)
    reply.truncate()
    reply.write(pickle.dumps(outcome))
    reply.flush()
