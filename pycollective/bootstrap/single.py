"""The placement without a launcher: a world of one."""

from __future__ import annotations

from pycollective.bootstrap.placement import Placement


def alone(launcher: str, *variables: str) -> Placement:
    return Placement(0, 1, 0, 1, launcher, one_host=True, variables=variables)
