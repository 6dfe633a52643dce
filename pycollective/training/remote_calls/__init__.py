"""Calls of functions on other ranks: `with pc.serving(pull, push):` and `pc.call(pull, rank=0)`.

For parameter servers, shared queues, counters. Only functions that a block names can be called, by their names; what
travels is values, as broadcast_object sends them: no code comes from the network.
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
FIRST_TAG = 0xFE00_0000  # of the messages of a block: each has a tag of its own
TAGS = 1 << 24

_blocks = 0  # how many there were, as far as this rank knows
_service: Service | None = None  # of the block in which this process is


@contextlib.contextmanager
@advised
def serving(
    *functions: Callable[..., Any], group: Group | None = None, timeout: float | None = None
) -> Iterator[None]:
    """Answer calls of these functions from the other ranks, in a thread of this one, until all ranks leave the block.

    All ranks of the group enter it, with functions of the same names; inside, call() runs them on any rank. The end of
    the block waits until all ranks have come there, so on a rank that only serves the body is `pass`. This wait has no
    deadline: work may take hours. Nothing is under way afterwards.

    On each rank the functions run one at a time, so they need no lock among each other. They cannot make calls on
    several ranks themselves, nor call() other ranks: these may be waiting for them.

    An exception that leaves the block on one rank ends it on all: it is raised there at the next call(), or at the end
    of the block. So does the death of a rank, with PeerFailure, as it ends the group. No function starts any more then,
    also of those that call_async() has queued; one that is running goes on in its thread, and is not waited for.

    Parameters:
        functions: each is known by its `__name__`. Arguments and results are what broadcast_object() takes, up to 1
            GiB, and arrive as copies.
        group: whose ranks take part; default the world.
        timeout: seconds to wait for the others at the beginning, and for the answer of a call() that does not say;
            default PYCOLLECTIVE_TIMEOUT_S, else 600.

    Raises:
        InvalidArgument: a function has no name, or that of another; this rank is in such a block already. On all ranks.
        CollectiveMismatch: the ranks name different functions. On all ranks.
        CollectiveTimeout: not all ranks came to the beginning.
        PeerFailure: a rank has died; at the end of the block, if no call() has raised it.

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
        service.start()  # now that the functions find it
        yield
        service.leave()
    except BaseException as error:
        service.fail(error)
        raise
    finally:
        _service = None
        service.close()


def _entered(group: Group, functions: tuple[Callable[..., Any], ...], timeout: float | None) -> Service:
    """Begins the block on all ranks, or raises on all."""
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
    """Run a function on another rank, which serves it, and return its result.

    In a block of `with pc.serving(...)`, from any thread; several at once, too. What the function raises is raised
    here, with a RemoteError as its cause that has the traceback of the other rank, which goes on serving.

    Parameters:
        function: one of the block's, or its name. The other rank runs its own of that name.
        args, kwargs: what it gets: what broadcast_object() takes, as copies. Its own `rank` and `timeout` go by place.
        rank: who runs it, counted in the group of the block. On this rank it runs in this thread, with the arguments
            themselves, after the calls that call_async() has made before.
        timeout: seconds to wait for the result, 0 or more; default that of serving(). After that the function may run
            there all the same; its result is dropped. On this rank: seconds until it begins, or else does not run.

    Raises:
        InvalidArgument: this rank is in no such block, or leaving it, or inside a function that is being served; there
            is no such function or rank; an argument or the result cannot be sent.
        CollectiveTimeout: the result has not come in time.
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
    """Run a function on another rank, as call() does, and go on meanwhile.

    The call is sent before this returns, so the arguments may change then. A rank runs its functions one at a time:
    calls to several ranks run at once, and calls that one thread makes to one rank run in their order. The end of the
    block waits for all of them. What a call raises is lost if nothing asks its Future.

    Parameters:
        function, args, kwargs: as for call().
        rank: as for call(). On this rank it runs in a thread beside the program's, with the arguments themselves.
        timeout: seconds from now to the result, 0 or more; default that of serving(). On this rank: seconds until it
            begins, or else does not run.

    Returns:
        a concurrent.futures.Future: `result()` returns what call() returns, or raises what it raises.
        `asyncio.wrap_future()` makes it one that can be awaited. What `add_done_callback()` adds runs in one thread for
        all Futures of the block, so it must not wait for another of them.

    Raises:
        InvalidArgument: as call(), but for a result that cannot be sent; also to this rank inside a function that is
            being served.
        CollectiveTimeout, PeerFailure: the call could not be sent.
        CollectiveError: the system has no thread for the results.

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
    """The block, the name of the function and the rank. Raises InvalidArgument."""
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
