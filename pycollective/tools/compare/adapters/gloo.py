"""torch.distributed's gloo on CPU tensors. gloo has no scan."""

from __future__ import annotations

import os
from typing import Any


class Adapter:
    lacks = frozenset({"scan", "exscan"})

    def __init__(self, spec: dict[str, Any]) -> None:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        self.torch, self.dist = torch, dist
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.version = f"torch {torch.__version__}"
        dist.init_process_group(
            "gloo", init_method=f"file://{spec['folder']}/rendezvous", rank=self.rank, world_size=self.size
        )

    def wrap(self, array: Any) -> Any:
        return self.torch.from_numpy(array)

    def cut(self, whole: Any) -> Any:
        return list(whole.chunk(self.size))

    def allreduce(self, x: Any) -> object:
        return self.dist.all_reduce(x)

    def broadcast(self, x: Any, root: int) -> object:
        return self.dist.broadcast(x, root)

    def reduce(self, x: Any, root: int) -> object:
        return self.dist.reduce(x, root)

    def allgather(self, part: Any, whole: Any) -> object:
        return self.dist.all_gather_into_tensor(whole, part)

    def reduce_scatter(self, whole: Any, part: Any) -> object:
        return self.dist.reduce_scatter_tensor(part, whole)

    def alltoall(self, whole: Any, out: Any) -> object:
        return self.dist.all_to_all_single(out, whole)

    def gather(self, part: Any, cut: Any, root: int) -> object:
        return self.dist.gather(part, cut if root == self.rank else None, root)

    def scatter(self, cut: Any, part: Any, root: int) -> object:
        return self.dist.scatter(part, cut if root == self.rank else None, root)

    def send(self, x: Any, to: int) -> object:
        return self.dist.send(x, to)

    def recv(self, x: Any, source: int) -> object:
        return self.dist.recv(x, source)

    def barrier(self) -> object:
        return self.dist.barrier()

    def close(self) -> None:
        self.dist.barrier()
        self.dist.destroy_process_group()
