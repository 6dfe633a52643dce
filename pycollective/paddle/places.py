"""Checks the device of a model's tensors: pc.paddle trains only on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pycollective.errors import Unsupported

__all__ = ["refuse_gpus"]


def refuse_gpus(call: str, tensors: Mapping[str, Any]) -> None:
    """Raises Unsupported if one of the tensors is not in host memory."""
    for name, tensor in tensors.items():
        place = tensor.place
        if not (place.is_cpu_place() or place.is_cuda_pinned_place()):
            raise Unsupported(
                f'{call}: "{name}" lies on {place}, and pc.paddle trains on the CPU alone: call '
                'paddle.set_device("cpu") before the model and its inputs are made. On GPUs train with '
                "pc.torch.DataParallel, or with Paddle's own DataParallel under `python -m paddle.distributed.launch`"
            )
