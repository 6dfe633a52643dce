"""Finds this process's rank. Each launcher has its own module; the table below gives the order.

A detector returns None if its launcher did not start this process. It raises if the launcher did,
but the rank is ambiguous. PYCOLLECTIVE_LAUNCHER selects a single detector.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from pycollective.bootstrap import single
from pycollective.bootstrap.detect import (
    foreign,
    hydra,
    open_mpi,
    paddle,
    pycollective_run,
    slurm,
    slurm_pmi2,
    torch_variables,
    torchrun,
)
from pycollective.bootstrap.placement import Placement
from pycollective.errors import InvalidArgument

__all__ = ["DETECTORS", "Placement", "detect"]

VARIABLE = "PYCOLLECTIVE_LAUNCHER"
Detector = Callable[[Mapping[str, str]], Placement | None]

# If one launcher runs inside another, the inner one precedes the outer one in this table. mpirun
# and srun can start torchrun's agents, and both MPIs start their own helpers with srun.
DETECTORS: dict[str, Detector] = {
    "pycollective": pycollective_run.detect,
    "torchrun": torchrun.detect,
    "variables": torch_variables.detect,
    "paddle": paddle.detect,
    "openmpi": open_mpi.detect,
    "slurm-pmi2": slurm_pmi2.detect,
    "hydra": hydra.detect,
    "slurm": slurm.detect,
}
# Checked if no launcher has started this process: each refuses an environment that looks like one
# rank of a world but does not define the rank.
REFUSALS: tuple[Detector, ...] = (torch_variables.detect_part, foreign.detect, slurm.detect_shell)


def detect(env: Mapping[str, str] | None = None) -> Placement:
    """Return this process's placement in the world.

    Raises InvalidArgument or Unsupported, instead of assuming a world of one, if the rank is
    ambiguous.
    """
    environment = os.environ if env is None else env
    if environment.get(VARIABLE):
        return chosen(environment, environment[VARIABLE])
    for detector in (*DETECTORS.values(), *REFUSALS):
        placement = detector(environment)
        if placement is not None:
            return placement
    return single.alone("single")


def chosen(env: Mapping[str, str], name: str) -> Placement:
    if name == "single":
        return single.alone("single", VARIABLE)
    if name not in DETECTORS:
        raise InvalidArgument(f"{VARIABLE}={name!r} is not one of {', '.join((*DETECTORS, 'single'))}")
    placement = DETECTORS[name](env)
    if placement is None:
        raise InvalidArgument(
            f"{VARIABLE}={name}, but the environment has nothing of it: it did not start this process. Unset the "
            f"variable to have the launcher found out"
        )
    return placement
