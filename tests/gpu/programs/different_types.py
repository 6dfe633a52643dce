"""float64 on one rank and float32 on the other: refused on both in that call, and the next call is right."""

from __future__ import annotations

import math

import torch
from here import BY_NCCL, DEVICE, proved

import pycollective as pc

pc.init()
rank, size = pc.rank(), pc.size()
total = float(sum(range(size)))


def mine() -> torch.Tensor:
    return torch.full((1000,), 1.0 + rank, dtype=torch.float64 if rank else torch.float32, device=DEVICE)


x = torch.ones(1000, device=DEVICE)
pc.allreduce(x)
for _ in range(1 if BY_NCCL else 3):  # by NCCL the group has ended for arrays on GPUs then
    try:
        pc.allreduce_async(mine()).wait(host=True)
    except pc.CollectiveMismatch as error:
        words = str(error)
        assert "float64" in words, words
        assert "float32" in words, words
        assert "different_types.py:" in words, words
    else:
        raise AssertionError("a sum of float64 and float32 was not refused")
pc.resync()
y = torch.full((10,), float(rank))
pc.allreduce(y)
assert y.tolist() == [total] * 10, y
if not BY_NCCL:
    y = y.to(DEVICE)
    pc.allreduce(y)
    assert y.tolist() == [total * size] * 10, y
    z = mine()
    try:
        pc.allreduce(z)
        handed_out = float(z.sum())
        assert math.isnan(handed_out), f"a wrong number was handed out without a word: {handed_out}"
    except pc.CollectiveMismatch:
        pass
pc.shutdown()
proved("CollectiveMismatch with both types and the line of the program on both ranks; the group goes on")
