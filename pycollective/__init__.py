"""Collective communication for any array library.

    import numpy as np
    import pycollective as pc

    pc.init()                          # finds rank, size and the others; alone it is a world of one
    x = np.full(4, pc.rank() + 1.0)
    pc.allreduce(x)                    # in place, and returned: the sum over all ranks
    pc.shutdown()

Start it with `pycollective run -n 4 script.py`, `torchrun`, or by hand with `init("host:port", rank=, size=)`.
Arrays may come from NumPy, PyTorch, or anything with the buffer protocol or DLPack. Errors: see pycollective.errors.
"""

try:
    from pycollective._core import (
        Group,
        allgather,
        allgather_object,
        allreduce,
        alltoall,
        barrier,
        broadcast,
        broadcast_object,
        exscan,
        gather,
        gather_object,
        group,
        recv,
        recv_object,
        reduce,
        reduce_scatter,
        resync,
        scaled,
        scan,
        scatter,
        scatter_object,
        send,
        send_object,
        world,
    )
except ModuleNotFoundError as error:
    if error.name != "pycollective._core":
        raise
    raise ImportError(
        f"there is no compiled module in {__path__[0]}: if that is the source folder, run from another directory, or "
        "run scripts/setup in the clone and use its .venv"
    ) from None

from pycollective import debug as debug
from pycollective._version import __version__
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
    Unsupported,
)
from pycollective.groups import Mesh as Mesh
from pycollective.lifetime import init, is_initialized, local_rank, local_size, rank, shutdown, size
from pycollective.plan import explain
from pycollective.store import Store, store

__all__ = [
    "Aborted",
    "CollectiveError",
    "CollectiveMismatch",
    "CollectiveTimeout",
    "Excluded",
    "ForkedProcess",
    "Group",
    "InvalidArgument",
    "Mesh",
    "NotInitialized",
    "PeerExited",
    "PeerFailure",
    "PeerInterrupted",
    "PeerUnresponsive",
    "Store",
    "Unsupported",
    "__version__",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_object",
    "explain",
    "exscan",
    "gather",
    "gather_object",
    "group",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "recv",
    "recv_object",
    "reduce",
    "reduce_scatter",
    "resync",
    "scan",
    "scatter",
    "scatter_object",
    "scaled",
    "send",
    "send_object",
    "shutdown",
    "size",
    "store",
    "world",
]
