"""`pycollective doctor --gpu`: the driver, GPUs, kernels and NCCL that this process can use."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pycollective.tools.doctor.check_result import CheckResult, fail, ok, warn

GIB = 1 << 30
DRIVER = "install NVIDIA's driver, give the container its GPUs (docker --gpus all), or name it in PYCOLLECTIVE_CUDA_LIB"
LIBRARY = "pip install nvidia-nccl-cu13 (with CUDA 12: nvidia-nccl-cu12), or name it in PYCOLLECTIVE_NCCL_LIB"
ONE_LIBRARY = (
    "uninstall the wheels that no framework needs, or name the framework's own in PYCOLLECTIVE_NCCL_LIB"
)

BLOCKING = {
    "0": "NCCL starts a thread for every call, which takes 15 times as long",
    "1": "a rank that waits for others to join does so inside NCCL, where only an abort ends it",
}


def driver(facts: Mapping[str, Any]) -> list[CheckResult]:
    """Returns a line for the driver, and one for each GPU."""
    if "why_not" in facts:
        return [fail("CUDA driver", facts["why_not"], DRIVER)]
    lines = [ok("CUDA driver", f"CUDA {facts['version']} from {facts['path']}")]
    for number, device in enumerate(facts["devices"]):
        major, minor = device["capability"]
        found = (
            f"{device['name']}, {device['total_nbytes'] / GIB:.0f} GiB, compute capability {major}.{minor}"
        )
        peers = ", ".join(map(str, device["peers"]))
        found += f", {device['pci_bus_id']}, {device['uuid']}"
        if len(facts["devices"]) > 1:
            found += f", reaches the memory of {peers or 'no other'}"
        lines.append(ok(f"GPU {number}", found))
    return lines


def kernels(targets: Sequence[str]) -> CheckResult:
    """Returns the GPU architectures for which this build has reduction kernels."""
    without = "none: built without nvcc; ranks that share a GPU reduce through the host"
    return ok("GPU kernels", f"for {', '.join(targets)}" if targets else without)


def nccl(facts: Mapping[str, Any]) -> list[CheckResult]:
    """Returns the NCCL library that would be used, and those that were skipped."""
    if "why_not" in facts:
        return [fail("NCCL", facts["why_not"], LIBRARY)]
    lines = [ok("NCCL", f"{facts['version']} from {facts['path']} ({facts['how']})")]
    for how, path, why in facts["tried"]:
        lines.append(ok("NCCL, passed over", f"{path} ({how}): {why}"))
    if facts["warning"]:
        lines.append(warn("NCCL", facts["warning"], ONE_LIBRARY))
    setting = os.environ.get("NCCL_COMM_BLOCKING", "")
    if setting in BLOCKING:
        found = f"NCCL_COMM_BLOCKING={setting}: {BLOCKING[setting]}"
        lines.append(warn("NCCL", found, "unset NCCL_COMM_BLOCKING"))
    return lines
