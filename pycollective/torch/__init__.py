"""PyTorch support: data parallel training, differentiable collectives, torch.distributed backend.

The PyTorch modules are imported at their first use.

    import pycollective as pc

    pc.init()
    model = pc.torch.DataParallel(model)       # gradients are averaged during backward()

`torch.distributed.init_process_group("pycollective")` needs no import of this module: see
docs/torch.md.
"""

from __future__ import annotations

import importlib
import typing

from pycollective.base.foreign_words import missing

if typing.TYPE_CHECKING:
    from pycollective.torch import functional
    from pycollective.torch.barrier import monitored_barrier
    from pycollective.torch.data_parallel import DataParallel
    from pycollective.torch.ddp_hook import ddp_comm_hook
    from pycollective.torch.optimizer import DistributedOptimizer
    from pycollective.torch.pipeline import Pipeline
    from pycollective.torch.replacing import replace
    from pycollective.torch.standalone import make_process_group
    from pycollective.torch.sync_batch_norm import SyncBatchNorm
    from pycollective.torch.uneven_inputs import join

__all__ = [
    "DataParallel",
    "DistributedOptimizer",
    "Pipeline",
    "SyncBatchNorm",
    "ddp_comm_hook",
    "functional",
    "join",
    "monitored_barrier",
    "make_process_group",
    "replace",
]

_HOMES = {
    "DataParallel": "data_parallel",
    "DistributedOptimizer": "optimizer",
    "Pipeline": "pipeline",
    "SyncBatchNorm": "sync_batch_norm",
    "ddp_comm_hook": "ddp_hook",
    "join": "uneven_inputs",
    "monitored_barrier": "barrier",
    "make_process_group": "standalone",
    "replace": "replacing",
}


def __dir__() -> list[str]:
    from importlib.util import find_spec

    # help() reads every name that dir() lists
    return sorted({*globals(), *(__all__ if find_spec("torch") else ())})


if not typing.TYPE_CHECKING:  # with a __getattr__, type checkers would accept every name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise missing("pycollective.torch", name, __all__)
        try:
            module = importlib.import_module(f"pycollective.torch.{_HOMES.get(name, name)}")
        except ModuleNotFoundError as error:
            if error.name == "torch":
                error.msg = (
                    f"pycollective.torch.{name} needs PyTorch, which is not installed: pip install torch"
                )
            raise
        return getattr(module, name) if name in _HOMES else module
