"""Paddle: data parallel training with gradients that are averaged while backward() runs.

This module is imported at its first use.

    import pycollective as pc

    pc.init()
    model = pc.paddle.DataParallel(model)

Models and batches must be on the CPU; tensors on a GPU are refused. pycollective's functions accept
Paddle's tensors without this module: `pc.allreduce(tensor)`.
"""

from __future__ import annotations

import importlib
import typing

from pycollective.base.foreign_words import missing

if typing.TYPE_CHECKING:
    from pycollective.paddle.data_parallel import DataParallel
    from pycollective.paddle.sync_batch_norm import SyncBatchNorm

__all__ = ["DataParallel", "SyncBatchNorm"]

_HOMES = {"DataParallel": "data_parallel", "SyncBatchNorm": "sync_batch_norm"}


def __dir__() -> list[str]:
    from importlib.util import find_spec

    # help() reads every name that dir() lists
    return sorted({*globals(), *(__all__ if find_spec("paddle") else ())})


if not typing.TYPE_CHECKING:  # with a __getattr__, type checkers would accept every name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise missing("pycollective.paddle", name, __all__)
        try:
            module = importlib.import_module(f"pycollective.paddle.{_HOMES[name]}")
        except ModuleNotFoundError as error:
            if error.name == "paddle":
                error.msg = f"pycollective.paddle.{name} needs Paddle, which is not installed: pip install paddlepaddle"
            raise
        return getattr(module, name)
