"""For C++ that calls a ProcessGroup past what Python can override: torch's dispatcher, where such calls end.

ProcessGroup lets Python override most methods that C++ calls, all_gather_single() not. torch.compile does call it
(`_c10d_functional.all_gather_into_tensor_out`); it then looks for a C++ backend of the group, and ours has none. So the
kernel of that operation is replaced, for all groups of the process, when the first group of ours is made. Of other
backends' groups it does what torch's own does.
"""

from __future__ import annotations

import functools
import warnings

import torch
from torch._C._distributed_c10d import _create_work_from_future
from torch.distributed import ProcessGroup
from torch.distributed.distributed_c10d import AllgatherOptions

from pycollective._core import Group

__all__ = ["reach_python_groups"]


@functools.cache
def reach_python_groups() -> torch.library.Library:
    """Replace the kernel, once. It stays as long as what is returned, which the cache keeps."""
    library = torch.library.Library("c10d", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there was one
        library.impl("_allgather_base_", _all_gather_single, "CPU", allow_override=True)
    return library


def _all_gather_single(
    output: torch.Tensor,
    x: torch.Tensor,
    boxed_group: torch.ScriptObject,
    async_op: bool = True,
    timeout: int = -1,
) -> tuple[torch.Tensor, torch.ScriptObject]:
    group = ProcessGroup.unbox(boxed_group)
    opts = AllgatherOptions()
    opts.asyncOp = async_op
    if isinstance(getattr(group, "group", None), Group):
        # Not its own boxed(): C++ would keep a Work whose Python half is gone, and wait for it for ever.
        work = _create_work_from_future(group.all_gather_single(output, x, opts).get_future())
    else:
        work = group._get_backend(torch.device("cpu"))._allgather_base(output, x, opts)
    return output, work.boxed()
