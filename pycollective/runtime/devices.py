"""The device on which this rank's framework should compute."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from typing import Any

from pycollective import _core

__all__ = ["device", "make_default"]

PADDLES_OWN = "gpu:0"  # the device that Paddle reports if the program has chosen none


def device() -> str:
    """Return the device of this rank: "cuda:0", "cuda:1", ... by local rank, or "cpu" without GPUs.

    Use it as `torch.device(pc.device())` or `model.to(pc.device())`. The GPUs of a host are
    assigned to its ranks round-robin: if there are more ranks than GPUs, several ranks share one.
    The call does not initialize CUDA, so the process may still fork.

    The result is "cpu" if the program has imported a torch that is built without CUDA.
    CUDA_VISIBLE_DEVICES and `pycollective run --gpus` are respected.

    Raises:
        NotInitialized: there is no world: a process has no local rank before init().

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> pc.device().partition(":")[0] in ("cpu", "cuda")
        True
        >>> pc.shutdown()
    """
    number = _gpu_of(_local_rank())
    return "cpu" if number is None else f"cuda:{number}"


def make_default() -> None:
    """Make device() the default device of torch and Paddle, if they are loaded.

    This does not initialize CUDA. When torch does so later, it counts the visible GPUs and sets the
    device. A device that the program has chosen is kept.
    """
    torch, paddle = sys.modules.get("torch"), sys.modules.get("paddle")
    if torch is None and paddle is None:
        return
    local_rank = _local_rank()
    number = _gpu_of(local_rank)
    if number is None:
        return
    if torch is not None and not torch.cuda.is_initialized():
        torch.cuda._lazy_call(lambda: _begin_on_gpu(torch, local_rank))
    places = getattr(paddle, "device", None)
    if places is not None and places.is_compiled_with_cuda() and places.get_device() == PADDLES_OWN:
        places.set_device(f"gpu:{number}")


def _local_rank() -> int:
    return _core.world().local_rank


def _begin_on_gpu(torch: Any, local_rank: int) -> None:  # noqa: ANN401
    """Set this rank's GPU. torch calls this after initializing CUDA, maybe after shutdown()."""
    number = _gpu_of(local_rank)
    if number is not None and number < torch.cuda.device_count():
        torch.cuda.set_device(number)


def _gpu_of(local_rank: int) -> int | None:
    """Return the GPU of a local rank (round-robin), or None if there is none."""
    count = visible_gpus()
    return local_rank % count if count else None


def visible_gpus() -> int:
    """Return how many GPUs this process may use."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.version.cuda is None:
        return 0
    present = _present()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return present if named is None or not present else _usable(named.split(","), present)


def gpus_of(names: Sequence[str] | None) -> int:
    """Return how many GPUs a process sees if CUDA_VISIBLE_DEVICES has `names` (None: unset)."""
    present = _present()
    return present if names is None or not present else _usable(names, present)


def _present() -> int:
    """Count the GPUs with the driver's management library, which does not initialize CUDA."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:  # no driver is installed
        return 0
    if library.nvmlInit_v2() != 0:
        return 0
    count = ctypes.c_uint(0)
    failed = library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    library.nvmlShutdown()
    return 0 if failed else count.value


def _usable(names: Sequence[str], present: int) -> int:
    """Return how many of these GPUs CUDA shows: those before the first unknown number or UUID."""
    for place, name in enumerate(map(str.strip, names)):
        known = int(name) < present if name.isdecimal() else name.startswith(("GPU-", "MIG-"))
        if not known:
            return place
    return len(names)
