"""Calls of functions on other ranks: `with pc.serving(pull, push):` and `pc.call(pull, rank=0)`.

They are for parameter servers, shared queues and counters. Only the functions of a block can be
called, by name. Messages contain only values, encoded as by broadcast_object: no code is received
from the network.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar, overload

from pycollective import _core
from pycollective._core import Group
from pycollective.base.advice import advised
from pycollective.errors import CollectiveMismatch, InvalidArgument
from pycollective.objects import objects
from pycollective.objects.remote_error import record_of, reraised
from pycollective.runtime import lifetime
from pycollective.training.remote_calls.service import Service

__all__ = ["call", "call_async", "serving"]

T = TypeVar("T")
FIRST_TAG = 0xFE00_0000  # first tag for blocks: each block has its own tag
TAGS = 1 << 24

# number of the last block, as far as this rank knows; the ranks of a new block agree on the next
# number
_blocks = 0
_service: Service | None = None  # the service of this process's current block


@contextlib.contextmanager
@advised
def serving(
    *functions: Callable[..., Any], group: Group | None = None, timeout: float | None = None
) -> Iterator[None]:
    """Serves calls of these functions from other ranks, in a thread, until the block ends.

    All ranks of the group must enter the block, with functions of the same names; inside, call()
    runs them on any rank. The end of the block waits until all ranks have reached it, so on a rank
    that only serves the body is `pass`. This wait has no deadline, because the work may take hours.
    After the block no call is pending.

    On each rank the functions run one at a time, so they need no lock among each other. They cannot
    make calls on several ranks themselves, nor call() other ranks, which may be waiting for them.

    An exception that leaves the block on one rank ends it on all ranks: they raise it at the next
    call(), or at the end of the block. The death of a rank also ends it, with PeerFailure, as it
    ends the group. After that no function starts, including those queued by call_async(). A
    function that is running continues in its thread, and the block does not wait for it.

    Parameters:
        functions: each is known by its `__name__`. Arguments and results are what
            broadcast_object() takes, up to 1 GiB, and arrive as copies.
        group: the ranks that take part; default the world.
        timeout: seconds to wait for the other ranks at the beginning, and for the result of a
            call() without a timeout; default PYCOLLECTIVE_TIMEOUT_S, else 600.

    Raises:
        InvalidArgument: on all ranks: a function has no name, or two have the same name; or this
            rank is in such a block already.
        CollectiveMismatch: on all ranks: the ranks pass functions of different names.
        CollectiveTimeout: not all ranks entered the block in time.
        PeerFailure: a rank has died; raised at the end of the block, if no call() has raised it.

    Example:
        >>> import numpy as np, pycollective as pc
        >>> _ = pc.init()
        >>> weights = np.zeros(2)  # those of rank 0 count
        >>> def pull():
        ...     return weights
        >>> def push(gradient):
        ...     weights[:] -= 0.5 * gradient
        >>> with pc.serving(pull, push):
        ...     if pc.rank() != 0 or pc.size() == 1:
        ...         for _ in range(20):
        ...             pc.call(push, pc.call(pull, rank=0) - [1, 2], rank=0)
        >>> weights.round(3)
        array([1., 2.])
        >>> pc.shutdown()
    """
    global _service
    service = _service = _entered(_core.world() if group is None else group, functions, timeout)
    try:
        service.start()  # after _service is set, because the functions may use it
        yield
        service.leave()
    except BaseException as error:
        service.fail(error)
        raise
    finally:
        _service = None
        service.close()


def _entered(group: Group, functions: tuple[Callable[..., Any], ...], timeout: float | None) -> Service:
    """Begins the block on all ranks, or raises on all of them."""
    global _blocks
    named: dict[str, Callable[..., Any]] = {}
    error: Exception | None = None
    try:
        if _service is not None:
            raise InvalidArgument("serving: this process is in a block of `with pc.serving(...)` already")
        lifetime.check_timeout(timeout)
        named = _named(functions)
    except (InvalidArgument, TypeError) as caught:
        error = caught
    mine = (None if error is None else record_of(error), sorted(named), _blocks)
    rows = objects.allgather_object(group, mine, timeout=timeout if error is None else None)
    if error is not None:
        raise error
    for rank, (words, names, _) in enumerate(rows):
        if words is not None:
            raise reraised(words, rank)
        if names != rows[0][1]:
            raise CollectiveMismatch(
                f"serving: rank {rank} serves {', '.join(names)}, rank 0 {', '.join(rows[0][1])}: all ranks must name "
                "the same functions",
                rank=group.rank,
                peer=rank,
            )
    _blocks = max(blocks for _, _, blocks in rows) + 1
    return Service(group, named, FIRST_TAG + _blocks % TAGS, lifetime._seconds(timeout))


def _named(functions: tuple[Callable[..., Any], ...]) -> dict[str, Callable[..., Any]]:
    if not functions:
        raise InvalidArgument("serving: name at least one function")
    named: dict[str, Callable[..., Any]] = {}
    for each in functions:
        name = getattr(each, "__name__", "<nameless>")
        if not callable(each) or "<" in name:
            raise InvalidArgument(
                f"serving: {each!r} has no name by which others could call it: give a function made with def"
            )
        if name in named:
            raise InvalidArgument(f"serving: two functions are called {name}")
        named[name] = each
    return named


@overload
def call(
    function: Callable[..., T], /, *args: object, rank: int, timeout: float | None = None, **kwargs: object
) -> T: ...
@overload
def call(
    function: str, /, *args: object, rank: int, timeout: float | None = None, **kwargs: object
) -> Any: ...  # noqa: ANN401
@advised
def call(
    function: Callable[..., T] | str,
    /,
    *args: object,
    rank: int,
    timeout: float | None = None,
    **kwargs: object,
) -> T | Any:
    """Runs a function on another rank, which serves it, and returns its result.

    It is called in a block of `with pc.serving(...)`, from any thread, also concurrently. An
    exception of the function is raised here, caused by a RemoteError that has the traceback of the
    other rank. That rank continues to serve.

    Parameters:
        function: one of the block's, or its name. The other rank runs its own function of that
            name.
        args, kwargs: its arguments: what broadcast_object() takes, as copies. Pass parameters of
            the function that are called `rank` or `timeout` by position.
        rank: the rank that runs it, counted in the group of the block. On the caller's own rank it
            runs in this thread, with the arguments themselves, after the earlier calls of
            call_async().
        timeout: seconds to wait for the result, 0 or more; default that of serving(). After that
            the function may still run on the other rank; its result is dropped. On the own rank:
            seconds until it must begin; otherwise it does not run.

    Raises:
        InvalidArgument: this rank is in no such block, or leaving it, or inside a function that is
            being served; there is no such function or rank; an argument or the result cannot be
            sent.
        CollectiveTimeout: the result has not arrived in time.
        PeerFailure: a rank of the group has died.

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> def add(a, b, *, times=1):
        ...     return (a + b) * times
        >>> with pc.serving(add):
        ...     pc.call(add, 1, 2, rank=pc.size() - 1, times=2)
        6
        >>> pc.shutdown()
    """
    service, name, peer = _found("call", function, rank, timeout)
    return service.call(name, args, kwargs, peer, timeout)


@overload
def call_async(
    function: Callable[..., T], /, *args: object, rank: int, timeout: float | None = None, **kwargs: object
) -> Future[T]: ...
@overload
def call_async(
    function: str, /, *args: object, rank: int, timeout: float | None = None, **kwargs: object
) -> Future[Any]: ...
@advised
def call_async(
    function: Callable[..., T] | str,
    /,
    *args: object,
    rank: int,
    timeout: float | None = None,
    **kwargs: object,
) -> Future[T] | Future[Any]:
    """Runs a function on another rank, as call() does, without waiting for the result.

    The call is sent before this returns, so the arguments may change afterwards. A rank runs its
    functions one at a time: calls to several ranks run at once, and calls that one thread makes to
    one rank run in order. The end of the block waits for all of them. The exception of a call is
    lost if its Future is not queried.

    Parameters:
        function, args, kwargs: as for call().
        rank: as for call(). On the own rank it runs in a separate thread, with the arguments
            themselves.
        timeout: seconds from now to the result, 0 or more; default that of serving(). On the own
            rank: seconds until it must begin; otherwise it does not run.

    Returns:
        a concurrent.futures.Future: `result()` returns what call() returns, or raises what it
        raises. `asyncio.wrap_future()` makes it awaitable. Callbacks of `add_done_callback()` run
        in one thread for all Futures of the block, so they must not wait for another one of them.

    Raises:
        InvalidArgument: as call(), except for a result that cannot be sent; also for a call to the
            own rank inside a function that is being served.
        CollectiveTimeout, PeerFailure: the call could not be sent.
        CollectiveError: the system cannot start a thread for the results.

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> def square(x):
        ...     return x * x
        >>> with pc.serving(square):
        ...     futures = [pc.call_async(square, rank, rank=rank) for rank in range(pc.size())]
        ...     [future.result() for future in futures] == [rank * rank for rank in range(pc.size())]
        True
        >>> pc.shutdown()
    """
    service, name, peer = _found("call_async", function, rank, timeout)
    return service.call_async(name, args, kwargs, peer, timeout)


def _found(
    caller: str, function: Callable[..., Any] | str, rank: int, timeout: float | None
) -> tuple[Service, str, int]:
    """Returns the current block's service, the function's name and the rank.

    Raises InvalidArgument if there is no such block, function or rank.
    """
    service = _service
    name = function if isinstance(function, str) else getattr(function, "__name__", repr(function))
    if service is None:
        raise InvalidArgument(
            f"{caller}({name}): this process serves nothing. All ranks need to be in a block of `with pc.serving(...)`"
        )
    if name not in service.functions or not (
        isinstance(function, str) or service.functions[name] == function
    ):
        raise InvalidArgument(f"{caller}({name}): it is not served here, only {', '.join(service.functions)}")
    peer, last = operator.index(rank), service.group.size - 1
    if not 0 <= peer <= last:
        raise InvalidArgument(f"{caller}({name}): rank must be between 0 and {last}, not {peer}")
    lifetime.check_timeout(timeout)
    return service, name, peer
