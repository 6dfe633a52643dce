"""Ranks started from Python: `pc.run(function, n=4)` and `@pc.launch(n=4)`. See docs/run.md."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import pickle
import signal
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar, overload

from pycollective._core import StoreServer
from pycollective.base.advice import advised
from pycollective.base.whole_numbers import whole_number
from pycollective.bootstrap.addresses import split
from pycollective.bootstrap.key import new_key
from pycollective.bootstrap.local_store import open_store_of_run
from pycollective.errors import CollectiveTimeout, InvalidArgument, PeerFailure, RemoteError
from pycollective.launching import worker
from pycollective.launching.environment import World, free_port, with_terminal
from pycollective.launching.failures import memory_cgroup
from pycollective.launching.failures.memory_cgroup import Counts
from pycollective.launching.failures.root_cause import (
    SETTLE_S,
    Failure,
    ended_by_itself,
    judged,
    root_cause,
    signal_name,
)
from pycollective.launching.gpus import ranks_by_default
from pycollective.launching.job import describe
from pycollective.launching.job_ranks import DUMP_S, JobRank, JobRanks, started
from pycollective.launching.options import DEFAULT_PORT, LAST_PORT
from pycollective.launching.screen.own_streams import OwnStreams
from pycollective.launching.streams.terminal import settings_kept
from pycollective.runtime import lifetime

__all__ = ["launch", "run"]

P = ParamSpec("P")
T = TypeVar("T")
GRACE_S = 5.0  # time between the signal to end and SIGKILL
SHOWN_LINES = 20


@advised
def run(
    function: Callable[..., T],
    *args: object,
    kwargs: Mapping[str, object] | None = None,
    n: int | None = None,
    init: bool = True,
    timeout: float | None = None,
    world_size: int | None = None,
    rank_start: int = 0,
    master: str | None = None,
) -> list[T]:
    """Call a function on n ranks, each a fresh process on this host, and return all results.

    In a script, put the call under `if __name__ == "__main__":`, because the ranks import the
    script to find the function. Ranks are never forked, so threads and a GPU in use in this process
    do no harm. Their output is printed here, line by line, prefixed with the rank. If a rank fails,
    or on Ctrl-C, all ranks are ended; no process is left behind.

    Parameters:
        function: a function of a module or of the main script, decorated or not. If cloudpickle
            is installed, it may also be a local function, a lambda, or one that was defined
            interactively: these are copied.
        args: its arguments. Arguments and results are pickled.
        kwargs: its keyword arguments.
        n: the number of ranks; default the number of GPUs that this process may use, or of its
            cores if there is no GPU.
        init: whether each rank calls pycollective.init() before the function and shutdown()
            after it.
        timeout: seconds for the whole call; when they have passed, ranks print the stacks of all
            their threads and are ended; default no limit.
        world_size: the number of ranks on all hosts; default n. Each host makes this call for its
            own ranks.
        rank_start: the first rank on this host.
        master: "host" or "host:port" of rank 0, for several hosts; default port 29400.

    Raises:
        The exception of the function on the rank that failed first, caused by a RemoteError
        with its traceback.
        RemoteError: the exception cannot be unpickled here, or is not an Exception (sys.exit).
        PeerFailure: a rank was killed, or ended without a result.
        CollectiveTimeout: ranks were still running after `timeout` seconds.
        InvalidArgument: another process cannot find the function, an argument cannot be
            pickled, world_size, rank_start or master is invalid, or a rank tried to start ranks
            while it was importing the script.
        CollectiveError: the operating system refuses to start that many processes.

    Example:
        >>> import pycollective as pc
        >>> pc.run(pow, 2, 3, n=2)
        [8, 8]
        >>> pc.run(pc.rank, n=2)
        [0, 1]
    """
    n = ranks_by_default() if n is None else whole_number("run", "n", n)
    over_hosts = _world_over_hosts(n, world_size, rank_start, master)
    lifetime.check_timeout(timeout)
    job = describe(function, args, kwargs or {}, timeout_s=timeout, init=init, by_value=True)
    begin = time.monotonic()
    watch = _Watch(math.inf if timeout is None else begin + timeout + DUMP_S)
    with (
        settings_kept(0),
        _world_here(n) if over_hosts is None else contextlib.nullcontext((over_hosts, None, None)) as (
            world,
            key,
            store,
        ),
        started(
            job,
            world,
            key,
            env=with_terminal(os.environ),
            show=watch.show,
            store=store,
            terminal=watch.streams,
        ) as ranks,
    ):
        try:
            watch.follow(ranks)
        except KeyboardInterrupt:
            ranks.stop(signal.SIGINT, GRACE_S)
            raise
    # Results are unpickled only after all processes have ended, because unpickling runs foreign
    # code.
    by_rank = {each.rank: each for each in ranks.ranks}
    if (failure := root_cause(watch.failures)) is not None:
        raise _error(by_rank[failure.rank], list(watch.tails[failure.rank]), watch.memory)
    if late := [each.rank for each in ranks.ranks if each.status is None]:
        raise CollectiveTimeout(
            f"run(timeout={timeout:g}): still running: {', '.join(f'rank {rank}' for rank in late)} of "
            f"{len(by_rank)} ranks here. What they have printed last shows where",
            peer=late[0],
            operation="run",
            elapsed_s=time.monotonic() - begin,
        )
    return [_result(each) for each in ranks.ranks]


@overload
def launch(function: Callable[P, T]) -> Callable[P, list[T]]: ...
@overload
def launch(
    *,
    n: int | None = None,
    init: bool = True,
    timeout: float | None = None,
    world_size: int | None = None,
    rank_start: int = 0,
    master: str | None = None,
) -> Callable[[Callable[P, T]], Callable[P, list[T]]]: ...
@advised
def launch(
    function: Callable[P, T] | None = None,
    *,
    n: int | None = None,
    init: bool = True,
    timeout: float | None = None,
    world_size: int | None = None,
    rank_start: int = 0,
    master: str | None = None,
) -> Callable[P, list[T]] | Callable[[Callable[P, T]], Callable[P, list[T]]]:
    """Decorate a function, so that a call runs it on n ranks and returns all results; see run().

    On a rank, or in any process that is in a world, the call just runs the function and returns
    its result, so that no ranks are started twice. `function.__wrapped__` is the function itself.

    Parameters:
        n, init, timeout, world_size, rank_start, master: as for run().

    Raises:
        InvalidArgument: this process is a rank of `pycollective run` that has not called init()
            yet.
        What run() raises.

    Example:
        >>> import pycollective as pc
        >>> pc.launch(n=2)(pc.rank)()  # or @pc.launch(n=2) before the definition of a function
        [0, 1]
    """

    def decorate(function: Callable[P, T]) -> Callable[P, list[T]]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> list[T]:
            if worker.is_rank or lifetime.is_initialized():
                return function(*args, **kwargs)  # type: ignore[return-value]  # as documented, its own result
            if os.environ.get("PYCOLLECTIVE_RANK"):
                raise InvalidArgument(
                    f"launch: this process is rank {os.environ['PYCOLLECTIVE_RANK']} of `pycollective run`: with "
                    f"ranks of its own for each there would be many worlds. Call pycollective.init() before, and the "
                    f"function runs in the world that there is; or start the program by `python` alone"
                )
            return run(
                function,
                *args,
                kwargs=kwargs,
                n=n,
                init=init,
                timeout=timeout,
                world_size=world_size,
                rank_start=rank_start,
                master=master,
            )

        return call

    return decorate if function is None else decorate(function)


def _world_over_hosts(n: int, world_size: int | None, rank_start: int, master: str | None) -> World | None:
    """Return the world of several hosts, or None if all ranks are on this host."""
    if n < 1:
        raise InvalidArgument(f"run(n={n}): at least one rank must be started")
    size = n if world_size is None else whole_number("run", "world_size", world_size)
    rank_start = whole_number("run", "rank_start", rank_start)
    if rank_start < 0 or rank_start + n > size:
        raise InvalidArgument(
            f"run(n={n}, world_size={world_size}, rank_start={rank_start}): ranks {rank_start} to "
            f"{rank_start + n - 1} are to start here, but the world has ranks 0 to {size - 1}"
        )
    if master is None:
        if size > n:
            raise InvalidArgument(
                f'run(n={n}, world_size={size}): the other ranks are elsewhere, so master="host:port" is needed: the '
                f"host that starts rank 0 and a free port there, the same in all calls"
            )
        return None
    if world_size is None:
        raise InvalidArgument(
            f"run(n={n}, master={master!r}): master= is for ranks on several hosts: give world_size= as well, the "
            f"number of ranks on all of them"
        )
    host, port = _host_and_port(master)
    return World(
        size=size,
        store=None,
        master=host,
        store_port=port,
        master_port=port + 1,
        first=rank_start,
        local_size=n,
    )


def _host_and_port(master: str) -> tuple[str, int]:
    host, port = master, DEFAULT_PORT
    if ":" in master:
        try:
            host, port = split(master)
        except ValueError:
            port = 0
    if not host or not 0 < port <= LAST_PORT:
        raise InvalidArgument(
            f"run(master={master!r}) is not host or host:port, with a port from 1 to {LAST_PORT}"
        )
    return host, port


@contextlib.contextmanager
def _world_here(n: int) -> Iterator[tuple[World, bytes | None, StoreServer | None]]:
    key = new_key()
    with open_store_of_run(key) as store:
        yield World(size=n, store=store.addresses[0], master_port=free_port()), key, store


class _Watch:
    """Follows the ranks until all have ended, or the root cause has failed."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.failures: list[Failure] = []
        self.memory = memory_cgroup.read()  # counts before the first rank starts
        self.streams = OwnStreams(deadline)
        self.tails: dict[int, deque[str]] = defaultdict(lambda: deque(maxlen=SHOWN_LINES))

    def show(self, rank: int, name: str, lines: list[str]) -> None:
        if name == "err":
            self.tails[rank].extend(lines)
        self.streams.show(rank, name, lines)

    def follow(self, ranks: JobRanks) -> None:
        deadline = self.deadline
        while (ended := ranks.next_end(deadline)) is not None:
            if ended.failed:
                self.failures.append(self.failure(ended))
                if not self.failures[-1].consequence:
                    break
                deadline = min(deadline, time.monotonic() + SETTLE_S)
        if self.failures:
            known = not all(each.consequence for each in self.failures)
            for ended in ranks.stop(signal.SIGTERM, GRACE_S):
                if not known and ended.failed and ended_by_itself(ended.status or 0, self.last_words(ended)):
                    self.failures.append(self.failure(ended))

    def failure(self, ended: JobRank) -> Failure:
        return judged(ended.rank, ended.status or 0, self.last_words(ended))

    def last_words(self, ended: JobRank) -> list[bytes]:
        lines = ended.outcome.traceback.splitlines() if ended.outcome else self.tails[ended.rank]
        return [line.encode() for line in lines]


