"""NumPy on one rank and a tensor on another: every rank gets the result, or refuses that call.

The group stays usable.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from program_context import DEVICE, RANK, proved

import pycollective as pc


def on_host() -> Any:
    return np.arange(1000, dtype=np.float32) + RANK


def values(x: Any) -> Any:
    return x if isinstance(x, np.ndarray) else x.cpu().numpy()


def is_refused(host_rank: int) -> bool:
    """Runs in a world of its own, which may accept no arrays of a GPU after the refusal."""
    pc.init()
    rank, size = pc.rank(), pc.size()
    wanted = np.arange(1000, dtype=np.float32) * size + sum(range(size))
    x = on_host() if rank == host_rank else torch.from_numpy(on_host()).to(DEVICE)
    try:
        pc.allreduce_async(x).wait(host=True)
        assert np.array_equal(values(x), wanted), (host_rank, x)
        refused = False
    except pc.CollectiveMismatch:
        refused = True
        pc.resync()
    assert pc.allgather_object(refused) == [refused] * size, "one rank was refused and another was not"
    x = on_host()
    pc.allreduce(x)
    assert np.array_equal(x, wanted), x
    pc.shutdown()
    return refused


refusals = [is_refused(host_rank) for host_rank in (0, 1)]
if DEVICE == "cpu":
    assert refusals == [False, False], refusals
how = ["right", "refused on all ranks"]
said = ", ".join(f"on rank {rank}: {how[refused]}" for rank, refused in enumerate(refusals))
proved(f"an array of the host beside one of {DEVICE}, {said}; the group goes on with arrays of the host")
