"""Sets Paddle's variables for rank and size if Paddle's launcher did not start the world.

`paddle.distributed.get_rank()`, `DistributedBatchSampler` and `paddle.DataParallel` read
environment variables. Without these variables each rank is rank 0 of 1 for Paddle: it gets the
whole dataset and trains separately, without an error.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING

from pycollective.bootstrap.detect.paddle import RANK, SIZE, are_ours, variables_of
from pycollective.runtime import world_variables

if TYPE_CHECKING:
    from collections.abc import Callable

    from pycollective._core import Group

__all__ = ["set_variables"]


def set_variables(world: Group, at_end: Callable[[Callable[[], None]], None]) -> None:
    """Set the rank and size of this world for Paddle, if installed, until the world ends.

    Variables that Paddle's launcher has set are kept. `at_end` is lifetime.at_end.
    """
    ours = are_ours(os.environ)
    if not ours and (world.size == 1 or os.environ.get(RANK) or os.environ.get(SIZE) or not _is_there()):
        return
    world_variables.set_until_end(variables_of(world.rank, world.size, world.local_rank), at_end)
    _forget_others(world.rank, world.size)
    at_end(_forget_others)


def _forget_others(*place: int) -> None:
    """Discard Paddle's cache of the environment unless it has this rank and size."""
    parallel = sys.modules.get("paddle.distributed.parallel")
    kept = getattr(parallel, "_global_parallel_env", None)
    if kept is not None and (getattr(kept, "rank", None), getattr(kept, "world_size", None)) != place:
        parallel._global_parallel_env = None  # type: ignore[union-attr]


def _is_there() -> bool:
    """Return whether the program has imported Paddle or can import it."""
    return "paddle" in sys.modules or importlib.util.find_spec("paddle") is not None
