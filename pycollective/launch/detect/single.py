"""No launcher: a world of one."""

from __future__ import annotations

from collections.abc import Mapping

from pycollective.launch.detect.placement import Placement
from pycollective.launch.key import job_id


def detect(env: Mapping[str, str]) -> Placement | None:
    del env
    return Placement(0, 1, 0, 1, [], None, job_id(b"single"), "single")
