"""The limits that a container or a batch system sets by control groups, version 1 or 2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pycollective.tools.doctor.check_result import CheckResult, ok, warn

UNLIMITED = 1 << 60  # version 1 writes a huge number if there is no limit
TRACES = ("docker", "kubepods", "containerd", "lxc", "libpod")


@dataclass(frozen=True)
class Quota:
    """Limits of a control group; None means no limit."""

    cpus: float | None
    memory: int | None


def quota(root: Path) -> Quota:
    """Returns the tightest limits of this process's cgroup and of the cgroups above it."""
    cpus: list[float] = []
    memory: list[int] = []
    for controllers, path in _groups(root):
        for folder in _folders(root, controllers, path):
            cpus += _cpus(folder)
            memory += _memory(folder)
    return Quota(min(cpus, default=None), min(memory, default=None))


def _groups(root: Path) -> Iterator[tuple[str, str]]:
    for line in _words(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        yield controllers, path


def _folders(root: Path, controllers: str, path: str) -> Iterator[Path]:
    top = root / "sys/fs/cgroup" / controllers  # in version 2 the path has no controllers
    for levels in range(len(parts := [part for part in path.split("/") if part]) + 1):
        yield top.joinpath(*parts[:levels])  # cgroups outside the container's own view do not exist


def _cpus(folder: Path) -> Iterator[float]:
    for line in _words(folder / "cpu.max"):
        most, period = line.split()
        if most != "max":
            yield int(most) / int(period)
    for most, period in zip(
        _words(folder / "cpu.cfs_quota_us"), _words(folder / "cpu.cfs_period_us"), strict=False
    ):
        if int(most) > 0:
            yield int(most) / int(period)


def _memory(folder: Path) -> Iterator[int]:
    for name in ("memory.max", "memory.limit_in_bytes"):
        for word in _words(folder / name):
            if word != "max" and int(word) < UNLIMITED:
                yield int(word)


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def inside(root: Path, env: Mapping[str, str]) -> bool:
    """Returns whether this process is in a container, as far as it can detect that."""
    marks = any((root / name).exists() for name in (".dockerenv", "run/.containerenv"))
    groups = "\n".join(_words(root / "proc/1/cgroup"))
    return marks or "KUBERNETES_SERVICE_HOST" in env or any(trace in groups for trace in TRACES)


def limits(root: Path, env: Mapping[str, str], cores: int) -> CheckResult:
    """Checks for a CPU quota below the visible cores: the quota stops all threads periodically."""
    found = quota(root)
    words = ["in a container" if inside(root, env) else "no container"]
    words.append("no CPU quota" if found.cpus is None else f"CPU quota {found.cpus:g} of {cores} cores")
    words.append(
        "no memory limit" if found.memory is None else f"memory limit {found.memory / (1 << 30):.1f} GiB"
    )
    text = ", ".join(words)
    if found.cpus is not None and found.cpus < cores:
        remedy = (
            f"start at most {max(1, int(found.cpus))} ranks with OMP_NUM_THREADS=1, or raise the quota "
            "(docker --cpus, resources.limits.cpu)"
        )
        return warn("limits", text, remedy)
    return ok("limits", text)
