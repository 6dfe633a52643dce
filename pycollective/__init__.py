"""Collective communication for any array library.

    import numpy as np
    import pycollective as pc

    pc.init()                     # finds the other ranks; without a launcher, the size is 1
    x = np.full(4, pc.rank() + 1.0)
    pc.allreduce(x)               # in place, and returned: the sum over all ranks
    pc.shutdown()

Start the ranks with `pycollective run -n 4 script.py` or `torchrun`, or start each one by hand with
`init("host:port", rank=, size=)`. Arrays may come from NumPy, PyTorch, or any library that supports
the buffer protocol or DLPack. pycollective.errors lists the exceptions.
"""

import importlib.util
import typing

if importlib.util.find_spec("pycollective._core") is None:  # true in the source folder of a clone
    from pycollective.installed import installed_folder

    __path__[:] = [installed_folder(__path__[0])]  # submodules are imported from the installed package
    __file__ = f"{__path__[0]}/__init__.py"

from pycollective._core import (
    ANY_SOURCE,
    Group,
    PlannedCall,
    Work,
    allgather,
    allgather_async,
    allgather_object,
    allreduce,
    allreduce_async,
    alltoall,
    alltoall_async,
    barrier,
    barrier_async,
    broadcast,
    broadcast_async,
    broadcast_object,
    exscan,
    exscan_async,
    gather,
    gather_async,
    gather_object,
    group,
    plan_allreduce,
    recv,
    recv_async,
    recv_object,
    reduce,
    reduce_async,
    reduce_scatter,
    reduce_scatter_async,
    resync,
    scaled,
    scan,
    scan_async,
    scatter,
    scatter_async,
    scatter_object,
    send,
    send_async,
    send_object,
    sendrecv,
    world,
)
from pycollective._version import __version__
from pycollective.base.advice import answers_for_attributes as _answers_for_attributes
from pycollective.calls.coalesce import coalesce
from pycollective.errors import (
    Aborted,
    CollectiveError,
    CollectiveMismatch,
    CollectiveTimeout,
    Excluded,
    ForkedProcess,
    InvalidArgument,
    NotInitialized,
    PeerExited,
    PeerFailure,
    PeerInterrupted,
    PeerUnresponsive,
    RemoteError,
    Unsupported,
)
from pycollective.runtime.groups import Mesh as Mesh
from pycollective.runtime.lifetime import (
    in_world,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)

if typing.TYPE_CHECKING:
    from pycollective import checkpoint as checkpoint
    from pycollective import data as data
    from pycollective import debug as debug
    from pycollective import jax as jax
    from pycollective import metrics as metrics
    from pycollective import paddle as paddle
    from pycollective import torch as torch
    from pycollective.calls.plan import explain
    from pycollective.launching.spawn import launch, run
    from pycollective.runtime.availability import Availability, available
    from pycollective.runtime.devices import device
    from pycollective.runtime.facts import Info, info
    from pycollective.runtime.heap import empty, empty_like, heap_arrays, zeros
    from pycollective.runtime.store import Store, store
    from pycollective.training.console import print as print
    from pycollective.training.console import progress
    from pycollective.training.gradients.reducer import GradientReducer
    from pycollective.training.rank0 import main_first, single_process
    from pycollective.training.remote_calls import call, call_async, serving
    from pycollective.training.seeding import seed

__all__ = [
    "ANY_SOURCE",
    "Aborted",
    "Availability",
    "CollectiveError",
    "CollectiveMismatch",
    "CollectiveTimeout",
    "Excluded",
    "ForkedProcess",
    "GradientReducer",
    "Group",
    "Info",
    "InvalidArgument",
    "Mesh",
    "NotInitialized",
    "PeerExited",
    "PeerFailure",
    "PeerInterrupted",
    "PeerUnresponsive",
    "PlannedCall",
    "RemoteError",
    "Store",
    "Unsupported",
    "Work",
    "__version__",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_async",
    "alltoall",
    "alltoall_async",
    "available",
    "barrier",
    "barrier_async",
    "broadcast",
    "broadcast_async",
    "broadcast_object",
    "call",
    "call_async",
    "coalesce",
    "device",
    "empty",
    "empty_like",
    "explain",
    "exscan",
    "exscan_async",
    "gather",
    "gather_async",
    "gather_object",
    "group",
    "heap_arrays",
    "in_world",
    "info",
    "init",
    "is_initialized",
    "launch",
    "local_rank",
    "local_size",
    "main_first",
    "plan_allreduce",
    "progress",
    "rank",
    "recv",
    "recv_async",
    "recv_object",
    "reduce",
    "reduce_async",
    "reduce_scatter",
    "reduce_scatter_async",
    "resync",
    "run",
    "scaled",
    "scan",
    "scan_async",
    "scatter",
    "scatter_async",
    "scatter_object",
    "seed",
    "send",
    "send_async",
    "send_object",
    "sendrecv",
    "serving",
    "shutdown",
    "single_process",
    "size",
    "store",
    "world",
    "zeros",
]

_answers_for_attributes(Group)
_answers_for_attributes(Work)

# These names and modules are imported at their first use.
_LATER = {
    "Availability": "runtime.availability",
    "GradientReducer": "training.gradients.reducer",
    "Info": "runtime.facts",
    "Store": "runtime.store",
    "available": "runtime.availability",
    "call": "training.remote_calls",
    "call_async": "training.remote_calls",
    "device": "runtime.devices",
    "empty": "runtime.heap",
    "empty_like": "runtime.heap",
    "explain": "calls.plan",
    "heap_arrays": "runtime.heap",
    "info": "runtime.facts",
    "launch": "launching.spawn",
    "main_first": "training.rank0",
    "print": "training.console",
    "progress": "training.console",
    "run": "launching.spawn",
    "seed": "training.seeding",
    "serving": "training.remote_calls",
    "single_process": "training.rank0",
    "store": "runtime.store",
    "zeros": "runtime.heap",
}
_MODULES_LATER = ("checkpoint", "data", "debug", "jax", "metrics", "paddle", "torch")
_FRAMEWORKS = ("jax", "paddle", "torch")  # Their modules are useful only where the framework is installed.


def __dir__() -> list[str]:
    from importlib.util import find_spec

    # help() reads every attribute that dir() lists, and fails if a framework's module cannot be
    # imported
    missing = {name for name in _FRAMEWORKS if not find_spec(name)}
    return sorted({*globals(), *_LATER, *_MODULES_LATER} - missing)


if not typing.TYPE_CHECKING:  # with a __getattr__, type checkers would accept every name

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _MODULES_LATER:
            return import_module(f"pycollective.{name}")
        if name not in _LATER:
            from pycollective.base.foreign_words import missing

            raise missing("pycollective", name, __all__)
        return getattr(import_module(f"pycollective.{_LATER[name]}"), name)
