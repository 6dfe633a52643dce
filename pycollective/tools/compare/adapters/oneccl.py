"""oneCCL's C API on host memory, by ctypes. The ranks connect by MPI.

oneCCL has no barrier, so MPI's is used. oneCCL has no gather, scatter and scan, and its send and
receive do not accept host memory.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

FLOAT32, SUM = 7, 0  # values of onecclFloat32 and onecclSum in oneapi/ccl.h


class _Id(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char * 4096)]


class Adapter:
    lacks = frozenset({"gather", "scatter", "scan", "exscan", "sendrecv"})

    def __init__(self, spec: dict[str, Any]) -> None:
        del spec
        from mpi4py import MPI

        self.world = MPI.COMM_WORLD
        self.rank, self.size, self.version = self.world.rank, self.world.size, "C API, host memory"
        self.library = ctypes.CDLL(str(Path(sys.prefix) / "lib" / "libccl.so.2"))
        self.group = ctypes.c_void_p()
        unique = _Id()
        if self.rank == 0:
            self.expect_success(self.library.onecclGetUniqueId(ctypes.byref(unique)))
        unique_bytes: bytes = self.world.bcast(bytes(unique), 0)
        ctypes.memmove(ctypes.byref(unique), unique_bytes, len(unique_bytes))
        self.library.onecclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_size_t, _Id, ctypes.c_int]
        self.expect_success(
            self.library.onecclCommInitRank(ctypes.byref(self.group), self.size, unique, self.rank)
        )

    @staticmethod
    def expect_success(code: int) -> None:
        if code != 0:
            raise RuntimeError(f"oneCCL returned {code}")

    def wrap(self, array: Any) -> Any:
        return ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.size)

    def cut(self, whole: Any) -> Any:
        return whole

    def allreduce(self, x: Any) -> object:
        return self.expect_success(
            self.library.onecclAllReduce(x[0], x[0], x[1], FLOAT32, SUM, self.group, None)
        )

    def broadcast(self, x: Any, root: int) -> object:
        return self.expect_success(
            self.library.onecclBroadcast(x[0], x[0], x[1], FLOAT32, root, self.group, None)
        )

    def reduce(self, x: Any, root: int) -> object:
        return self.expect_success(
            self.library.onecclReduce(x[0], x[0], x[1], FLOAT32, SUM, root, self.group, None)
        )

    def allgather(self, part: Any, whole: Any) -> object:
        return self.expect_success(
            self.library.onecclAllGather(part[0], whole[0], part[1], FLOAT32, self.group, None)
        )

    def reduce_scatter(self, whole: Any, part: Any) -> object:
        return self.expect_success(
            self.library.onecclReduceScatter(whole[0], part[0], part[1], FLOAT32, SUM, self.group, None)
        )

    def alltoall(self, whole: Any, out: Any) -> object:
        each = ctypes.c_size_t(whole[1].value // self.size)
        return self.expect_success(
            self.library.onecclAllToAll(whole[0], out[0], each, FLOAT32, self.group, None)
        )

    def barrier(self) -> object:
        return self.world.Barrier()

    def close(self) -> None:
        self.world.Barrier()
