"""One copy of a dataset per host, in memory that all local ranks map.

The memory is a memfd: it has no name, and the kernel frees it when the last process that maps it
has ended, for whatever reason. The first rank of the host fills and seals it; the other local ranks
open it through /proc/<pid>/fd/<number>. Random bytes at the end of the memory, the mark, prove that
it is the right memory. If containers share a host but not a pid namespace, the pid may be that of
another process. A rank that does not find the mark receives a copy of the data by message instead.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from numpy.lib.format import descr_to_dtype, dtype_to_descr

from pycollective._core import Group
from pycollective.base.advice import advised
from pycollective.base.clock import Clock
from pycollective.data.agreement import check_alike, on_all
from pycollective.errors import InvalidArgument
from pycollective.objects import objects
from pycollective.runtime.lifetime import check_timeout
from pycollective.training.rank0 import alone, members_of

__all__ = ["shared"]

TAG = 0xFFFF_0B22  # tag of the message that carries a copy
MARK_NBYTES = 16
ALIGNMENT = 64  # of each array: a cache line, which also suits vector instructions
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


@advised
def shared(load: Callable[[], Any], *, group: Group | None = None, timeout: float | None = None) -> Any:  # noqa: ANN401
    """Load a dataset once per host: the first local rank calls `load`, the others map its memory.

    All ranks of the group must call it. The arrays are read-only NumPy arrays, and stay valid as
    long as they are referenced. The memory has no name, so nothing is left over when processes are
    killed. Without a world, this process calls `load`.

    Parameters:
        load: returns an array, or a tuple or dict of arrays. They are copied, so the data is
            briefly in memory twice.
        group: the ranks that take part; default the world.
        timeout: seconds for everything, including `load`; default: each wait has the timeout of
            the group.

    Raises:
        InvalidArgument: `load` returns something else, or arrays of Python objects; or `load`
            makes a collective call, which would wait forever.
        CollectiveMismatch: the hosts have loaded arrays of different shapes or types.
        Exception: an exception of `load` on one rank is raised on all ranks.

    Example:
        >>> import numpy as np
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> data = pc.data.shared(lambda: {"x": np.ones((4, 2)), "y": np.arange(4)})
        >>> data["x"].shape, data["x"].flags.writeable
        ((4, 2), False)
        >>> pc.shutdown()
    """
    members = members_of(group)
    if members is None or members.size == 1:
        return _read_only(load())
    check_timeout(timeout)
    clock = Clock(timeout)
    hosts = members._hosts
    leader = hosts.index(hosts[members.rank])
    with contextlib.ExitStack() as until_mapped:
        own: list[mmap.mmap] = []

        def load_first() -> Offer | None:
            if members.rank != leader:
                return None
            with alone("pc.data.shared()"):
                layout, arrays = _laid_out(load())
            mark = secrets.token_bytes(MARK_NBYTES)
            fd = _filled(layout, arrays, mark)
            until_mapped.callback(os.close, fd)
            own.append(_map(fd, layout.nbytes))
            return layout.words(), os.getpid(), fd, mark

        by_rank = on_all(members, "pc.data.shared", load_first, timeout=clock.left_s())
        # for each rank, the offer of the first rank on its host
        offers = cast("list[Offer]", [by_rank[hosts.index(host)] for host in hosts])
        check_alike("pc.data.shared", [{"what was loaded": words} for words, *_ in offers])
        words, pid, fd, mark = offers[members.rank]
        layout = Layout(*words)
        memory = own[0] if own else _mapped(pid, fd, layout.nbytes, mark)
        have_it = objects.allgather_object(members, memory is not None, timeout=clock.left_s())
    if memory is None:
        return layout.arrays_in(_copy_from(members, leader, layout.nbytes, clock.left_s()))
    for rank, has_it in enumerate(have_it):
        if own and not has_it and hosts[rank] == hosts[leader]:
            members.send(np.frombuffer(memory, np.uint8), rank, tag=TAG, timeout=clock.left_s())
    return layout.arrays_in(memory)


Memory: TypeAlias = mmap.mmap | npt.NDArray[np.uint8]
Words: TypeAlias = tuple[str, list[Any], list[Any], list[Any], list[int], int]
# The layout, and the process id, descriptor and mark by which a local rank finds the memory.
Offer: TypeAlias = tuple[Words, int, int, bytes]


@dataclass(frozen=True)
class Layout:
    """The positions of the arrays in the shared memory, in a form that can be sent."""

    container: str  # "dict", "tuple", or "array" for a single array without a container
    keys: list[Any]
    descriptions: list[Any]  # the element type of each array
    shapes: list[Any]
    offsets: list[int]
    nbytes: int

    def words(self) -> Words:
        """Return all fields as a tuple of arguments for Layout()."""
        return self.container, self.keys, self.descriptions, self.shapes, self.offsets, self.nbytes

    def views_of(self, memory: Memory) -> list[npt.NDArray[Any]]:
        """Return the arrays, each as a view of `memory`."""
        rows = zip(self.shapes, self.descriptions, self.offsets, strict=True)
        return [np.ndarray(shape, descr_to_dtype(kind), memory, offset) for shape, kind, offset in rows]

    def arrays_in(self, memory: Memory) -> Any:  # noqa: ANN401
        """Return the arrays of `memory` in their container."""
        return _contained(self.container, self.keys, self.views_of(memory))


def _laid_out(loaded: Any) -> tuple[Layout, list[npt.NDArray[Any]]]:  # noqa: ANN401
    container, keys, arrays = _taken_apart(loaded)
    offsets, end = [], 0
    for array in arrays:
        offsets.append(end)
        end += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    descriptions = [dtype_to_descr(array.dtype) for array in arrays]
    shapes = [array.shape for array in arrays]
    return Layout(container, keys, descriptions, shapes, offsets, end + MARK_NBYTES), arrays


def _filled(layout: Layout, arrays: list[npt.NDArray[Any]], mark: bytes) -> int:
    """Return a descriptor of memory that holds these arrays and is sealed against writes."""
    fd = os.memfd_create("pycollective-data", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        # Raises if memory is short. Otherwise a later write would kill the process by SIGBUS.
        os.posix_fallocate(fd, 0, layout.nbytes)
        _write(layout, arrays, mark, fd)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _write(layout: Layout, arrays: list[npt.NDArray[Any]], mark: bytes, fd: int) -> None:
    """Write the arrays and the mark.

    The last view of the writable mapping is released on return. Sealing requires that no writable
    mapping exists.
    """
    memory = mmap.mmap(fd, layout.nbytes)
    for view, array in zip(layout.views_of(memory), arrays, strict=True):
        view[...] = array
    memory[-MARK_NBYTES:] = mark


def _mapped(pid: int, fd: int, nbytes: int, mark: bytes) -> mmap.mmap | None:
    """Return the memory of another process's descriptor, or None if that is not accessible here."""
    path = f"/proc/{pid}/fd/{fd}"
    try:
        # checked before opening, because opening another kind of file, e.g. a pipe, may block
        facts = os.stat(path)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size != nbytes:
            return None
        here = os.open(path, os.O_RDONLY)
        try:
            memory = _map(here, nbytes)
        finally:
            os.close(here)
    except OSError:
        return None
    return memory if memory[-MARK_NBYTES:] == mark else None