def _error(failed: JobRank, last_lines: list[str], memory: Counts | None) -> Exception:
    outcome, rank = failed.outcome, failed.rank
    if outcome is None or outcome.error is None:
        return _death(failed, last_lines, memory)
    there = f"on rank {rank}: {outcome.traceback.rstrip()}"
    error: object = None
    with contextlib.suppress(Exception):  # the type of the exception may be unknown here
        error = pickle.loads(outcome.exception) if outcome.exception else None
    if isinstance(error, Exception):
        error.__cause__ = RemoteError(there, peer=rank)
        return error
    if isinstance(error, SystemExit):
        return RemoteError(
            f"rank {rank} called sys.exit({error.code!r}), without a result; {there}", peer=rank
        )
    if isinstance(error, BaseException):
        return RemoteError(f"rank {rank} ended by {outcome.error}, without a result; {there}", peer=rank)
    return RemoteError(there, peer=rank)


def _death(failed: JobRank, last_lines: list[str], memory: Counts | None) -> PeerFailure:
    status = failed.status or 0
    cause = f"was killed by {signal_name(-status)}" if status < 0 else f"ended with exit code {status}"
    killed = status == -signal.SIGKILL
    hint = f" ({memory_cgroup.hint(memory, memory_cgroup.read())})" if killed else ""
    last = "\n".join(["; its last lines:", *last_lines]) if last_lines else ""
    pid = failed.child.process.pid
    return PeerFailure(
        f"rank {failed.rank} (pid {pid}) {cause}{hint}, without a result{last}",
        peer=failed.rank,
        operation="run",
        pid=pid,
        cause=cause,
    )


def _result(each: JobRank) -> Any:  # noqa: ANN401  # whatever the function returns
    assert each.outcome is not None
    try:
        return pickle.loads(each.outcome.result)
    except Exception as error:
        raise RemoteError(
            f"run: the result of rank {each.rank} cannot be unpickled here: {error!r}", peer=each.rank
        ) from error
