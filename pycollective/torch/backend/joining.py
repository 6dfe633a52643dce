"""Makes a Group of ours for torch's init_process_group() and new_group().

A process has one world. The default group of torch.distributed is that world: an existing world of
the same size, or a new one that is made through torch's own store. So pycollective's functions use
it as well. Other groups are subgroups of it. If the default group belongs to another backend, and
there is no world of ours, each group has its own connections.

After destroy_process_group() torch reuses the names of its groups, possibly for other ranks and in
the same store. Keys that rank 0 has set for an earlier group are never read by mistake: rank 0
deletes them before any rank can continue. If rank 0 failed before that, no process listens at the
address in these keys.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch.distributed as dist

from pycollective import _core
from pycollective.bootstrap.kvs.torch_default import DefaultStore
from pycollective.bootstrap.placement import Placement
from pycollective.bootstrap.single import alone
from pycollective.errors import CollectiveError, ForkedProcess, InvalidArgument, NotInitialized
from pycollective.runtime import lifetime
from pycollective.torch.backend import store_servers

__all__ = ["Joined", "join"]

LAUNCHER = "torch.distributed"
FIRST = 0  # number of the world; fixed, because ranks with different histories would count differently


@dataclass(frozen=True)
class Joined:
    """A group, and the functions that leave it."""

    group: _core.Group
    leave: Callable[[], None]  # may be called more than once
    abort: Callable[[], None]  # ends running calls; may be called more than once


def join(
    store: dist.Store,
    rank: int,
    size: int,
    ranks: list[int],
    name: str,
    timeout_s: float,
    *,
    is_standalone: bool = False,
) -> Joined:
    """Returns the group that torch calls `name`, in which this process is `rank` of `size`.

    `ranks` are ranks of the default group; empty means all of them. An `is_standalone` group is
    independent of the world and of the default group, if these exist.
    """
    if lifetime.is_initialized() and not is_standalone:
        joined = _in_world(_core.world(), rank, size, ranks, timeout_s)
        if not ranks and _is_torchs(store):
            return Joined(joined.group, lifetime.leave, lifetime.abort)
        return joined
    # the launcher's variables describe only the default group
    one_host = not is_standalone and _all_here(size)
    place = functools.partial(_placement, store, rank, size, name, one_host)
    if ranks or is_standalone:
        apart = _Apart(*lifetime.join(place(), timeout=timeout_s, epoch=FIRST))
        joined = Joined(apart.runtime.world, apart.leave, apart.end)
    else:
        joined = _become_world(store, rank, place, timeout_s)
    try:
        joined.group.barrier(timeout=timeout_s)  # after this, rank 0 has deleted its keys from the store
    except BaseException:
        joined.abort()
        raise
    return joined


def _become_world(store: dist.Store, rank: int, place: Callable[[], Placement], timeout_s: float) -> Joined:
    if rank == 0:
        store_servers.name(store)
    world = lifetime.become_world(place, timeout=timeout_s, epoch=FIRST)
    server = store_servers.name_of(store)

    def leave() -> None:
        store_servers.leave(server, store, rank)
        lifetime.leave()

    def abort() -> None:
        # The world is aborted first: if rank 0's host has failed, connecting to its store takes
        # long to fail.
        lifetime.abort()
        store_servers.leave(server, store, rank)

    return Joined(world, leave, abort)


def _is_torchs(store: dist.Store) -> bool:
    """Returns whether the world was made for torch.distributed, under mpirun, mpiexec or srun."""
    from pycollective.torch.backend.launched import WorldStore

    store = store_servers.without_prefix(store)
    return isinstance(store, WorldStore) and store.is_torchs


def _in_world(world: _core.Group, rank: int, size: int, ranks: list[int], timeout_s: float) -> Joined:
    here, places = (dist.get_rank(), dist.get_world_size()) if ranks else (rank, size)
    if (world.rank, world.size) != (here, places):
        raise InvalidArgument(
            f"init_process_group: pycollective has a world already, in which this is rank {world.rank} of "
            f"{world.size}, and torch.distributed says rank {here} of {places}: call pycollective.shutdown() first, or "
            f"start both from the same launcher"
        )
    if ranks:  # a separate group even for all ranks: its calls have no order relative to the world's
        group = world.group(ranks, timeout=timeout_s)
        assert group is not None
        return Joined(group, leave=group.close, abort=functools.partial(_quit, group))
    # the process with torch's store must not end before all ranks have joined
    world.barrier(timeout=timeout_s)
    return Joined(world, leave=lambda: None, abort=lifetime.abort)


def _quit(group: _core.Group) -> None:
    # These errors mean that the world has ended or belongs to the parent process.
    with contextlib.suppress(NotInitialized, ForkedProcess):
        group._quit()


class _Apart:
    """A group with its own connections, until leave(), end(), process exit or a fork."""

    def __init__(self, runtime: _core.Runtime, server: _core.StoreServer | None) -> None:
        self.runtime = runtime
        self._server = server
        _apart.append(self)

    def leave(self) -> None:
        with contextlib.suppress(CollectiveError):  # the other ranks have failed or are busy
            self.runtime.shutdown(timeout_s=lifetime.AT_EXIT_S)
        self.end()

    def end(self) -> None:
        if self in _apart:
            _apart.remove(self)
        self.runtime.close()
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def close_in_child(self) -> None:
        if self._server is not None:
            self._server._close_in_child()
        self._server = None


_apart: list[_Apart] = []


@atexit.register
def _leave_all() -> None:
    for each in _apart[:]:
        each.leave()


def _in_forked_child() -> None:
    for each in _apart:
        each.close_in_child()
    _apart.clear()


os.register_at_fork(after_in_child=_in_forked_child)


def _placement(store: dist.Store, rank: int, size: int, name: str, one_host: bool) -> Placement:
    if size == 1:
        return alone(LAUNCHER)
    return Placement(
        rank=rank,
        size=size,
        local_rank=int(os.environ.get("LOCAL_RANK") or 0),
        local_size=0,  # the host map counts the local ranks
        launcher=LAUNCHER,
        one_host=one_host,
        kvs=functools.partial(DefaultStore, store, f"{name}/{size}"),
        job=f"{name}/{size}",
    )


def _all_here(size: int) -> bool:
    """Returns whether all ranks are on this host.

    The launcher's variables count only if they describe the same number of ranks as torch.
    """
    total = str(dist.get_world_size() if dist.is_initialized() else size)
    return os.environ.get("WORLD_SIZE") == os.environ.get("LOCAL_WORLD_SIZE") == total
