"""Any MPI library, by the buffer methods of mpi4py."""

from __future__ import annotations

from typing import Any


class Adapter:
    lacks = frozenset[str]()

    def __init__(self, spec: dict[str, Any]) -> None:
        del spec
        import mpi4py

        mpi4py.rc.threads = False  # a single thread makes calls, so MPI needs no locks
        from mpi4py import MPI

        self.mpi, self.world = MPI, MPI.COMM_WORLD
        self.rank, self.size = self.world.rank, self.world.size
        words = MPI.Get_library_version().strip("\0 \n").splitlines()[0].split(",")[0].split()
        self.version = " ".join(words)

    def wrap(self, array: Any) -> Any:
        return [array, self.mpi.FLOAT]

    def cut(self, whole: Any) -> Any:
        return whole

    def allreduce(self, x: Any) -> object:
        return self.world.Allreduce(self.mpi.IN_PLACE, x)

    def broadcast(self, x: Any, root: int) -> object:
        return self.world.Bcast(x, root)

    def reduce(self, x: Any, root: int) -> object:
        if root == self.rank:
            return self.world.Reduce(self.mpi.IN_PLACE, x, root=root)
        return self.world.Reduce(x, None, root=root)

    def allgather(self, part: Any, whole: Any) -> object:
        return self.world.Allgather(part, whole)

    def reduce_scatter(self, whole: Any, part: Any) -> object:
        return self.world.Reduce_scatter_block(whole, part)

    def alltoall(self, whole: Any, out: Any) -> object:
        return self.world.Alltoall(whole, out)

    def gather(self, part: Any, cut: Any, root: int) -> object:
        return self.world.Gather(part, cut if root == self.rank else None, root)

    def scatter(self, cut: Any, part: Any, root: int) -> object:
        return self.world.Scatter(cut if root == self.rank else None, part, root)

    def scan(self, x: Any) -> object:
        return self.world.Scan(self.mpi.IN_PLACE, x)

    def exscan(self, x: Any) -> object:
        return self.world.Exscan(self.mpi.IN_PLACE, x)

    def send(self, x: Any, to: int) -> object:
        return self.world.Send(x, to)

    def recv(self, x: Any, source: int) -> object:
        return self.world.Recv(x, source)

    def barrier(self) -> object:
        return self.world.Barrier()

    def close(self) -> None:
        self.world.Barrier()
