"""torch.distributed.monitored_barrier(), which torch allows gloo alone."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pycollective import _core
from pycollective.base.advice import advised
from pycollective.torch.groups import group_of

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["monitored_barrier"]


@advised
def monitored_barrier(
    group: _core.Group | ProcessGroup | None = None,
    timeout: timedelta | float | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """A barrier whose error names the ranks that did not come.

    So does every barrier here; this one has the arguments of torch.distributed.monitored_barrier().

    Parameters:
        group: ours, or a process group of the backend pycollective; default the world.
        timeout: a timedelta or seconds, default that of the process group, or of init().
        wait_all_ranks: taken, and changes nothing: all missing ranks are named, on every rank that waits.

    Raises:
        CollectiveTimeout: not all ranks came in time.
        PeerFailure: one of them is gone.

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> pc.torch.monitored_barrier(timeout=5)
        >>> pc.shutdown()
    """
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if seconds is None:
        seconds = getattr(group, "_timeout_s", None)
    group_of(group).barrier(timeout=seconds)
