"""A process group that is made without torch.distributed's own functions.

Fault-tolerant trainers (torchft) make a process group for every quorum, with other ranks each time,
and no default group. This module makes the process group that they wrap.
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
    """Makes a process group with its own connections: no world or default group is needed.

    It can be made repeatedly, also after ranks have died. Its shutdown() waits for the other ranks
    and ends it; its abort() ends it at once, for all ranks.

    Parameters:
        store: the store through which the ranks find each other; all ranks pass it. One store
            can serve several groups, one after the other or, with different names, at the same
            time.
        rank: the rank of this process in the group, from 0 to `size` - 1.
        size: the number of processes that make the group.
        timeout: a timedelta or seconds: the limit of the wait for the other ranks and the
            deadline of each call; default 600.
        name: the same on all ranks.

    Raises:
        InvalidArgument: rank or size is invalid.
        CollectiveTimeout: not all ranks made the call in time.
        PeerFailure: a rank has failed.

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
