"""pycollective on NumPy arrays."""

from __future__ import annotations

from typing import Any


class Adapter:
    lacks = frozenset[str]()

    def __init__(self, spec: dict[str, Any]) -> None:
        del spec
        import pycollective as pc

        pc.init()
        self.pc, self.rank, self.size, self.version = pc, pc.rank(), pc.size(), pc.__version__

    def wrap(self, array: Any) -> Any:
        return array

    def cut(self, whole: Any) -> Any:
        return whole

    def allreduce(self, x: Any) -> object:
        return self.pc.allreduce(x)

    def broadcast(self, x: Any, root: int) -> object:
        return self.pc.broadcast(x, root)

    def reduce(self, x: Any, root: int) -> object:
        return self.pc.reduce(x, root=root)

    def allgather(self, part: Any, whole: Any) -> object:
        return self.pc.allgather(part, out=whole)

    def reduce_scatter(self, whole: Any, part: Any) -> object:
        return self.pc.reduce_scatter(whole, out=part)

    def alltoall(self, whole: Any, out: Any) -> object:
        return self.pc.alltoall(whole, out=out)

    def gather(self, part: Any, cut: Any, root: int) -> object:
        return self.pc.gather(part, root, out=cut if root == self.rank else None)

    def scatter(self, cut: Any, part: Any, root: int) -> object:
        return self.pc.scatter(cut if root == self.rank else None, root, out=part)

    def scan(self, x: Any) -> object:
        return self.pc.scan(x)

    def exscan(self, x: Any) -> object:
        return self.pc.exscan(x)

    def send(self, x: Any, to: int) -> object:
        return self.pc.send(x, to)

    def recv(self, x: Any, source: int) -> object:
        return self.pc.recv(x, source)

    def barrier(self) -> None:
        self.pc.barrier()

    def close(self) -> None:
        self.pc.shutdown()
