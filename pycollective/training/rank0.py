"""Work that one rank does for all ranks, or before them: single_process and main_first.

While a thread does such work, its calls on several ranks are refused
(bindings/calls/running_call.cc), because the other ranks do not make them. An error in the work is
also raised on the other ranks, which would otherwise wait.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar, cast, overload

from pycollective import _core
from pycollective._core import Group
from pycollective.base.advice import advised
from pycollective.errors import CollectiveError, InvalidArgument
from pycollective.objects import objects
from pycollective.objects.remote_error import ErrorRecord, record_of, reraised
from pycollective.runtime import lifetime

__all__ = ["alone", "main_first", "members_of", "single_process"]

P = ParamSpec("P")
T = TypeVar("T")
RECEIVED_S = 5.0  # how long a rank that sends an exception waits until the other ranks have received it
TAG = 0xFFFF_0B1F  # tag of the messages that main_first() sends


@overload
def single_process(function: Callable[P, T]) -> Callable[P, T]: ...
@overload
def single_process(
    *,
    rank: int = 0,
    share: bool = True,
    group: Group | None = None,
    timeout: float | None = None,
    allow_pickle: bool = False,
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...
@advised
def single_process(
    function: Callable[P, T] | None = None,
    *,
    rank: int = 0,
    share: bool = True,
    group: Group | None = None,
    timeout: float | None = None,
    allow_pickle: bool = False,
) -> Callable[P, T] | Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a function that one rank runs for all: other ranks wait and get its result.

    All ranks of the group must call it. An exception on that rank is raised on all ranks; on the
    other ranks its cause is a RemoteError that has the traceback. Without a world, this process
    runs the function.

    Parameters:
        rank: the rank that runs it, counted in the group.
        share: whether the other ranks get the result (sent as by broadcast_object) or None.
        group: the ranks that take part; default the world at the time of the call.
        timeout: seconds that the other ranks wait for it; default that of the group.
        allow_pickle: as for broadcast_object.

    Raises:
        InvalidArgument: the function makes a call on several ranks, which would wait forever. On
            the rank that runs it, also for a result that cannot be sent; the other ranks get
            Aborted then.
        PeerFailure: the rank that ran it has died.

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> @pc.single_process
        ... def vocabulary():
        ...     return {"a": 0, "b": 1}  # from a file that only one rank shall read
        >>> vocabulary()["b"]
        1
        >>> pc.shutdown()
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            members = members_of(group)
            if members is None or members.size == 1:
                return function(*args, **kwargs)
            if not 0 <= rank < members.size:
                raise InvalidArgument(f"single_process(rank={rank}): the group has {members.size} ranks")
            name = f"single_process {getattr(function, '__name__', function)!s}"
            if members.rank != rank:
                return cast("T", _outcome(members, rank, timeout, allow_pickle))
            try:
                with alone(name):
                    result = function(*args, **kwargs)
            except BaseException as error:
                _send_error(members, error, rank, timeout)
                raise
            # No contextlib context manager encloses this call: errors would report a line of
            # contextlib as the program's.
            outcome = (None, result if share else None)
            objects.broadcast_object(members, outcome, rank, allow_pickle=allow_pickle, timeout=timeout)
            return result

        return call

    return decorate if function is None else decorate(function)


def _send_error(group: Group, error: BaseException, rank: int, timeout: float | None) -> None:
    """Sends the exception, and waits for its receipt, because it may end this process."""
    with contextlib.suppress(CollectiveError):  # `error` is raised, and not a failure to send it
        objects.broadcast_object(group, (record_of(error), None), rank, timeout=timeout)
        group.barrier(timeout=RECEIVED_S)


def _outcome(group: Group, rank: int, timeout: float | None, allow_pickle: bool) -> object:
    record, result = objects.broadcast_object(group, None, rank, allow_pickle=allow_pickle, timeout=timeout)
    if record is None:
        return result
    with contextlib.suppress(CollectiveError):  # the received error is raised, and not that of the barrier
        group.barrier(timeout=RECEIVED_S)
    raise reraised(record, rank)


@contextlib.contextmanager
@advised
def main_first(
    *, local: bool = False, group: Group | None = None, timeout: float | None = None
) -> Iterator[None]:
    """Runs a block on rank 0 first, which may download and cache, and then on the other ranks.

    All ranks of the group must enter it. If the block fails on rank 0, the other ranks raise the
    same error and do not run it. Afterwards no rank waits for another. Without a world, this
    process runs the block.

    Parameters:
        local: the first rank of each host runs first, for files that hosts do not share.
        group: the ranks that take part; default the world.
        timeout: seconds that the other ranks wait; default that of the group.

    Raises:
        InvalidArgument: a call on several ranks inside the block: the ranks do not run it at the
            same time.
        PeerFailure: the rank that runs first has died.

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> with pc.main_first():
        ...     words = sorted({"to", "be", "or", "not"})  # load(download=True)
        >>> pc.shutdown()
    """
    members = members_of(group)
    if members is None or members.size == 1:
        yield
        return
    hosts = members._hosts if local else (0,) * members.size
    main = hosts.index(hosts[members.rank])
    if members.rank == main:
        others = [rank for rank, host in enumerate(hosts) if host == hosts[main] and rank != main]
        record: ErrorRecord | None = None
        try:
            with alone("main_first()"):
                yield
        except BaseException as error:
            record = record_of(error)
            raise
        finally:
            with contextlib.suppress(
                *() if record is None else (CollectiveError,)
            ):  # the error of the block is raised, and not a failure to send it
                for rank in others:
                    objects.send_object(members, record, rank, tag=TAG, timeout=timeout)
        return
    record = objects.recv_object(members, main, tag=TAG, timeout=timeout)
    if record is not None:
        raise reraised(record, main)
    with alone("main_first()"):
        yield


def members_of(group: Group | None) -> Group | None:
    """Returns `group` if it is given, else the current world, or None without a world."""
    if group is None and lifetime.is_initialized():
        return _core.world()
    return group


@contextlib.contextmanager
def alone(what: str) -> Iterator[None]:
    """Refuses calls on several ranks in a block that this rank runs while other ranks wait.

    `what` describes the block in errors.
    """
    _core._begin_alone(what)
    try:
        yield
    finally:
        _core._end_alone()
