"""Groups of some ranks, which overlap, are used at the same time and have ranks of their own."""

from __future__ import annotations

import torch
import torch.distributed as dist
from program_context import DEVICE, proved

dist.init_process_group("pycollective")
rank, size = dist.get_rank(), dist.get_world_size()
members = [[0, 1], [1, 2], [0, 2], [1]]  # three overlap in a ring
groups = [dist.new_group(each) for each in members]
for rounds in range(3):
    works, sums = [], []
    for ranks, group in zip(members, groups, strict=True):
        if rank not in ranks:
            continue
        x = torch.full((100,), float(10**rank + rounds), device=DEVICE)
        works.append(dist.all_reduce(x, group=group, async_op=True))
        sums.append((x, float(sum(10**each + rounds for each in ranks)), ranks))
    all_ranks = torch.full((3,), 10.0**rank, device=DEVICE)
    dist.all_reduce(all_ranks)
    assert all_ranks.tolist() == [111.0] * 3, all_ranks
    for work in works:
        work.wait()
    for x, wanted, ranks in sums:
        assert bool((x == wanted).all()), (ranks, wanted, x)
for ranks, group in zip(members, groups, strict=True):
    if rank in ranks:
        assert dist.get_rank(group) == ranks.index(rank)
        x = torch.tensor([float(rank)], device=DEVICE)
        dist.broadcast(x, src=ranks[-1], group=group)
        assert x.tolist() == [float(ranks[-1])], (ranks, x)
        parts = [torch.zeros(2, device=DEVICE) for _ in ranks]
        dist.all_gather(parts, torch.full((2,), float(rank), device=DEVICE), group=group)
        assert [part.tolist() for part in parts] == [[float(each)] * 2 for each in ranks], (ranks, parts)
dist.barrier()
dist.destroy_process_group()
proved(f"{len(members)} groups of {size} ranks, all under way at once, with all ranks' between them")
