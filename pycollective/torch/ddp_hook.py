"""Gradient averaging through pycollective for DistributedDataParallel on any backend of torch."""

# There is no `from __future__ import annotations`, because DDP compares these annotations with the
# classes themselves.
import torch
import torch.distributed as dist

from pycollective._core import Group
from pycollective.torch.backend.devices import device_of
from pycollective.torch.backend.futures import future_of
from pycollective.torch.groups import group_of

__all__ = ["ddp_comm_hook"]


def ddp_comm_hook(
    state: Group | dist.ProcessGroup | None,
    bucket: dist.GradBucket,
) -> torch.futures.Future[torch.Tensor]:
    """A communication hook for torch's DistributedDataParallel: averages buckets in the background.

        model = torch.nn.parallel.DistributedDataParallel(model)      # for example over gloo
        model.register_comm_hook(None, pc.torch.ddp_comm_hook)

    DDP still handles buckets, unused parameters and static graphs. DataParallel is the complete
    counterpart in pycollective.

    Parameters:
        state: the group to average over, with the ranks of DDP's group; None for the world.
        bucket: from DDP. Its buffer is averaged in place.

    Returns:
        a Future of the buffer. If the allreduce fails, the Future holds the error, and
        backward() raises it.

    Example:
        >>> import pycollective as pc, torch
        >>> _ = pc.init()
        >>> class Bucket:
        ...     def buffer(self):
        ...         return torch.ones(3)
        >>> pc.torch.ddp_comm_hook(None, Bucket()).wait()
        tensor([1., 1., 1.])
        >>> pc.shutdown()
    """
    buffer = bucket.buffer()
    work = group_of(state).allreduce_async(buffer, "avg")
    return future_of(work, lambda: buffer, device_of([buffer]))
