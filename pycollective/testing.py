"""Worlds of processes inside a test: `results = pycollective.testing.run(function, 4)`.

    def total() -> float:
        x = np.full(3, pc.rank() + 1.0)
        return float(pc.allreduce(x)[0])

    def test_total():
        assert pycollective.testing.run(total, 4) == [10.0] * 4

The function, its arguments and its results are pickled between a process and its own children.
Therefore the function must be importable: it must be defined at the top level of a module (a test
module or a script), and must not be a lambda or a local function.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pycollective.base.advice import advised
from pycollective.base.whole_numbers import whole_number
from pycollective.bootstrap.key import new_key
from pycollective.bootstrap.local_store import open_store_of_run
from pycollective.errors import InvalidArgument
from pycollective.launching.environment import World, free_port
from pycollective.launching.failures.root_cause import signal_name
from pycollective.launching.job import describe
from pycollective.launching.job_ranks import DUMP_S, JobRank, started
from pycollective.launching.screen.tracebacks import identity, named

__all__ = ["RankError", "WorldFailed", "run"]

T = TypeVar("T")
SHOWN_LINES = 60


@dataclass(frozen=True)
class RankError:
    """How one rank failed."""

    rank: int
    summary: str  # "ValueError: boom", "killed by SIGKILL", "still running after 60 s"
    details: str  # the rank's traceback, or what it wrote to standard error
    exception: BaseException | None  # the exception itself, if it could be pickled and unpickled


class WorldFailed(Exception):
    """At least one rank raised, died or timed out. `errors` and `results` are keyed by rank."""

    def __init__(self, errors: dict[int, RankError], results: dict[int, Any], size: int) -> None:
        self.errors = errors
        self.results = results
        lines = [f"{len(errors)} of {size} ranks failed"]
        alike: dict[bytes, list[int]] = {}
        for rank, error in sorted(errors.items()):
            key = identity(rank, (error.details or error.summary).encode().splitlines())
            alike.setdefault(key, []).append(rank)
        for ranks in alike.values():
            error = errors[ranks[0]]
            lines += [f"-- {named(ranks)}: {error.summary}", error.details.rstrip()]
        super().__init__("\n".join(lines))


@advised
def run(
    function: Callable[..., T],
    n: int,
    *args: object,
    timeout_s: float = 60,
    init: bool = True,
    env: Mapping[str, str] | None = None,
) -> list[T]:
    """Call `function(*args)` on n ranks, each a fresh process, and return the results by rank.

    Each rank calls `pycollective.init()` before the function and `shutdown()` after it, unless
    `init` is False. The output of the ranks is printed here, prefixed with the rank. When
    `timeout_s` has passed, the ranks that still run print the stacks of all their threads before
    they are killed. No process is left behind.

    Raises:
        InvalidArgument: n is less than 1.
        WorldFailed: at least one rank failed. It has the exception and traceback of every
            failed rank.
    """
    n = whole_number("testing.run", "n", n)
    if n < 1:
        raise InvalidArgument(f"testing.run(n={n}): a world has at least one rank")
    job = describe(function, args, {}, timeout_s=timeout_s, init=init, by_value=False)
    deadline = time.monotonic() + timeout_s + DUMP_S
    printed: dict[int, list[str]] = {rank: [] for rank in range(n)}

    def show(rank: int, _: str, lines: list[str]) -> None:
        printed[rank] += lines
        for line in lines:
            print(f"[{rank}] {line}")

    key = new_key()
    with open_store_of_run(key) as store:
        world = World(size=n, store=store.addresses[0], master_port=free_port())
        ranks_env = {**os.environ, **(env or {})}
        with started(job, world, key, env=ranks_env, show=show, merged=True, store=store) as ranks:
            while ranks.next_end(deadline):
                pass
    # Results are unpickled only after all processes have ended, because unpickling runs foreign
    # code.
    errors: dict[int, RankError] = {}
    results: dict[int, Any] = {}
    for each in ranks.ranks:
        try:
            if each.outcome and each.outcome.returned:
                results[each.rank] = pickle.loads(each.outcome.result)
        except Exception as error:
            summary = f"its result cannot be unpickled here: {error!r}"
            errors[each.rank] = RankError(
                each.rank, summary, "".join(traceback.format_exception(error)), None
            )
        if (failed := _error(each, printed[each.rank], timeout_s)) is not None:
            errors[each.rank] = failed
    if errors:
        raise WorldFailed(errors, results, n)
    return [results[rank] for rank in range(n)]


def _error(each: JobRank, printed: list[str], timeout_s: float) -> RankError | None:
    outcome, last_words = each.outcome, "\n".join(printed[-SHOWN_LINES:])
    if each.status is None:
        return RankError(each.rank, f"still running after {timeout_s:g} s", last_words, None)
    if outcome is not None and outcome.error is not None:
        exception: BaseException | None = None
        # if it cannot be unpickled, the summary and the traceback suffice
        with contextlib.suppress(Exception):
            exception = pickle.loads(outcome.exception) if outcome.exception else None
        return RankError(each.rank, outcome.error, outcome.traceback, exception)
    if each.status < 0:
        return RankError(each.rank, f"killed by {signal_name(-each.status)}", last_words, None)
    if each.status > 0 or outcome is None:
        return RankError(each.rank, f"ended with exit code {each.status}", last_words, None)
    return None
