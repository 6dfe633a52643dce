"""A rank is killed by kill -9 while another waits for it: the waiting rank soon gets its number."""

from __future__ import annotations

import os
import signal
import time

import torch
from program_context import DEVICE, proved

import pycollective as pc

SOON_S = 1.0
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # when a rank dies the launcher stops the other ranks

pc.init()
x = torch.ones(1000, device=DEVICE)
pc.allreduce(x)
if DEVICE == "cuda":
    torch.cuda.synchronize()
pc.barrier()
if pc.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
began = time.monotonic()
try:
    pc.allreduce_async(x, timeout=20).wait(host=True)
except pc.PeerFailure as failure:
    seconds = time.monotonic() - began
    assert failure.peer == 1, failure
    assert "rank 1" in str(failure), failure
else:
    raise AssertionError("a rank that is dead has taken part")
assert seconds < SOON_S, f"heard after {seconds:.2f} s"
try:
    pc.barrier()
except pc.PeerFailure as failure:
    assert failure.peer == 1, failure
    proved(f"heard after {seconds * 1e3:.0f} ms, and again in the next call: rank 1 is named")
pc.shutdown()
