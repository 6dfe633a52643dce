"""float64 on one rank and float32 on the other: both ranks refuse that call.

The group stays usable.
"""

from __future__ import annotations

import torch
from program_context import DEVICE, proved

import pycollective as pc

ROUNDS = 3 if DEVICE == "cpu" else 1  # on GPUs the group has then ended for arrays there
pc.init()
rank, size = pc.rank(), pc.size()
total = float(sum(range(size)))
x = torch.ones(1000, device=DEVICE)
pc.allreduce(x)
assert bool((x == size).all()), x

for _ in range(ROUNDS):
    mine = torch.full((1000,), 1.0 + rank, dtype=torch.float64 if rank else torch.float32, device=DEVICE)
    try:
        pc.allreduce_async(mine).wait(host=True)
    except pc.CollectiveMismatch as error:
        words = str(error)
        for word in ("float64", "float32", "different_types.py:"):
            assert word in words, f"{word!r} is not in: {words}"
    else:
        raise AssertionError(f"a sum of float64 and float32 was not refused: {mine[:3].tolist()}")
pc.resync()
for _ in range(2):
    y = torch.full((10,), float(rank))  # a tensor of the host
    pc.allreduce(y)
    assert y.tolist() == [total] * 10, y
pc.shutdown()
proved("CollectiveMismatch with both types and the line of the program on both ranks; the group goes on")
