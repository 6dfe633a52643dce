"""One program for every launcher: `pycollective run`, torchrun, mpirun, mpiexec, srun.

Prints its rank, or fails.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np

import pycollective as pc

started = time.perf_counter()
pc.init()
took_ms = (time.perf_counter() - started) * 1e3
rank, size = pc.rank(), pc.size()

x = np.arange(1000, dtype=np.int64) + rank
pc.allreduce(x)
wanted = size * np.arange(1000, dtype=np.int64) + size * (size - 1) // 2
assert np.array_equal(x, wanted), f"rank {rank}: the sum is wrong"

places = np.zeros((size, 3), dtype=np.int64)
places[rank] = pc.local_rank(), pc.local_size(), os.getpid()
local_ranks, local_sizes, pids = pc.allreduce(places).T
assert all(0 <= local < count <= size for local, count in zip(local_ranks, local_sizes, strict=True))
assert len(set(pids.tolist())) == size, "one process is two ranks"
if os.environ.get("FAIL_RANK") == str(rank):
    raise RuntimeError("this rank was asked to fail")
sys.stdout.write(
    f"rank {rank} of {size}, local {pc.local_rank()} of {pc.local_size()}, init {took_ms:.0f} ms\n"
)
sys.stdout.flush()
pc.shutdown()
