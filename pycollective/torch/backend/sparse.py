"""Sums of sparse tensors: every rank gathers all indices and values, and adds them.

Even with async_op=True, all_reduce() of a sparse tensor waits for the other ranks. The core gathers
parts of different sizes only in blocking calls. If only the exchange of sizes blocked, wait() would
have to make the second call, in an undefined order relative to other calls.
"""

from __future__ import annotations

import torch

from pycollective._core import Group
from pycollective.errors import Unsupported

__all__ = ["sparse_allreduce"]


def sparse_allreduce(group: Group, tensor: torch.Tensor, op: object, timeout_s: float) -> torch.Tensor:
    """Combines all ranks' sparse COO tensors into `tensor`, coalesced, and returns it.

    The call blocks. It gathers the indices and then the values of all ranks on every rank, as gloo
    and Horovod do, and each time first the sizes. Elements on a GPU are copied through the host,
    because the host must know their number.
    """
    if tensor.layout is not torch.sparse_coo:
        raise Unsupported(
            f"all_reduce of a tensor of layout {tensor.layout}: sparse_coo and strided ones have it"
        )
    if op not in ("sum", "avg"):
        raise Unsupported(
            f"all_reduce of a sparse tensor with op {op}: sum and avg have it, densify it for others"
        )
    mine = tensor.detach().coalesce()
    where = mine.indices().t().contiguous().cpu()
    indices = group.allgather(where, counts="auto", timeout=timeout_s)
    values = group.allgather(mine.values().contiguous().cpu(), counts="auto", timeout=timeout_s)
    total = torch.sparse_coo_tensor(indices.t(), values, tensor.shape, check_invariants=True).coalesce()
    if op == "avg":
        total = total / group.size
    with torch.no_grad():  # not detach(), which would make another tensor with its own indices and values
        tensor.copy_(total.to(tensor.device))
    return tensor
