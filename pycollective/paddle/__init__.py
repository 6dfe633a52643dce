"""Paddle: data parallel training with gradients that are averaged while backward() runs.

It is loaded at first use.

    import pycollective as pc

    pc.init()
    model = pc.paddle.DataParallel(model)

Models and batches must be on the CPU; tensors on a GPU are refused. Calls accept Paddle's tensors
without this module: `pc.allreduce(tensor)`.
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

    return sorted({*globals(), *(__all__ if find_spec("paddle") else ())})  # help() reads every listed name


if not typing.TYPE_CHECKING:  # with it, type checkers would accept every attribute

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
