"""Paddle: data parallel training whose gradients travel while backward() runs. Loaded at first use.

    import pycollective as pc

    pc.init()
    model = pc.paddle.DataParallel(model)

Models and batches lie on the CPU; what lies on a GPU is refused. Calls take Paddle's tensors without any of this:
`pc.allreduce(tensor)`.
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

    return sorted({*globals(), *(__all__ if find_spec("paddle") else ())})  # help() looks at everything


if not typing.TYPE_CHECKING:  # to which every name would seem to be there

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
