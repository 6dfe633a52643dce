"""What the figures were made on: GPU, driver, NCCL and the versions of the packages."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

PACKAGES = (
    "pycollective",
    "torch",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "cupy",
    "numpy",
    "nvidia-nccl-cu13",
    "nvidia-nccl-cu12",
)
ASK_S = 15.0


@functools.cache  # the machine does not change, and is described after every part
def said(*command: str) -> str:
    """Returns the output of a command, or "" if there is none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def versions(site: Path) -> str:
    found: dict[str, str] = {}
    for path in ([str(site)], sys.path):
        for name in PACKAGES:
            for each in importlib.metadata.distributions(name=name, path=path):
                found.setdefault(name, each.version)
    return ", ".join([f"Python {platform.python_version()}", *(f"{k} {v}" for k, v in found.items())])


def nccl_of_python() -> str | None:
    """Returns the library of NVIDIA's wheel, which a program outside Python would not find."""
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except (ImportError, ValueError):
        return None
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    libraries = [Path(folder) / "lib" / "libnccl.so.2" for folder in folders]
    return next((str(each) for each in libraries if each.exists()), None)


def nccl_in(logs: str) -> str:
    """Returns which NCCL the benchmark has used, according to its output."""
    found = re.search(r'"nccl_version": "([^"]+)"', logs)
    return found.group(1) if found else "none was used"


def describe(site: Path, logs: str) -> list[str]:
    smi = said("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    cuda = re.search(r"CUDA Version: *([\d.]+)", said("nvidia-smi"))
    return [
        f"GPU: {smi.replace(chr(10), '; ') or 'none that nvidia-smi shows'}"
        + (f", CUDA {cuda.group(1)}" if cuda else ""),
        f"NCCL: {nccl_in(logs)}",
        f"versions: {versions(site)}",
        f"host: Linux {platform.release()}, {os.cpu_count()} cores",
    ]
