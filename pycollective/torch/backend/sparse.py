"""Sums of sparse tensors: every rank gathers all indices and values, and adds them up.

With async_op=True, too, all_reduce() of one waits for the others: the core gathers parts of different sizes in blocking
calls only, and sizes first, in a call of their own, would leave the second one to wait(), in no order to other calls.
"""

from __future__ import annotations

import torch

from pycollective._core import Group
from pycollective.errors import Unsupported

__all__ = ["sparse_allreduce"]


def sparse_allreduce(group: Group, tensor: torch.Tensor, op: object, timeout_s: float) -> torch.Tensor:
    """The combination of all ranks' sparse COO tensors, also written to `tensor`; coalesced. It waits for the others.

    2 messages of sizes, indices and values each: every rank gets all ranks' elements, as gloo and Horovod do it.
    Those of a GPU go through the host, which has to know how many there are.
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
    with torch.no_grad():  # detach() would make another tensor with indices and values of its own
        tensor.copy_(total.to(tensor.device))
    return tensor