def _map(fd: int, nbytes: int) -> mmap.mmap:
    """Map the memory.

    MAP_PRIVATE is used because old kernels refuse MAP_SHARED for sealed memory. It copies no page,
    because no process writes.
    """
    return mmap.mmap(fd, nbytes, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)


def _copy_from(group: Group, leader: int, nbytes: int, timeout: float | None) -> npt.NDArray[np.uint8]:
    memory = np.empty(nbytes, np.uint8)
    group.recv(memory, leader, tag=TAG, timeout=timeout)
    memory.flags.writeable = False
    return memory


def _read_only(loaded: Any) -> Any:  # noqa: ANN401
    container, keys, arrays = _taken_apart(loaded)
    views = [array.view() for array in arrays]
    for view in views:
        view.flags.writeable = False
    return _contained(container, keys, views)


def _taken_apart(loaded: Any) -> tuple[str, list[Any], list[npt.NDArray[Any]]]:  # noqa: ANN401
    """Return the kind of the container, its keys and its arrays."""
    if isinstance(loaded, Mapping):
        container, keys, members = "dict", list(loaded), list(loaded.values())
    elif isinstance(loaded, tuple):
        container, keys, members = "tuple", [], list(loaded)
    else:
        container, keys, members = "array", [], [loaded]
    if not all(hasattr(member, "shape") for member in members):
        raise InvalidArgument(
            f"pc.data.shared: load() must return an array, or a tuple or dict of arrays, not a {type(loaded).__name__} "
            f"of {sorted({type(member).__name__ for member in members})}"
        )
    if any(isinstance(member, np.ma.MaskedArray) for member in members):
        raise InvalidArgument("pc.data.shared: a masked array would lose its mask: return (x.data, x.mask)")
    arrays = [np.asarray(member) for member in members]
    for array in arrays:
        if array.dtype.hasobject or array.dtype.isbuiltin == 2:  # 2 means a user-defined type
            raise InvalidArgument(f"pc.data.shared: elements of type {array.dtype} cannot be shared")
    return container, keys, arrays


def _contained(container: str, keys: list[Any], arrays: list[npt.NDArray[Any]]) -> Any:  # noqa: ANN401
    if container == "dict":
        return dict(zip(keys, arrays, strict=True))
    return tuple(arrays) if container == "tuple" else arrays[0]
