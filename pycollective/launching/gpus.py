"""The GPUs of this machine as launchers see them.

Whether those that `pycollective run --gpus` names are there: otherwise ranks would compute on the CPU, silently. And
how many ranks there are where nothing says it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pycollective import devices
from pycollective.launching.environment import usable_cores

__all__ = ["missing", "ranks_by_default"]


def ranks_by_default() -> int:
    """A rank for each GPU that this process may use; where there is none, for each core."""
    return devices.visible_gpus() or usable_cores()


def missing(named: Sequence[str]) -> str:
    """What to tell the user, or an empty text."""
    if not named:
        return ""
    there = devices.gpus_of(named)
    if there == len(named):
        return ""
    asked = ",".join(named)
    if there == 0:
        return (
            f"--gpus {asked}: no such GPU is here, or its driver does not answer (try nvidia-smi): the ranks get no "
            "GPU, and what they compute they compute on the CPU"
        )
    return (
        f"--gpus {asked}: this machine has no GPU {named[there]}: CUDA shows the ranks only those before it, "
        f"{','.join(named[:there])}"
    )
