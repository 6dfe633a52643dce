"""How this process was started, and which launchers could start ranks here."""

from __future__ import annotations

from collections.abc import Mapping

from pycollective.bootstrap.detect import Placement
from pycollective.tools.doctor import variables
from pycollective.tools.doctor.check_result import CheckResult, fail, ok, warn

NO_SLURM = "Could not establish a configuration source"


def launcher(placement: Placement | None, problem: str, env: Mapping[str, str]) -> CheckResult:
    """Returns the detected launcher, and the variables by which it was detected."""
    if placement is None:
        remedy = "what the message says; `pycollective run -n 2 script.py` needs nothing to be set"
        return fail("launcher", problem, remedy)
    decided = placement.variables or (variables.of_launchers(env) if placement.size > 1 else ())
    place = f"{placement.launcher}: rank {placement.rank} of {placement.size}"
    if placement.size == 1:
        place = f"{placement.launcher}: a world of one"
    names = ", ".join(variables.shown(env, name) for name in decided)
    return ok("launcher", f"{place} ({names})" if names else place)


def launchers(commands: Mapping[str, str], packages: Mapping[str, str]) -> list[CheckResult]:
    """Returns the launchers that could start ranks."""
    lines = []
    for name in ("mpirun", "mpiexec", "srun", "torchrun", "ray"):
        answer = commands.get(name)
        if answer is None:
            continue
        if name == "srun" and NO_SLURM in answer:
            lines.append(ok(name, "installed; no Slurm is configured here"))
        elif answer.startswith("fails: "):
            lines.append(warn(name, answer, f"look why `{name} --version` fails, or leave it out of PATH"))
        elif name == "torchrun" and "torch" in packages:
            lines.append(ok(name, f"{answer}, torch {packages['torch']}"))
        else:
            lines.append(ok(name, version_in(answer)))
    return lines or [ok("other launchers", "none on PATH: mpirun, mpiexec, srun, torchrun, ray")]


def version_in(answer: str) -> str:
    """Returns the beginning of a version text, and the version that hydra prints further below."""
    first, _, rest = answer.partition(";")
    number = next((word for word in rest.split(";") if word.strip().startswith("Version:")), "")
    return f"{first} {' '.join(number.split())}".strip()[:120]
