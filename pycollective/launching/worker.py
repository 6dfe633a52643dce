"""A rank of a pc.run() job.

It calls the function between init() and shutdown(), and writes the outcome to the reply file.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import re
import sys
import time
import traceback
from dataclasses import dataclass
from typing import IO

from pycollective.base.advice import is_of_the_call
from pycollective.launching.job import Job

LACKS = re.compile(r"\S+\(\) missing \d+ required positional arguments?: ")
is_rank = False  # whether this process was started to run a job


@dataclass
class Outcome:
    """How the call ended.

    The user's objects are contained only as pickles, so that any process with this module can load
    it.
    """

    returned: bool = False
    result: bytes = b""  # a pickle, because the parent may be unable to unpickle the result
    error: str | None = None  # "ValueError: boom"
    traceback: str = ""
    exception: bytes | None = None  # a pickle, if the exception survives pickling and unpickling

    def failed(self, error: BaseException, job: Job) -> None:
        self.error = traceback.format_exception_only(error)[-1].strip()
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
            frames = frames.tb_next  # skip this module's frames; the user's frames are below them
        self.traceback = "".join(traceback.format_exception(type(error), error, frames))
        try:
            pickled = job.pickle_result(error)
            pickle.loads(pickled)
            self.exception = pickled
        except Exception:  # pickling an exception may raise any exception
            self.exception = None


def main() -> None:
    global is_rank
    is_rank = True
    reply_fd = int(sys.argv[1])
    job: Job = pickle.load(sys.stdin.buffer)
    sys.argv = job.argv
    if job.deadline is not None:
        # At the deadline a thread of faulthandler prints all stacks, even if another thread holds
        # the GIL. Then the parent kills this process.
        faulthandler.dump_traceback_later(max(job.deadline - time.monotonic(), 1e-3))
    outcome = Outcome()
    with os.fdopen(reply_fd, "wb") as reply:
        try:
            call(job, outcome, reply)
        except BaseException as error:  # SystemExit and KeyboardInterrupt are outcomes too
            outcome.failed(error, job)
            leave(outcome, reply)
    sys.stdout.flush()
    sys.stderr.flush()
    # End without waiting for threads that the function left behind, which would delay other ranks.
    os._exit(1 if outcome.error else 0)


def call(job: Job, outcome: Outcome, reply: IO[bytes]) -> None:
    import pycollective as pc

    function = job.find()
    if job.init:
        pc.init()
    try:
        result = function()
    except TypeError as error:
        if LACKS.match(str(error)) and is_of_the_call(error.__traceback__):
            error.args = (
                f"{error}: run() hands over what follows the function, as in run(main, 1, 2, n=4), and no rank: write "
                "pc.rank() in it",
            )
        raise
    try:
        outcome.result = job.pickle_result(result)
    except Exception as error:
        kind = type(result).__name__
        raise TypeError(
            f"rank {os.environ['RANK']}: the result cannot be pickled ({kind}): {error}. Return arrays, numbers, or "
            f"what can be made of them"
        ) from error
    outcome.returned = True
    leave(outcome, reply)  # before shutdown(), which may wait for other ranks
    if job.init and pc.is_initialized():
        pc.shutdown()


def leave(outcome: Outcome, reply: IO[bytes]) -> None:
    reply.seek(0)
    reply.truncate()
    reply.write(pickle.dumps(outcome))
    reply.flush()
