"""What one rank does for all, or before all: single_process and main_first.

While a thread is inside, its calls on several ranks are refused (bindings/calls/running_call.cc), because the others
do not make them. An error inside is raised on the other ranks too, which would otherwise wait.
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
RECEIVED_S = 5.0  # how long the rank that sends an exception waits until the others have it
TAG = 0xFFFF_0B1F  # of what the main rank sends the others


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
    """Decorate a function that one rank runs for all: the others wait for it and get its result.

    All ranks of the group must call it. An exception on that rank is raised on all, there with a RemoteError as its
    cause that has the traceback. Without a world the function just runs.

    Parameters:
        rank: who runs it, counted in the group.
        share: whether the others get the result (as broadcast_object sends it) or None.
        group: whose ranks take part; default the world as it is at the call.
        timeout: seconds that the others wait for it; default that of the group.
        allow_pickle: as for broadcast_object.

    Raises:
        InvalidArgument: a call on several ranks inside the function, where it would wait for ever; on the rank that
            runs it, also a result that cannot be sent, where the others get Aborted.
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
            # Not in a context manager of contextlib: its line would be taken for the program's.
            outcome = (None, result if share else None)
            objects.broadcast_object(members, outcome, rank, allow_pickle=allow_pickle, timeout=timeout)
            return result

        return call

    return decorate if function is None else decorate(function)


def _send_error(group: Group, error: BaseException, rank: int, timeout: float | None) -> None:
    """The others get the exception, and have it before this rank ends of it."""
    with contextlib.suppress(CollectiveError):  # of two errors this is the first
        objects.broadcast_object(group, (record_of(error), None), rank, timeout=timeout)
        group.barrier(timeout=RECEIVED_S)


def _outcome(group: Group, rank: int, timeout: float | None, allow_pickle: bool) -> object:
    record, result = objects.broadcast_object(group, None, rank, allow_pickle=allow_pickle, timeout=timeout)
    if record is None:
        return result
    with contextlib.suppress(CollectiveError):  # the error that was sent is the one that counts
        group.barrier(timeout=RECEIVED_S)
    raise reraised(record, rank)


@contextlib.contextmanager
@advised
def main_first(
    *, local: bool = False, group: Group | None = None, timeout: float | None = None
) -> Iterator[None]:
    """Let rank 0 run a block before the others: it downloads and caches, they find it done.

    All ranks of the group must come here. If the block fails on rank 0, the others raise that too, and do not run it.
    Afterwards nobody waits for anybody. Without a world the block just runs.

    Parameters:
        local: the first rank of each host goes first, for files that hosts do not share.
        group: whose ranks take part; default the world.
        timeout: seconds that the others wait; default that of the group.

    Raises:
        InvalidArgument: a call on several ranks inside the block: the ranks are not there together.
        PeerFailure: the rank that went first has died.

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
            ):  # of two errors the first counts
                for rank in others:
                    objects.send_object(members, record, rank, tag=TAG, timeout=timeout)
        return
    record = objects.recv_object(members, main, tag=TAG, timeout=timeout)
    if record is not None:
        raise reraised(record, main)
    with alone("main_first()"):
        yield


def members_of(group: Group | None) -> Group | None:
    """The group, else the world as it is now, else None."""
    if group is None and lifetime.is_initialized():
        return _core.world()
    return group


@contextlib.contextmanager
def alone(what: str) -> Iterator[None]:
    """Refuse calls on several ranks in the block, which this thread runs while the others wait. `what` tells where."""
    _core._begin_alone(what)
    try:
        yield
    finally:
        _core._end_alone()
