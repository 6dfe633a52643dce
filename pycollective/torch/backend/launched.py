"""init_process_group() under mpirun, mpiexec and srun, which have their own variables.

torch's env:// requires RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. If RANK is missing and init()
recognizes the launcher, the ranks first join a world of ours, through the launcher. The store of
that world then serves as torch's store, so that no address and no port are needed.

Programs choose their GPU by LOCAL_RANK, as torchrun sets it. So LOCAL_RANK and LOCAL_WORLD_SIZE, if
missing, are set while the world exists.
"""

# ruff: noqa: D102  methods of torch's class
from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta

import torch.distributed as dist

from pycollective import _core
from pycollective.runtime import lifetime
from pycollective.runtime.world_variables import set_until_end

__all__ = ["WorldStore", "rendezvous"]

NO_LAUNCHER, EXPLICIT = "single", "by hand"


def rendezvous(timeout: timedelta) -> Iterator[tuple[dist.Store, int, int]] | None:
    """Returns an iterator over store, rank and size, as a rendezvous handler of torch.

    Returns None if no launcher has started this process.
    """
    timeout_s = timeout.total_seconds()
    if lifetime.is_initialized():
        return iter([_next_store(timeout_s)])
    if lifetime.launched_place().launcher == NO_LAUNCHER:
        return None
    _made[:] = [lifetime.become_world(lifetime.launched_place, timeout=timeout_s)]
    return iter([_next_store(timeout_s)])


_made: list[_core.Group] = []  # the world that was made last for torch.distributed
_kept: list[WorldStore] = []  # keeps the Python part of a store alive; C++ holds only the C++ part


def _next_store(timeout_s: float) -> tuple[dist.Store, int, int]:
    world = _core.world()
    if lifetime.launcher() not in (
        NO_LAUNCHER,
        EXPLICIT,
    ):  # otherwise init() would take these variables as incomplete variables of a launcher
        local = {"LOCAL_RANK": str(world.local_rank), "LOCAL_WORLD_SIZE": str(world.local_size)}
        missing = {name: value for name, value in local.items() if name not in os.environ}
        set_until_end(missing, lifetime.at_end)
    # equal on all ranks, because all call init_process_group() equally often
    number = sum(each.world is world for each in _kept)
    _kept[:] = [each for each in _kept if each.world is world]
    prefix = f"torch.distributed/{number}"
    store = WorldStore(
        world, lifetime.native_store(), prefix, timeout_s, is_torchs=any(each is world for each in _made)
    )
    _kept.append(store)
    return store, world.rank, world.size


class WorldStore(dist.Store):
    """The world's store with the interface of torch's Store.

    `is_torchs` is true if the world was made for torch.distributed. Such a world ends with the
    default group.
    """

    def __init__(
        self, world: _core.Group, native: _core.Store, prefix: str, timeout_s: float, *, is_torchs: bool
    ) -> None:
        super().__init__()
        self.world = world
        self.is_torchs = is_torchs
        self._native = native
        self._prefix = prefix
        self._timeout_s = timeout_s

    def _key(self, key: str) -> str:
        return f"{self._prefix}/{key}"

    @property
    def timeout(self) -> timedelta:
        return timedelta(seconds=self._timeout_s)

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout_s = timeout.total_seconds()

    def set(self, key: str, value: str | bytes) -> None:
        self._native.set(self._key(key), _bytes(value), self._timeout_s)

    def get(self, key: str) -> bytes:
        return self._native.get(self._key(key), self._timeout_s)

    def add(self, key: str, value: int) -> int:
        return self._native.add(self._key(key), value, self._timeout_s)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        seconds = self._timeout_s if timeout is None else timeout.total_seconds()
        for key in keys:
            self._native.wait(self._key(key), seconds)

    def check(self, keys: list[str]) -> bool:
        return all(self._native.check(self._key(key), self._timeout_s) for key in keys)

    def deleteKey(self, key: str) -> bool:  # C++ looks up this name, and programs use delete_key
        return self._native.erase(self._key(key), self._timeout_s)

    delete_key = deleteKey

    def has_extended_api(self) -> bool:
        return True

    def clone(self) -> WorldStore:
        return self

    def compareSet(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        return self._native.compare_set(self._key(key), _bytes(expected), _bytes(desired), self._timeout_s)

    compare_set = compareSet

    def append(self, key: str, value: str | bytes) -> None:
        self._native.append(self._key(key), _bytes(value), self._timeout_s)

    def getNumKeys(self) -> int:
        return len(self._native.keys(f"{self._prefix}/", self._timeout_s))

    num_keys = getNumKeys

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: list[str], values: list[str | bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
