"""The time that the host spends in a call, beside torch's own backend in the same process.

The calls alternate. torch's own backend is NCCL, or on the CPU gloo.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from program_context import DEVICE, proved

MOST = 1.15
ROUNDS, WARM = (400, 50) if DEVICE == "cuda" else (40, 5)
SIZES = {8: "8 B", 1 << 20: "1 MiB"}
TORCHS = "nccl" if DEVICE == "cuda" else "gloo"

warnings.simplefilter("ignore", FutureWarning)  # about names that later versions of torch have renamed
if DEVICE == "cuda":
    torch.cuda.set_device(0)
dist.init_process_group("pycollective")
size = dist.get_world_size()
groups = {"ours": dist.group.WORLD, TORCHS: dist.new_group(backend=TORCHS)}


def calls(count: int, group: Any) -> dict[str, Callable[[], Any]]:
    x, many = torch.zeros(count, device=DEVICE), torch.zeros(count * size, device=DEVICE)
    y = torch.zeros(count * size, device=DEVICE)
    return {
        "all_reduce": lambda: dist.all_reduce(x, group=group),
        "broadcast": lambda: dist.broadcast(x, 0, group=group),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(many, x, group=group),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(x, many, group=group),
        "all_to_all_single": lambda: dist.all_to_all_single(y, many, group=group),
    }


def at(share: float, seconds: list[float]) -> float:
    """Returns the quantile in microseconds."""
    return sorted(seconds)[min(int(share * len(seconds)), len(seconds) - 1)] * 1e6


worst, where = 0.0, ""
for nbytes, size_text in SIZES.items():
    both = {owner: calls(nbytes // 4, group) for owner, group in groups.items()}
    for name in both["ours"]:
        took: dict[str, list[float]] = {owner: [] for owner in both}
        for i in range(WARM + ROUNDS):
            for owner in sorted(both, reverse=i % 2 == 0):  # each is the first as often as the other
                began = time.perf_counter()
                both[owner][name]()
                seconds = time.perf_counter() - began
                if i >= WARM:
                    took[owner].append(seconds)
            if i % 10 == 0 and DEVICE == "cuda":
                torch.cuda.synchronize()  # so that no queue of launches is full
        ours, theirs = at(0.5, took["ours"]), at(0.5, took[TORCHS])
        figures = f"p50 {ours:.1f} / {theirs:.1f} us, p99 {at(0.99, took['ours']):.1f} / {at(0.99, took[TORCHS]):.1f}"
        if dist.get_rank() == 0:
            print(f"{name} {size_text}: {figures}, ours / {TORCHS}: {ours / theirs:.2f}", flush=True)
        if ours / theirs > worst:
            worst, where = ours / theirs, f"{name} of {size_text}: {figures}"
dist.barrier()
dist.destroy_process_group()
said = f"{size} rank{'s' * (size > 1)}, ours / {TORCHS}, at most {worst:.2f} times: {where}"
is_judged = DEVICE == "cuda"
assert worst <= MOST or not is_judged, f"more than {MOST}: {said}"
proved(f"{said}{f'; at most: {MOST}' if is_judged else ''}")
