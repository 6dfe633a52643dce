"""Which rank is this process? One file per launcher, asked in the order of the table below.

A detector returns None if its launcher did not start this process, and raises if it did but the place is unclear.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from pycollective.launch.detect import foreign, pycollective_run, single, torch_variables
from pycollective.launch.detect.placement import Placement

__all__ = ["DETECTORS", "Placement", "detect"]

DETECTORS: tuple[Callable[[Mapping[str, str]], Placement | None], ...] = (
    pycollective_run.detect,
    torch_variables.detect,
    foreign.detect,
    single.detect,
)


def detect(env: Mapping[str, str] | None = None) -> Placement:
    """This process's place in the world. Raises InvalidArgument or Unsupported rather than guess a world of one."""
    environment = os.environ if env is None else env
    for detector in DETECTORS:
        placement = detector(environment)
        if placement is not None:
            return placement
    raise AssertionError("the last detector always answers")
