"""A program that never waits on the host gets no wrong number from a call with a mismatch."""

from __future__ import annotations

import math

import torch
from program_context import DEVICE, proved

import pycollective as pc

pc.init()
rank = pc.rank()
x = torch.ones(1000, device=DEVICE)
pc.allreduce(x)
y = torch.full((1000,), 1.0 + rank, dtype=torch.float64 if rank else torch.float32, device=DEVICE)
how = ""
try:
    pc.allreduce(y)
    number = float(y.sum())  # the program reads its result at once
    assert math.isnan(number), f"a wrong number was handed out without a word: {number}"
    how = "NaN, and the error comes with the next call"
    pc.allreduce(x)
    float(x.sum())
    pc.allreduce(x)
    raise AssertionError("two more calls, and none says that the one before was wrong")
except pc.CollectiveMismatch:
    how = how or "the call itself is refused"
pc.resync()
pc.shutdown()
proved(f"float64 beside float32, read at once: {how}")
