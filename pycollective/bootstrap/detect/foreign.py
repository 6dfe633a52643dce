"""Known launchers for which pycollective cannot join a world yet.

They are refused, because otherwise each process would be a world of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pycollective.bootstrap.detect.variables import integer
from pycollective.bootstrap.placement import Placement
from pycollective.errors import Unsupported


@dataclass(frozen=True)
class Launcher:
    name: str
    size: str
    rank: str
    local_rank: str
    start: str  # the command that users type


LAUNCHERS = (Launcher("Horovod", "HOROVOD_SIZE", "HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "horovodrun"),)


def detect(env: Mapping[str, str]) -> Placement | None:
    for launcher in LAUNCHERS:
        if not env.get(launcher.size) or not env.get(launcher.rank):
            continue
        size = integer(env, launcher.size)
        if size > 1:
            raise Unsupported(
                f"{launcher.name} started {size} processes ({launcher.size}={size}), and pycollective cannot join "
                f"them by itself yet. What works today:\n"
                f"  {launcher.start} ... bash -c 'MASTER_ADDR=<host of rank 0> MASTER_PORT=29500 RANK=${launcher.rank} "
                f"WORLD_SIZE=${launcher.size} LOCAL_RANK=${launcher.local_rank} exec python script.py'\n"
                f"or start with `pycollective run` (one host), torchrun, mpirun or srun"
            )
    return None
