"""The environment: pycollective's variables, those that decided the rank, and unknown ones."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pycollective.runtime.environment_names import PREFIX, nearest, unknown
from pycollective.tools.doctor.check_result import CheckResult, ok, warn

# Variables that are shown with their values. Of all other variables only the name is shown, because
# values such as a job's name or address may be part of the job's key.
SHOWN = re.compile(
    r"((OMPI_COMM_WORLD|PMI|HOROVOD|PYCOLLECTIVE)_)?(LOCAL_)?(RANK|SIZE|WORLD_SIZE)|MASTER_(ADDR|PORT)|GROUP_RANK"
    r"|MPI_LOCAL(RANKID|NRANKS)|SLURM_(PROCID|LOCALID|NODEID|NTASKS|STEP_NUM_(TASKS|NODES))|PADDLE_TRAINERS?_(ID|NUM)"
    r"|PYCOLLECTIVE_(LOG|TIMEOUT_S|TUNE|TRANSPORT|PORT|CHECK|STORE|LAUNCHER|INTERFACE|SECURITY|KEY_FILE)"
    r"|TORCHELASTIC_RESTART_COUNT|OMP_NUM_THREADS"
)
LAUNCHERS = re.compile(
    r"(LOCAL_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|TORCHELASTIC_.*|OMPI_COMM_WORLD_.*|PMIX?_.*|MPI_LOCAL.*"
    r"|SLURM_(JOB_ID|STEP_.*|PROCID|LOCALID|NODEID|NTASKS)|HOROVOD_.*|PADDLE_.*"
)


def shown(env: Mapping[str, str], name: str) -> str:
    """Returns `NAME=value`, or only the name if the value must not be shown."""
    return f"{name}={env[name]}" if SHOWN.fullmatch(name) else name


def of_launchers(env: Mapping[str, str]) -> list[str]:
    """Returns the names of the launchers' variables that are set."""
    return sorted(name for name in env if env[name] and LAUNCHERS.fullmatch(name))


def ours(env: Mapping[str, str], names: frozenset[str]) -> list[CheckResult]:
    """Reports misspelt variables, which pycollective would otherwise ignore silently."""
    mine = sorted(name for name in env if name.startswith(PREFIX))
    lines = []
    for name in unknown(env, names):
        near = nearest(name, names)
        remedy = f"perhaps {near}? " if near else ""
        lines.append(
            warn(
                "variables",
                f"{name} is set, and nothing reads it",
                f"{remedy}`pycollective env` lists them all",
            )
        )
    set_here = ", ".join(shown(env, name) for name in mine if name in names)
    return [ok("variables", set_here or "none of PYCOLLECTIVE_* is set"), *lines]
