"""The calls of torch.distributed on whole tensors, also of different sizes; messages in a ring."""

from __future__ import annotations

import torch
import torch.distributed as dist
from program_context import DEVICE, proved

dist.init_process_group("pycollective")
rank, size = dist.get_rank(), dist.get_world_size()
total = float(sum(range(size)))

whole = torch.zeros(4 * size, device=DEVICE)
dist.all_gather_into_tensor(whole, torch.full((4,), float(rank), device=DEVICE))
assert whole.tolist() == [float(each) for each in range(size) for _ in range(4)], whole

part = torch.zeros(4, device=DEVICE)
work = dist.reduce_scatter_tensor(part, torch.arange(4.0 * size, device=DEVICE) + rank, async_op=True)
work.wait()
assert part.tolist() == [size * (4.0 * rank + each) + total for each in range(4)], part
dist.reduce_scatter_tensor(part, torch.arange(4.0 * size, device=DEVICE) + rank, op=dist.ReduceOp.AVG)
assert part.tolist() == [4.0 * rank + each + total / size for each in range(4)], part

swapped = torch.zeros(2 * size, device=DEVICE)
dist.all_to_all_single(swapped, torch.arange(2.0 * size, device=DEVICE) + 100 * rank)
assert swapped.tolist() == [100.0 * each + 2 * rank + place for each in range(size) for place in (0, 1)], (
    swapped
)

sent = [rank + other + 1 for other in range(size)]  # row i is sent to rank i, and the rows differ in length
uneven = torch.zeros(sum(sent), device=DEVICE)
rows = torch.cat(
    [torch.full((count,), 10.0 * rank + other, device=DEVICE) for other, count in enumerate(sent)]
)
dist.all_to_all_single(uneven, rows, sent, sent)
assert uneven.tolist() == [10.0 * other + rank for other, count in enumerate(sent) for _ in range(count)], (
    uneven
)

got = torch.zeros(1 << 18, device=DEVICE)
mine = torch.full((1 << 18,), float(rank), device=DEVICE)
calls = [dist.P2POp(dist.isend, mine, (rank + 1) % size), dist.P2POp(dist.irecv, got, (rank - 1) % size)]
for each in dist.batch_isend_irecv(calls):
    each.wait()
assert bool((got == (rank - 1) % size).all()), got

scattered = torch.zeros(3, device=DEVICE)
rows_of_all = [torch.full((3,), 5.0 + each, device=DEVICE) for each in range(size)]
dist.scatter(scattered, rows_of_all if rank == 0 else None, src=0)
assert scattered.tolist() == [5.0 + rank] * 3, scattered
dist.reduce(scattered, dst=size - 1, op=dist.ReduceOp.MAX)
assert rank != size - 1 or scattered.tolist() == [4.0 + size] * 3, scattered
dist.barrier()
dist.destroy_process_group()
proved(
    "all_gather_into_tensor, reduce_scatter_tensor, all_to_all_single also uneven, messages, scatter, reduce"
)
