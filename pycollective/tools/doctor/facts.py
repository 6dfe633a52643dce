"""The input of all checks, collected in one class, so that tests can construct it."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pycollective.bootstrap.detect import Placement, detect
from pycollective.bootstrap.interfaces import default_route, interfaces
from pycollective.errors import CollectiveError
from pycollective.tools.doctor.commands import answers
from pycollective.tools.doctor.names import addresses_of
from pycollective.tools.doctor.packages import installed, wheel_tag


@dataclass(frozen=True)
class Facts:
    """Facts about one process and its host. The defaults describe a machine without problems."""

    root: Path = Path("/")  # the folder that contains /proc and /sys
    env: Mapping[str, str] = field(default_factory=dict)
    placement: Placement | None = None
    problem: str = ""  # reason why there is no placement
    known_variables: frozenset[str] = frozenset()
    packages: Mapping[str, str] = field(default_factory=dict)  # version by name
    wheel: str = ""
    vectors: str = ""  # instruction set for which the reductions are compiled
    python: tuple[int, int, int] = (3, 11, 0)
    commands: Mapping[str, str] = field(
        default_factory=dict
    )  # by name of the command: the first line that it prints
    host: str = "localhost"
    # addresses of the host's name, or the reason why there are none
    host_addresses: tuple[str, ...] | str = ()
    interfaces: Sequence[tuple[str, str, int]] = ()  # (name, address, flags) of each
    routes: Sequence[str] = ()  # interfaces with a default route
    open_files: tuple[int, int] = (65536, 65536)  # soft and hard limit; RLIM_INFINITY is -1
    locked_bytes: int = -1
    shared_memory: tuple[int, int] | None = (1 << 30, 1 << 30)  # size and free bytes of /dev/shm
    cores: frozenset[int] = frozenset({0})  # cores on which this process may run
    kernel: str = "6.0"

    @property
    def size(self) -> int:
        """Number of ranks of the job; 1 if unknown."""
        return self.placement.size if self.placement else 1

    @property
    def local_size(self) -> int:
        """Number of ranks on this host, according to the launcher."""
        return (self.placement.local_size if self.placement else 1) or 1

    @property
    def one_host(self) -> bool:
        """Whether it is certain that all ranks are on this host."""
        return self.size == 1 or (self.placement is not None and self.placement.one_host)


def collect() -> Facts:
    """Collects the facts about this process.

    No step waits longer than a second. Nothing is imported from other packages, and nothing is
    written.
    """
    from pycollective import _core
    from pycollective.runtime.environment_names import known

    env = dict(os.environ)
    placement, problem = _placed(env)
    host = os.uname().nodename
    return Facts(
        env=env,
        placement=placement,
        problem=problem,
        known_variables=known(_core.environment_markdown()),
        packages=installed(),
        wheel=wheel_tag(),
        vectors=_core.reduce_target(),
        python=sys.version_info[:3],
        commands=answers(env.get("PATH", os.defpath)),
        host=host,
        host_addresses=addresses_of(host),
        interfaces=interfaces(),
        routes=default_route(),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE),
        locked_bytes=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        shared_memory=_shared_memory(Path("/dev/shm")),
        cores=frozenset(os.sched_getaffinity(0)),
        kernel=os.uname().release,
    )


def _placed(env: Mapping[str, str]) -> tuple[Placement | None, str]:
    try:
        return detect(env), ""
    except CollectiveError as error:
        return None, str(error)


def _shared_memory(where: Path) -> tuple[int, int] | None:
    try:
        found = os.statvfs(where)
    except OSError:
        return None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
