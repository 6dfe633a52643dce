"""Start, end and facts of the world. The collective calls themselves are in the C++ core."""

from __future__ import annotations

import atexit
import math
import numbers
import os
import sys
import time
from _thread import allocate_lock  # importing threading takes long
from typing import TYPE_CHECKING

from pycollective import _core
from pycollective.base.advice import advised
from pycollective.errors import (
    CollectiveError,
    CollectiveMismatch,
    CollectiveTimeout,
    ForkedProcess,
    InvalidArgument,
    Unsupported,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pycollective.bootstrap.detect import Placement

__all__ = ["in_world", "init", "is_initialized", "local_rank", "local_size", "rank", "shutdown", "size"]

BACKENDS = ("auto", "tcp", "shm")
NCCL = "nccl"
ENVIRONMENT = "env://"
PREFIX = "PYCOLLECTIVE_"
KEY_FD = "PYCOLLECTIVE_KEY_FD"
# Number of frames from become_world() to the caller of init(): become_world(), init(), the @advised
# wrapper, the program.
CALLERS = 4
MOST_RANKS = 65535
DEFAULT_TIMEOUT_S = 600.0
LONGEST_S = 1e6  # longer timeouts exceed the range of poll()
try:  # Relative entries of sys.path refer to this folder, even if the program changes its folder later.
    IMPORTED_IN = os.getcwd()
except OSError:  # the folder has been removed
    IMPORTED_IN = ""
AT_EXIT_S = 5.0  # how long a process that ends without shutdown() waits for the other ranks
# How long a process that ends after SIGINT or SIGTERM waits for the other ranks. The time is short,
# because they are in other calls.
INTERRUPTED_S = 0.1
PARENTS_PLACE = (
    "this process was forked from a rank, and the place in the world is its parent's: give it a place of its own with "
    "init(address, rank=, size=), or start it by spawn"
)

_LEAVE = "call pycollective.shutdown() first, or use pycollective.world()"

_entering = allocate_lock()  # held by init(), of which one runs at a time
_runtime: _core.Runtime | None = None
_launcher: str | None = None  # the launcher of the current or last world
# init()'s arguments for the current world; None if the world was not made by init()
_asked: dict[str, object] | None = None
# rank 0's store, if a KVS has its address; None otherwise
_server: _core.StoreServer | None = None
# number of the next world, by launcher, job and address of rank 0
_epochs: dict[tuple[str, str, str], int] = {}
_at_end: list[Callable[[], None]] = []  # functions to call at the end of the current world
_parents_place: dict[str, str] | None = (
    None  # in a forked child of a rank: the environment at the fork; otherwise None
)


@advised
def init(
    address: str | None = None,
    *,
    rank: int | None = None,
    size: int | None = None,
    timeout: float | None = None,
    backend: str | None = None,
) -> _core.Group:
    """Join the world and return its group, on which the functions of this module act from then on.

    A second call with the same arguments, for example in a notebook cell that runs again, returns
    the existing world. If torch or Paddle is imported and there are GPUs, pycollective.device()
    becomes their default device, unless the program has chosen one; this does not initialize CUDA.

    Without arguments, rank and size come from the launcher: `pycollective run`, torchrun, mpirun or
    mpiexec (Open MPI, MPICH, Intel MPI), srun, or RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and
    MASTER_PORT in the environment. Without any launcher this process is a world of one. A launcher
    that cannot be joined is an error, never a world of one.

    Parameters:
        address: "host:port", also as "tcp://host:port", the same on every rank; rank 0 opens
            its store there. Or "file:///path", a path that all ranks share: rank 0 writes the
            address of its store to a file there. Both need rank and size. "env://" is the same
            as no address: the launcher or the environment provides everything.
        rank: this process, from 0 to `size` - 1.
        size: the number of processes.
        timeout: seconds that init() itself and every later call may take; default
            PYCOLLECTIVE_TIMEOUT_S, else 600.
        backend: "auto": ranks of one host share memory if they can; "tcp": they never do;
            "shm": all ranks must. Rank 0's value applies to all; default
            PYCOLLECTIVE_TRANSPORT, else "auto". "nccl", on all ranks: as "auto", but the ranks
            also join by NCCL at once, each on pycollective.device(). If one rank cannot, init()
            fails on all ranks.

    Raises:
        InvalidArgument: the arguments or the environment describe no place in a world, a world
            exists that was made with other arguments, the name of rank 0's host does not
            resolve before the deadline, or the ranks cannot reach each other's configured
            addresses.
        CollectiveMismatch: the ranks have different keys, sizes or versions, or two processes
            claim the same rank.
        CollectiveTimeout: not all ranks joined; the message names the missing ranks.
        CollectiveError: the address of rank 0 is in use, or the system refuses something else.
        PeerFailure: the launcher has ended, or does not provide the address of rank 0.
        Unsupported: a known launcher started several processes, but cannot be joined yet, or
            there is no such backend. Or backend is "shm" and not all ranks share memory, or
            "nccl" and not all ranks have a GPU of their own and the same NCCL: the message has
            the ranks and the reason.
        ForkedProcess: the launcher's place belongs to the process that this one was forked
            from.

    Example:
        >>> import pycollective as pc
        >>> group = pc.init()
        >>> pc.rank(), pc.size()
        (0, 1)
        >>> pc.shutdown()
    """
    spelled = None if address == ENVIRONMENT else address
    spelled = spelled.removeprefix("tcp://") if isinstance(spelled, str) else spelled
    asked: dict[str, object] = {
        "address": spelled,
        "rank": rank,
        "size": size,
        "timeout": timeout,
        "backend": backend,
    }
    if is_initialized():
        _check_same(asked)
        return _core.world()
    world = become_world(
        lambda: _placement(address, rank, size), timeout=timeout, backend=backend, asked=asked
    )
    from pycollective.runtime.devices import make_default
    from pycollective.runtime.paddle_environment import set_variables

    make_default()
    set_variables(world, at_end)
    return world


def _check_same(asked: Mapping[str, object]) -> None:
    """Raise InvalidArgument if a second init() has other arguments than the first.

    A call with the same arguments, for example in a notebook, gets the existing world. A call with
    other arguments would need another world.
    """
    if _asked is None:
        if any(value is not None for value in asked.values()):
            raise InvalidArgument(
                f"init(): there is a world already, which torch.distributed has made: {_LEAVE}, or call init() without "
                f"arguments"
            )
        return
    changed = [name for name, value in asked.items() if value != _asked[name]]
    if changed:
        now = ", ".join(f"{name}={asked[name]!r}" for name in changed)
        before = ", ".join(f"{name}={_asked[name]!r}" for name in changed)
        raise InvalidArgument(
            f"init() was called twice, with other arguments: now {now}, before {before}. There is one world at a time: "
            f"{_LEAVE}; with the same arguments init() returns the world that there is"
        )


def become_world(
    place: Callable[[], Placement],
    *,
    timeout: float | None,
    backend: str | None = None,
    epoch: int | None = None,
    asked: dict[str, object] | None = None,
) -> _core.Group:
    """Make the world as init() does, with the placement that `place` returns.

    See join() for `epoch`. `asked` has the arguments of init().
    """
    global _asked, _launcher, _runtime, _server
    if not _entering.acquire(blocking=False):
        raise InvalidArgument("init() is running in another thread of this process")
    try:
        if is_initialized():
            raise InvalidArgument(f"init() was called twice: {_LEAVE}")
        _check_backend(backend)
        check_timeout(timeout)
        if timeout == 0:
            raise InvalidArgument("timeout must be a positive number of seconds, not 0")
        from pycollective.bootstrap.rendezvous import placed

        deadline = time.monotonic() + _seconds(timeout)
        placement = placed(place, deadline=deadline)
        within_s = deadline - time.monotonic()
        transport = None if backend == NCCL else backend
        runtime, _server = join(placement, timeout=timeout, backend=transport, epoch=epoch, within_s=within_s)
        if backend == NCCL:
            _join_gpus(runtime)
        _core._set_world(runtime.world)
        _launcher, _asked = placement.launcher, asked
        _runtime = runtime  # is_initialized() is true from here on
        # The warning follows after all ranks have joined: if warnings are errors and it raises, the
        # other ranks detect that this rank has ended.
        if placement.rank == 0 and any(name.startswith(PREFIX) for name in os.environ):
            from pycollective.runtime.environment_names import warn_of_unknown

            warn_of_unknown(stacklevel=CALLERS)
        return runtime.world
    finally:
        _entering.release()


def _check_backend(backend: str | None) -> None:
    if backend not in (None, NCCL, *BACKENDS):
        raise Unsupported(f"backend {backend!r} is not one of {', '.join((*BACKENDS, NCCL))}")


def _join_gpus(runtime: _core.Runtime) -> None:
    """Join by NCCL on the GPUs of all ranks.

    If one rank cannot join, all ranks raise its error, and the world ends.
    """
    from pycollective.runtime.devices import visible_gpus

    gpus = visible_gpus()
    device = runtime.world.local_rank % gpus if gpus else 0
    try:
        runtime.world._join_gpus(device)
    except CollectiveError as error:
        try:
            runtime.shutdown()
        except CollectiveError:
            runtime.close()
        error.args = (f"backend 'nccl': {error}",)
        raise


def join(
    placement: Placement,
    *,
    timeout: float | None,
    backend: str | None = None,
    epoch: int | None = None,
    within_s: float | None = None,
) -> tuple[_core.Runtime, _core.StoreServer | None]:
    """Return a runtime with that placement and, on rank 0 with a KVS, its store.

    The caller must end both. `epoch` numbers the worlds of a job, so that they are kept apart, and
    must be equal on all ranks. If it is None, this process counts the worlds; then all ranks of the
    job must have been in the same worlds. `within_s` limits the wait for the other ranks; default
    `timeout`.
    """
    within_s = _seconds(timeout) if within_s is None else within_s
    if epoch is not None:
        return _join(placement, epoch, timeout, backend, within_s)
    job = (placement.launcher, placement.job, _where(placement))
    epoch = _epochs.get(job, 0)
    joined = _join(placement, epoch, timeout, backend, within_s)
    _epochs[job] = epoch + 1  # only successful worlds are counted, because a failed init() may be repeated
    return joined


def _where(placement: Placement) -> str:
    """Return rank 0's address, or "" if rank 0 is on this host.

    A local address would not identify the job, because a rank may be given different names of its
    own host in different worlds.
    """
    from pycollective.bootstrap.addresses import all_here, split

    first = placement.store_addresses[:1]
    return "" if all_here(split(each)[0] for each in first) else first[0]


def _join(
    placement: Placement, epoch: int, timeout: float | None, backend: str | None, within_s: float
) -> tuple[_core.Runtime, _core.StoreServer | None]:
    from pycollective.bootstrap.rendezvous import find_rendezvous

    deadline = time.monotonic() + within_s
    rendezvous = find_rendezvous(placement, number=epoch, timeout_s=within_s)
    try:
        runtime = _core.Runtime(
            placement.rank,
            placement.size,
            store_addresses=rendezvous.store_addresses,
            host_store=rendezvous.host_store,
            key=rendezvous.key,
            key_source=rendezvous.key_source,
            encrypts=rendezvous.encrypts,
            job=rendezvous.job,
            epoch=epoch,
            listen=rendezvous.listen,
            local_rank=placement.local_rank,
            local_size=placement.local_size,
            timeout_s=timeout,
            init_timeout_s=max(0.0, deadline - time.monotonic()),
            transport=backend,
        )
    except BaseException as error:
        rendezvous.close()
        about_a_peer = isinstance(error, InvalidArgument) and error.peer is not None
        if rendezvous.advice and (about_a_peer or isinstance(error, CollectiveTimeout)):
            error.args = (f"{error}. {rendezvous.advice}",)
        raise
    rendezvous.all_joined()
    return runtime, rendezvous.server


def _seconds(timeout: float | None) -> float:
    """Return how long init() may take."""
    text = os.environ.get("PYCOLLECTIVE_TIMEOUT_S") or str(DEFAULT_TIMEOUT_S)
    try:
        seconds = float(text) if timeout is None else float(timeout)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise InvalidArgument(f"PYCOLLECTIVE_TIMEOUT_S={text!r} is not a positive number of seconds")
    return min(seconds, LONGEST_S)


def check_timeout(timeout: float | None) -> None:
    if timeout is None:
        return
    if not isinstance(timeout, numbers.Real):
        raise TypeError(f"timeout must be a number of seconds or None, not {type(timeout).__name__}")
    if not timeout >= 0:
        raise InvalidArgument(f"timeout must be a number of seconds, 0 or more, not {timeout}")


def _placement(address: str | None, rank: int | None, size: int | None) -> Placement:
    if address in (None, ENVIRONMENT) and rank is None and size is None:
        return launched_place()
    if address == ENVIRONMENT:
        raise InvalidArgument(
            f'init("{ENVIRONMENT}") takes rank and size from the environment: leave them out'
        )
    if rank is None or size is None or (address is None and size != 1):
        raise InvalidArgument(
            'init() by hand needs all three: init("host:port", rank=, size=), the same address on every rank, or '
            '"file:///path" in its place'
        )
    if address is not None and not isinstance(address, str):
        raise TypeError(f'address must be a string such as "10.0.0.1:29500", not {type(address).__name__}')
    from pycollective.base.whole_numbers import whole_number

    rank, size = whole_number("init", "rank", rank), whole_number("init", "size", size)
    if size < 1 or not 0 <= rank < size:
        raise InvalidArgument(f"rank={rank}, size={size}: ranks count from 0 to size - 1")
    if size > MOST_RANKS:
        raise InvalidArgument(f"size={size}: a world has at most {MOST_RANKS} ranks")
    from pycollective.bootstrap.explicit import place

    return place(address, rank, size)


def launched_place() -> Placement:
    """Return the placement by the launcher. Raises as init() without arguments does."""
    from pycollective.bootstrap.detect import detect

    if _is_parents((KEY_FD,)):
        raise ForkedProcess(PARENTS_PLACE)
    placement = detect()
    if placement.kvs is not None and _is_parents(placement.variables):
        raise ForkedProcess(PARENTS_PLACE)
    return placement


def _is_parents(variables: tuple[str, ...]) -> bool:
    """Return whether this is a forked child with its parent's values of these variables."""
    if _parents_place is None or not any(os.environ.get(name) for name in variables):
        return False
    return all(os.environ.get(name) == _parents_place.get(name) for name in variables)


@advised
def shutdown(*, timeout: float | None = None) -> None:
    """Wait until every rank has called this function, and leave the world.

    Without a world it does nothing. init() may be called again afterwards. After a failure
    shutdown() does not wait. A process that ends without calling it waits for the other ranks at
    most 5 seconds. The limit is 0.1 seconds if SIGINT (Ctrl-C) or SIGTERM has ended the last call,
    or has arrived since then at a handler that was installed before the world was made.

    Parameters:
        timeout: seconds to wait for the other ranks, default that of init().

    Raises:
        CollectiveTimeout, CollectiveMismatch, PeerFailure: not every rank called it; ranks in
            another call get PeerExited. This rank has left the world nevertheless.
            CollectiveMismatch also for an earlier mismatch that has not been reported yet.

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> pc.shutdown()
        >>> pc.is_initialized()
        False
    """
    global _runtime
    check_timeout(timeout)
    runtime, _runtime = _runtime, None
    if runtime is not None:
        _core._set_world(None)
        try:
            runtime.shutdown(timeout_s=timeout)
        finally:
            _end()


def at_end(call: Callable[[], None]) -> None:
    """Register a function that runs once when this world ends, for any reason, also at exit."""
    if call not in _at_end:
        _at_end.append(call)


def _end() -> None:
    global _server
    while _at_end:
        _at_end.pop()()
    server, _server = _server, None
    if server is not None:
        server.close()


def launcher() -> str | None:
    """Return the launcher that determined this process's placement in the last world."""
    return _launcher


def native_store() -> _core.Store:
    """Return the current world's store. Raises NotInitialized or ForkedProcess."""
    _core.world()
    assert _runtime is not None
    return _runtime.store()


def leave(timeout: float = AT_EXIT_S) -> None:
    """Call shutdown() where no caller can handle an error. Waits at most `timeout` seconds."""
    try:
        shutdown(timeout=timeout)
    except CollectiveMismatch as error:
        sys.stderr.write(f"pycollective: {error}\n")
        if error.operation is None:  # an earlier call was mismatched, and the program has used its result
            _core._fail_at_exit()
    except CollectiveError:
        pass  # the other ranks have ended or are busy, and no caller can handle the error


def abort() -> None:
    """Leave the world at once.

    Calls of other threads raise NotInitialized. The other ranks get PeerFailure.
    """
    global _runtime
    runtime, _runtime = _runtime, None
    if runtime is not None:
        _core._set_world(None)
        runtime.close()
        _end()


@atexit.register
def _at_exit() -> None:
    if getattr(sys, "last_type", None) is not None:
        abort()  # an exception ends this process, so the other ranks should fail immediately
    elif _runtime is not None:
        leave(INTERRUPTED_S if _is_interrupted() else AT_EXIT_S)


def _is_interrupted() -> bool:
    """Return whether a signal that ends this process arrived, and no call begun since succeeded."""
    since_s = _core._seconds_since_end_signal()
    record = _core._flight_record()  # must follow immediately, because its times are relative to now
    if since_s is None:
        return False
    import json

    return not any(call["state"] == "done" and call["began_s"] > -since_s for call in json.loads(record))


def _in_forked_child() -> None:
    # The connections and the launcher's placement belong to the parent. Calls on the parent's world
    # raise ForkedProcess until the child calls init().
    global _entering, _parents_place, _runtime, _server
    _entering = allocate_lock()
    _core._after_fork()
    _runtime = None
    if _server is not None:
        _server._close_in_child()
    _server = None
    _parents_place = dict(os.environ)


os.register_at_fork(after_in_child=_in_forked_child)


def _keep_key() -> None:
    """Read the key, which makes its descriptor non-inheritable.

    Processes that this rank starts, before or after init(), are not ranks and must not get the key.
    """
    if os.environ.get(KEY_FD, "").isdecimal():
        from pycollective.bootstrap.key import read_key

        read_key(int(os.environ[KEY_FD]))


_keep_key()


def is_initialized() -> bool:
    """Return whether there is a world.

    Example:
        >>> import pycollective as pc
        >>> pc.is_initialized()
        False
    """
    return _runtime is not None


def in_world() -> bool:
    """Return whether there is a world with more than one rank. False also after its end.

    Example:
        >>> import pycollective as pc
        >>> pc.in_world()
        False
    """
    runtime = _runtime
    return runtime is not None and runtime.world.size > 1


def rank() -> int:
    """Return this process's number in the world, from 0. Raises NotInitialized before init().

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> pc.rank()
        0
        >>> pc.shutdown()
    """
    return _core.world().rank


def size() -> int:
    """Return the number of ranks of the world. Raises NotInitialized before init().

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> pc.size()
        1
        >>> pc.shutdown()
    """
    return _core.world().size


def local_rank() -> int:
    """Return this process's number among the ranks of its host, from 0: the index of its GPU.

    Raises NotInitialized before init().

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> pc.local_rank()
        0
        >>> pc.shutdown()
    """
    return _core.world().local_rank


def local_size() -> int:
    """Return the number of ranks on this host. Raises NotInitialized before init().

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> pc.local_size()
        1
        >>> pc.shutdown()
    """
    return _core.world().local_size
