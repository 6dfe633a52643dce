"""The world's beginning and end, and the questions about it. The calls themselves are in the C++ core."""

from __future__ import annotations

import atexit
import math
import numbers
import os
import sys
import time
from _thread import allocate_lock  # threading itself takes long to import
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
# Frames from become_world() to the program: itself, init(), what advises on its arguments, the program.
CALLERS = 4
MOST_RANKS = 65535
DEFAULT_TIMEOUT_S = 600.0
LONGEST_S = 1e6  # what poll() can still count
try:  # the folder to which relative ones of sys.path belong, before the program goes elsewhere
    IMPORTED_IN = os.getcwd()
except OSError:  # it has been removed
    IMPORTED_IN = ""
AT_EXIT_S = 5.0  # how long a process that ends without shutdown() waits for the others
INTERRUPTED_S = 0.1  # the same if SIGINT or SIGTERM has told it to end: the others are elsewhere
PARENTS_PLACE = (
    "this process was forked from a rank, and the place in the world is its parent's: give it a place of its own with "
    "init(address, rank=, size=), or start it by spawn"
)

_LEAVE = "call pycollective.shutdown() first, or use pycollective.world()"

_entering = allocate_lock()  # one init() at a time
_runtime: _core.Runtime | None = None
_launcher: str | None = None  # of the last world
_asked: dict[str, object] | None = None  # of init() by this world; None: it was made in another way
_server: _core.StoreServer | None = None  # on rank 0, where the launcher's KVS told the others of it
_epochs: dict[tuple[str, str, str], int] = {}  # by launcher, job and where rank 0 is
_at_end: list[Callable[[], None]] = []  # what this world's end calls
_parents_place: dict[str, str] | None = (
    None  # in a forked child: the environment of the rank that it comes from
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
    """Join the world and return its group, which the functions of this module act on from then on.

    A second call with the same arguments, as by a notebook's cell that is run again, returns the world that there is.
    Where torch or Paddle is imported and there are GPUs, pycollective.device() becomes the one on which they compute
    if the program names none; CUDA is not initialized by this.

    Without arguments the launcher says who we are: `pycollective run`, torchrun, mpirun or mpiexec (Open MPI, MPICH,
    Intel MPI), srun, or RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in the environment. Without any
    launcher this process is a world of one. A launcher that cannot be joined is an error, never a world of one.

    Parameters:
        address: "host:port", also as "tcp://host:port", the same on every rank; rank 0 has its store there. Or
            "file:///path", a path that all ranks share: rank 0 leaves a file there that says where it is. Both need
            rank and size. "env://" is the same as no address: the launcher or the environment says it all.
        rank: this process, from 0 to `size` - 1.
        size: how many processes there are.
        timeout: seconds that init() itself and every later call may take; default PYCOLLECTIVE_TIMEOUT_S, else 600.
        backend: "auto": ranks of one host share memory where they can; "tcp": they never do; "shm": all ranks must.
            Rank 0's counts for all; default PYCOLLECTIVE_TRANSPORT, else "auto". "nccl", on all ranks: as "auto", and
            the ranks join on their GPUs at once, each on pycollective.device(), or init() fails on all of them.

    Raises:
        InvalidArgument: the arguments or the environment describe no place in a world, there is a world that other
            arguments have made, the name of rank 0's host does not resolve until the deadline, or the addresses that
            ranks were given cannot be reached from each other.
        CollectiveMismatch: the ranks have different keys, sizes or versions, or two say that they are the same one.
        CollectiveTimeout: not all ranks came; the message names those that are missing.
        CollectiveError: the address of rank 0 is taken, or the system refuses something else.
        PeerFailure: the launcher is gone, or cannot be asked where rank 0 is.
        Unsupported: a known launcher started several processes, but cannot be joined yet, or there is no such backend.
            Or backend is "shm" and not all ranks share memory, or "nccl" and not all have a GPU of their own and one
            NCCL: the message says which, and why.
        ForkedProcess: the launcher's place belongs to the process that this one was forked from.

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
    """A second init() with the arguments of the first is one that a notebook makes again; others want another world."""
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
    """What init() does, for a place found in another way. `epoch`: see join(). `asked`: the arguments of init()."""
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
        _runtime = runtime  # says that there is a world
        # The others have joined as well: where warnings are errors, they learn that this rank has ended.
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
    """On all ranks, or none of them: what one of them lacks all of them say, and the world ends."""
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
    """A runtime at that place, and the store that rank 0 keeps for it, if it does. The caller ends both.

    `epoch`: which world of this job it is, the same number on every rank, so that the worlds of one job are kept apart.
    None: all ranks of the job have been in the same ones, and this process counts them. `within_s`: how long the others
    are waited for; default `timeout`.
    """
    within_s = _seconds(timeout) if within_s is None else within_s
    if epoch is not None:
        return _join(placement, epoch, timeout, backend, within_s)
    job = (placement.launcher, placement.job, _where(placement))
    epoch = _epochs.get(job, 0)
    joined = _join(placement, epoch, timeout, backend, within_s)
    _epochs[job] = epoch + 1  # of worlds that came about: a failed init() may be tried again
    return joined


def _where(placement: Placement) -> str:
    """Where rank 0 is. A host of its own a rank may know by several names, one in this world and one in the next."""
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
    """How long finding the others may take."""
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
    """What the launcher says. Raises as init() without arguments does."""
    from pycollective.bootstrap.detect import detect

    if _is_parents((KEY_FD,)):
        raise ForkedProcess(PARENTS_PLACE)
    placement = detect()
    if placement.kvs is not None and _is_parents(placement.variables):
        raise ForkedProcess(PARENTS_PLACE)
    return placement


def _is_parents(variables: tuple[str, ...]) -> bool:
    """Whether this is a forked child, in whose environment some of these stand as its parent had them."""
    if _parents_place is None or not any(os.environ.get(name) for name in variables):
        return False
    return all(os.environ.get(name) == _parents_place.get(name) for name in variables)


@advised
def shutdown(*, timeout: float | None = None) -> None:
    """Wait until every rank has come here, and leave the world. Without a world it does nothing; init() may follow.

    After a failure it does not wait. A process that ends without it waits at most 5 seconds for the others, or 0.1
    seconds if SIGINT (Ctrl-C) or SIGTERM has ended its last call, or has come since to a handler that was there when
    the world was made.

    Parameters:
        timeout: seconds to wait for the others, default that of init().

    Raises:
        CollectiveTimeout, CollectiveMismatch, PeerFailure: not every rank came; those in another call get PeerExited.
            This one has left the world all the same. CollectiveMismatch also for an earlier call that was wrong and of
            which nobody has been told yet.

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
    """Has the end of this world call it once, whichever way it ends; a world that ends with its process does too."""
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
    """Who told this process its place in the last world."""
    return _launcher


def native_store() -> _core.Store:
    """The current world's; raises NotInitialized or ForkedProcess."""
    _core.world()
    assert _runtime is not None
    return _runtime.store()


def leave(timeout: float = AT_EXIT_S) -> None:
    """shutdown() where nobody can be told: it waits so many seconds for the others, and no longer."""
    try:
        shutdown(timeout=timeout)
    except CollectiveMismatch as error:
        sys.stderr.write(f"pycollective: {error}\n")
        if error.operation is None:  # about an earlier call, whose result this program has used
            _core._fail_at_exit()
    except CollectiveError:
        pass  # the others are gone or busy; there is nobody left to tell


def abort() -> None:
    """Leave the world at once. Calls under way in other threads raise NotInitialized; the others get PeerFailure."""
    global _runtime
    runtime, _runtime = _runtime, None
    if runtime is not None:
        _core._set_world(None)
        runtime.close()
        _end()


@atexit.register
def _at_exit() -> None:
    if getattr(sys, "last_type", None) is not None:
        abort()  # an exception ends this process: the others shall know at once
    elif _runtime is not None:
        leave(INTERRUPTED_S if _is_interrupted() else AT_EXIT_S)


def _is_interrupted() -> bool:
    """Whether a signal that asks for the end has come, and no call that was made after it has ended well."""
    since_s = _core._seconds_since_end_signal()
    record = _core._flight_record()  # at once: its times count from now
    if since_s is None:
        return False
    import json

    return not any(call["state"] == "done" and call["began_s"] > -since_s for call in json.loads(record))


def _in_forked_child() -> None:
    # The connections are the parent's: calls on its world raise ForkedProcess until the child calls init() itself.
    # The launcher's place is the parent's as well.
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
    """What this rank starts is not a rank, whether it is started before init() or after."""
    if os.environ.get(KEY_FD, "").isdecimal():
        from pycollective.bootstrap.key import read_key

        read_key(int(os.environ[KEY_FD]))


_keep_key()


def is_initialized() -> bool:
    """Whether there is a world.

    Example:
        >>> import pycollective as pc
        >>> pc.is_initialized()
        False
    """
    return _runtime is not None


def in_world() -> bool:
    """Whether there are other ranks: a world of more than one. Without a world, and after its end, False.

    Example:
        >>> import pycollective as pc
        >>> pc.in_world()
        False
    """
    runtime = _runtime
    return runtime is not None and runtime.world.size > 1


def rank() -> int:
    """This process's number in the world, from 0. Raises NotInitialized before init().

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> pc.rank()
        0
        >>> pc.shutdown()
    """
    return _core.world().rank


def size() -> int:
    """How many ranks the world has. Raises NotInitialized before init().

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> pc.size()
        1
        >>> pc.shutdown()
    """
    return _core.world().size


def local_rank() -> int:
    """This process's number among those on its host, from 0: the index of its GPU. Raises NotInitialized before init().

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> pc.local_rank()
        0
        >>> pc.shutdown()
    """
    return _core.world().local_rank


def local_size() -> int:
    """How many ranks of the world are on this host. Raises NotInitialized before init().

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> pc.local_size()
        1
        >>> pc.shutdown()
    """
    return _core.world().local_size
