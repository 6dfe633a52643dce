"""The device on which this rank's framework shall compute."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from typing import Any

from pycollective import _core

__all__ = ["device", "make_default"]

PADDLES_OWN = "gpu:0"  # where Paddle computes if the program has chosen nothing


def device() -> str:
    """Name the device of this rank: "cuda:0", "cuda:1", ... by its local rank, or "cpu" where there is no GPU.

    `torch.device(pc.device())`, `model.to(pc.device())`. Ranks of one host take their GPUs in turn; if there are more
    ranks than GPUs, several share one. CUDA is not initialized by the question, so processes may still be forked.

    It is "cpu" if the program has imported a torch that is built without CUDA. CUDA_VISIBLE_DEVICES counts, and so does
    `pycollective run --gpus`.

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
    """Makes device() the one on which torch and Paddle compute where the program names none, if they are loaded.

    This does not initialize CUDA. Where torch has not initialized it yet, torch sets the device as the first thing when
    it does, and counts the GPUs that are visible then. A device that the program has chosen stays.
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
    """Called by torch when it has initialized CUDA, maybe long after init(), and after shutdown()."""
    number = _gpu_of(local_rank)
    if number is not None and number < torch.cuda.device_count():
        torch.cuda.set_device(number)


def _gpu_of(local_rank: int) -> int | None:
    """Ranks of a host take its GPUs in turn."""
    count = visible_gpus()
    return local_rank % count if count else None


def visible_gpus() -> int:
    """How many GPUs this process may use."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.version.cuda is None:
        return 0
    present = _present()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return present if named is None or not present else _usable(named.split(","), present)


def gpus_of(names: Sequence[str] | None) -> int:
    """How many GPUs a process sees with these in CUDA_VISIBLE_DEVICES, or without that variable."""
    present = _present()
    return present if names is None or not present else _usable(names, present)


def _present() -> int:
    """As the driver's management library counts them, which does not initialize CUDA."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:  # there is no driver
        return 0
    if library.nvmlInit_v2() != 0:
        return 0
    count = ctypes.c_uint(0)
    failed = library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    library.nvmlShutdown()
    return 0 if failed else count.value


def _usable(names: Sequence[str], present: int) -> int:
    """As CUDA does: it takes numbers and UUIDs in order, up to the first that it does not know."""
    for place, name in enumerate(map(str.strip, names)):
        known = int(name) < present if name.isdecimal() else name.startswith(("GPU-", "MIG-"))
        if not known:
            return place
    return len(names)
