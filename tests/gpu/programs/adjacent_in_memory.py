"""Lists of tensors that are adjacent, apart or in another order are right, and nothing between."""

from __future__ import annotations

import torch
from program_context import DEVICE, proved

import pycollective as pc

pc.init()
rank, size = pc.rank(), pc.size()
total = float(sum(range(size)))


def fresh() -> torch.Tensor:
    return torch.arange(120.0, device=DEVICE) + rank


before, summed = fresh().cpu(), torch.arange(120.0) * size + total
lists = {
    "adjacent": [(0, 16), (16, 48), (48, 64)],
    "backwards": [(48, 64), (16, 48), (0, 16)],
    "with gaps": [(0, 10), (20, 21), (64, 100)],
    "all of it": [(0, 120)],
    "an empty one": [(0, 5), (5, 5), (5, 30)],
}
for name, places in lists.items():
    for background in (False, True):
        x = fresh()
        parts = [x[begin:end] for begin, end in places]
        if background:
            pc.allreduce_async(parts).wait(host=True)
        else:
            assert pc.allreduce(parts) is parts
        wanted = before.clone()
        for begin, end in places:
            wanted[begin:end] = summed[begin:end]
        assert torch.equal(x.cpu(), wanted), (name, background, x)
        pc.broadcast(parts, root=size - 1)
        pc.allreduce(parts, "max")
        assert torch.equal(x.cpu(), wanted), (name, background, x)
apart = [torch.full((count,), float(count + rank), device=DEVICE) for count in (1, 7, 1000)]
separate = {"a": apart[0], "b": (apart[1], apart[2])}
pc.allreduce(separate)
assert [float(each.max()) for each in apart] == [count * size + total for count in (1, 7, 1000)], apart
rows = torch.arange(12.0, device=DEVICE).view(3, 4) + rank
columns = [rows[:, 0], rows[:, 2]]  # adjacent tensors that interleave
pc.allreduce(columns)
assert rows[0].tolist() == [total, 1.0 + rank, 2.0 * size + total, 3.0 + rank], rows
pc.shutdown()
proved(
    f"{len(lists)} ways to lie in one block, in line and in the background, allocations apart, columns of a matrix"
)
