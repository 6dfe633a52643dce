"""A process group that torch.distributed's own functions have not made, for programs that make theirs themselves.

Fault-tolerant trainers (torchft) have a process group for every quorum, with other ranks each time, and no default
group; what they wrap is made here.
"""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import torch.distributed as dist

from pycollective.base.advice import advised
from pycollective.base.whole_numbers import whole_number
from pycollective.errors import InvalidArgument
from pycollective.runtime import lifetime
from pycollective.torch.backend.process_group import ProcessGroupPycollective

__all__ = ["make_process_group"]


@advised
def make_process_group(
    store: dist.Store,
    rank: int,
    size: int,
    *,
    timeout: timedelta | float | None = None,
    name: str = "standalone",
) -> dist.ProcessGroup:
    """Make a process group of these ranks, with connections of its own: no world and no default group is needed.

    It may be made again and again, also after ranks have died. shutdown() waits for the other ranks and ends it;
    abort() ends it at once, for all of them.

    Parameters:
        store: where the ranks find each other; all of them have it. One store may serve several groups, one after the
            other or, with different names, at the same time.
        rank: this process in the group, from 0 to `size` - 1.
        size: how many processes come here.
        timeout: a timedelta or seconds: how long they are waited for, and the deadline of each call; default 600.
        name: the same on all ranks.

    Raises:
        InvalidArgument: rank or size cannot be right.
        CollectiveTimeout: not all ranks came.
        PeerFailure: one of them is gone.

    Example:
        >>> import torch
        >>> import torch.distributed as dist
        >>> import pycollective as pc
        >>> group = pc.torch.make_process_group(dist.HashStore(), 0, 1, timeout=10)
        >>> x = torch.ones(2)
        >>> group.allreduce(x).wait()
        True
        >>> group.shutdown()
    """
    rank, size = (
        whole_number("make_process_group", "rank", rank),
        whole_number("make_process_group", "size", size),
    )
    if size < 1 or not 0 <= rank < size:
        raise InvalidArgument(f"make_process_group: rank={rank}, size={size}: ranks count from 0 to size - 1")
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    lifetime.check_timeout(seconds)
    if seconds == 0:
        raise InvalidArgument("make_process_group: timeout must be a positive number of seconds, not 0")
    seconds = lifetime.DEFAULT_TIMEOUT_S if seconds is None else min(seconds, lifetime.LONGEST_S)
    options = SimpleNamespace(
        store=store,
        group_rank=rank,
        group_size=size,
        timeout=timedelta(seconds=seconds),
        group_id=name,
        global_ranks_in_group=range(size),
        is_standalone=True,
    )
    return ProcessGroupPycollective(options)
