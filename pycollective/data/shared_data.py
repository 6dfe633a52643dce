"""One copy of a dataset per host, in memory that all its ranks map.

The memory is a memfd: it has no name, and the kernel frees it when the last process that maps it has ended, however it
ends. The first rank of the host fills and seals it; the others open it through /proc/<pid>/fd/<number>. A mark at its
end tells them that it is the right one: where ranks see other processes under the same number (containers that share
a host but not their processes), they get a copy by message instead.
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

TAG = 0xFFFF_0B22  # of a copy
MARK_NBYTES = 16
ALIGNMENT = 64  # a cache line, and what vector instructions want
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


@advised
def shared(load: Callable[[], Any], *, group: Group | None = None, timeout: float | None = None) -> Any:  # noqa: ANN401
    """Load a dataset once per host: its first rank calls `load`, the others map the same memory.

    All ranks of the group must call it. The arrays are read-only NumPy arrays, and live as long as they are used. The
    memory has no name: nothing is left over when processes are killed. Without a world `load` just runs.

    Parameters:
        load: returns an array, or a tuple or dict of arrays, of which a copy is made: for a moment it is there twice.
        group: whose ranks take part; default the world.
        timeout: seconds for all of it, `load` as well; default that of the group for each wait.

    Raises:
        InvalidArgument: `load` returns something else, or arrays of Python objects; or makes a call on several ranks,
            which would wait for ever.
        CollectiveMismatch: the hosts have loaded arrays of other shapes or types.
        Exception: what `load` raises on one rank is raised on all.

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
        offers = cast("list[Offer]", [by_rank[hosts.index(host)] for host in hosts])  # of each rank's leader
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
# What there is; the process, the descriptor and the mark by which it is found.
Offer: TypeAlias = tuple[Words, int, int, bytes]


@dataclass(frozen=True)
class Layout:
    """Which arrays lie where in the memory, in words that travel."""

    container: str  # "dict", "tuple", or "array" for one without a container
    keys: list[Any]
    descriptions: list[Any]  # of the element types
    shapes: list[Any]
    offsets: list[int]
    nbytes: int

    def words(self) -> Words:
        """All of it, as arguments for another Layout."""
        return self.container, self.keys, self.descriptions, self.shapes, self.offsets, self.nbytes

    def views_of(self, memory: Memory) -> list[npt.NDArray[Any]]:
        """The arrays, each a view."""
        rows = zip(self.shapes, self.descriptions, self.offsets, strict=True)
        return [np.ndarray(shape, descr_to_dtype(kind), memory, offset) for shape, kind, offset in rows]

    def arrays_in(self, memory: Memory) -> Any:  # noqa: ANN401
        """The arrays in their container."""
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
    """A descriptor of memory with these arrays, which nobody can write any more."""
    fd = os.memfd_create("pycollective-data", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(fd, 0, layout.nbytes)  # raises where there is no room; writing would be killed
        _write(layout, arrays, mark, fd)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _write(layout: Layout, arrays: list[npt.NDArray[Any]], mark: bytes, fd: int) -> None:
    """What can be written is unmapped when this returns, with the last view of it: else there is no sealing."""
    memory = mmap.mmap(fd, layout.nbytes)
    for view, array in zip(layout.views_of(memory), arrays, strict=True):
        view[...] = array
    memory[-MARK_NBYTES:] = mark


def _mapped(pid: int, fd: int, nbytes: int, mark: bytes) -> mmap.mmap | None:
    """That descriptor's memory, if this process can see it."""
    path = f"/proc/{pid}/fd/{fd}"
    try:
        facts = os.stat(path)  # first: to open what is something else, a pipe say, might wait
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
    """The pages themselves: nobody writes, so MAP_PRIVATE copies none. Old kernels refuse MAP_SHARED when sealed."""
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
    """The kind of container, its keys and its arrays."""
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
        if array.dtype.hasobject or array.dtype.isbuiltin == 2:  # 2: a type that NumPy knows from elsewhere
            raise InvalidArgument(f"pc.data.shared: elements of type {array.dtype} cannot be shared")
    return container, keys, arrays


def _contained(container: str, keys: list[Any], arrays: list[npt.NDArray[Any]]) -> Any:  # noqa: ANN401
    if container == "dict":
        return dict(zip(keys, arrays, strict=True))
    return tuple(arrays) if container == "tuple" else arrays[0]
