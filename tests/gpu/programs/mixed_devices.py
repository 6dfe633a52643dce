"""NumPy on one rank and a tensor on another: done right or refused, on every rank in that call; the group goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from here import DEVICE, proved

import pycollective as pc

pc.init()
rank, size = pc.rank(), pc.size()
total = float(sum(range(size)))
on_host = np.arange(1000, dtype=np.float32) + rank
wanted = np.arange(1000, dtype=np.float32) * size + total


def mine(host_rank: int) -> Any:
    return on_host.copy() if rank == host_rank else torch.from_numpy(on_host.copy()).to(DEVICE)


def values(x: Any) -> Any:
    return x if isinstance(x, np.ndarray) else x.cpu().numpy()


refusals = []
for host_rank in (0, 1):
    x = mine(host_rank)
    try:
        pc.allreduce_async(x).wait(host=True)
        refused = False
        assert np.array_equal(values(x), wanted), (host_rank, x)
    except pc.CollectiveMismatch:
        refused = True
    assert pc.allgather_object(refused) == [refused] * size, "one rank was refused and another was not"
    refusals.append(refused)
    x = on_host.copy()
    pc.allreduce(x)
    assert np.array_equal(x, wanted), x
if DEVICE == "cpu":
    assert refusals == [False, False]
if not any(refusals):
    x = torch.from_numpy(on_host.copy()).to(DEVICE)
    pc.allreduce(x)
    assert np.array_equal(values(x), wanted), x
pc.shutdown()
proved(
    f"an array of the host beside one of {DEVICE}: {'refused on all ranks' if any(refusals) else 'right'}; then right"
)
