"""Support for compiled programs: calls that bypass Python overrides in C++, and dynamo.

ProcessGroup lets Python override most methods that C++ calls, but not all_gather_single().
torch.compile calls it (`_c10d_functional.all_gather_into_tensor_out`). C++ then looks for a C++
backend of the group, and ours has none. So the first group of ours registers a kernel that precedes
torch's own, for all groups of the process. The kernel forwards calls of other backends' groups to
torch's kernels, which stay registered.
"""

from __future__ import annotations

import functools
from datetime import timedelta
from types import FunctionType
from typing import Any

import torch
from torch.distributed import ProcessGroup, Work
from torch.distributed.distributed_c10d import AllgatherOptions

from pycollective._core import Group
from pycollective.torch.backend.work import NO_TIMEOUT

__all__ = ["keep_dynamo_out", "reach_python_groups"]


# Autograd, functionalization and Python's modes precede this key in the dispatcher, and all devices
# follow it. torch has no kernel for this key.
IN_FRONT = torch._C.DispatchKey.BackendSelect
BEHIND = torch._C._dispatch_keyset_full_after(IN_FRONT)
# keys for which torch's kernel would call the group
OURS = torch._C.DispatchKey.CPU, torch._C.DispatchKey.CUDA


@functools.cache
def reach_python_groups() -> torch.library.Library:
    """Registers the kernel once. The cache keeps the library alive, and thus the registration."""
    library = torch.library.Library("c10d", "IMPL")
    library.impl("_allgather_base_", _all_gather_single, IN_FRONT.name, with_keyset=True)
    return library


def _all_gather_single(
    keys: torch._C.DispatchKeySet,
    output: torch.Tensor,
    x: torch.Tensor,
    boxed_group: torch.ScriptObject,
    async_op: bool = True,
    timeout: int = -1,
) -> tuple[torch.Tensor, torch.ScriptObject]:
    group, keys = ProcessGroup.unbox(boxed_group), keys & BEHIND
    if not isinstance(getattr(group, "group", None), Group) or keys.highestPriorityTypeId() not in OURS:
        torchs = torch.ops.c10d._allgather_base_.default
        result: tuple[torch.Tensor, torch.ScriptObject] = torchs.redispatch(
            keys, output, x, boxed_group, async_op, timeout
        )
        return result  # without a _HeldWork, because a blocking call may return a null Work
    opts = AllgatherOptions()
    opts.asyncOp = async_op
    if timeout >= 0:
        opts.timeout = timedelta(milliseconds=timeout)
    return output, _HeldWork(group.all_gather_single(output, x, opts)).boxed()


_held: set[Work] = set()


class _HeldWork(Work):
    """A Work that stays alive until its wait() has returned.

    C++ holds only the C++ part of a Work, and wait() of that part alone would never end. A Work
    made from a Future would stay alive too, but would not report that the Future has failed.
    """

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._work = work
        _held.add(self)

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        try:
            self._work.wait(timeout)
        finally:
            if self._work.is_completed():
                _held.discard(self)
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        return self._work.get_future()


def keep_dynamo_out(kind: type) -> None:
    """Makes dynamo skip the methods of a class, which have nothing to compile.

    A compiled program calls these methods at graph breaks, also from C++. This has the effect of
    torch.compiler.disable(), but does not import torch._dynamo, which takes a second.
    """
    eval_frame = torch._C._dynamo.eval_frame
    if not hasattr(eval_frame, "set_code_exec_strategy"):  # torch older than 2.7
        return
    skip = eval_frame._FrameAction.SKIP
    for each in vars(kind).values():
        if isinstance(each, FunctionType):
            eval_frame.set_code_exec_strategy(each.__code__, eval_frame._FrameExecStrategy(skip, skip))
