"""monitored_barrier(), which torch.distributed supports only for the gloo backend."""

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
    """A barrier with an error that names the ranks that did not reach it.

    Every barrier of pycollective names them. This function has the arguments of
    torch.distributed.monitored_barrier().

    Parameters:
        group: a pycollective Group or a process group of the backend pycollective. The default
            is the world.
        timeout: a timedelta or seconds. The default is that of the process group, or of init().
        wait_all_ranks: accepted for compatibility, has no effect: every rank that waits reports
            all missing ranks.

    Raises:
        CollectiveTimeout: not all ranks reached the barrier in time.
        PeerFailure: a rank has failed.

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
