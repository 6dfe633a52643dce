"""The GPUs of this machine, for launchers.

Checks that the GPUs of `pycollective run --gpus` exist, because ranks without a GPU would silently
compute on the CPU. Assigns GPUs to ranks, and chooses the default number of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pycollective.launching.environment import usable_cores
from pycollective.runtime import devices

__all__ = ["missing", "of_ranks", "ranks_by_default"]


def ranks_by_default() -> int:
    """Return the number of GPUs that this process may use, or of cores if there is no GPU."""
    return devices.visible_gpus() or usable_cores()


def missing(named: Sequence[str]) -> str:
    """Return a warning if a GPU of --gpus does not exist, or ""."""
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


def of_ranks(named: Sequence[str], env: Mapping[str, str], ranks: range) -> dict[int, str]:
    """Return the GPU of each rank on this machine, round-robin, as nvidia-smi names it.

    The result is empty if there are no GPUs. `named` comes from --gpus, which has precedence over
    CUDA_VISIBLE_DEVICES.
    """
    visible = env.get("CUDA_VISIBLE_DEVICES")
    names = named or (None if visible is None else visible.split(","))
    count = devices.gpus_of(names)
    if not count:
        return {}
    places = {rank: (rank - ranks.start) % count for rank in ranks}
    return {rank: str(place) if names is None else names[place].strip() for rank, place in places.items()}
