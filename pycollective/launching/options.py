"""What `pycollective run` is asked to do."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pycollective.launching.environment import with_debugger, with_terminal

DEFAULT_PORT = 29400
LAST_PORT = 65534  # the one after the store's is MASTER_PORT


@dataclass(frozen=True)
class Machines:
    """There are several, each with a launcher of its own. Launchers do not talk to each other: their ranks meet."""

    count: int
    own: int  # which of them this is
    master: str  # the host of machine 0, as all of them know it
    port: int  # of rank 0's store there


@dataclass(frozen=True)
class Options:
    ranks: int  # on this machine
    command: list[str]
    arguments: list[str] = field(default_factory=list)  # of the program, after what we add to them
    local_rank_arg: str | None = None  # the option by which the program gets its local rank
    log_dir: Path | None = None
    grace_s: float = 5.0
    prefix: bool = True
    gpus: Sequence[str] = ()  # what the ranks see of them, in this order; none: as it was
    machines: Machines | None = None
    max_restarts: int = 0
    banner: bool = False
    settings: bool = False  # below the banner, a row for each of them
    only: frozenset[int] = frozenset()  # the ranks whose output is shown; none: all
    stdin: int | None = None  # the rank that has our standard input
    ranks_are_named: bool = True  # by -n or --gpus

    @property
    def shown(self) -> Collection[int]:
        """The ranks whose output is shown."""
        return self.only or self.here

    @property
    def script(self) -> str | None:
        """The file that this Python is to run, if it is a file."""
        python, *rest = self.command
        return rest[0] if python == sys.executable and len(rest) == 1 else None

    @property
    def of_python(self) -> bool:
        """Whether the ranks execute this Python, as far as we know."""
        found = shutil.which(self.command[0]) or ""
        folder, name = os.path.split(os.path.abspath(found))
        return found == sys.executable or (
            name.startswith("python") and folder == os.path.dirname(sys.executable)
        )

    @property
    def here(self) -> range:
        """The ranks on this machine."""
        first = self.machines.own * self.ranks if self.machines else 0
        return range(first, first + self.ranks)

    @property
    def size(self) -> int:
        """How many ranks there are on all machines."""
        return self.ranks * (self.machines.count if self.machines else 1)

    def of_attempt(self, number: int) -> Options:
        """What earlier attempts have logged stays."""
        if number == 0 or self.log_dir is None:
            return self
        return replace(self, log_dir=self.log_dir / f"restart{number}")

    def environment(self, base: Mapping[str, str]) -> Mapping[str, str]:
        env = with_terminal(with_debugger(base) if self.of_python else base)
        if self.gpus:
            # All ranks see all of them: a rank that sees only its own cannot reach the memory of the other GPUs'.
            env["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus)
        return env

    def words(self, local_rank: int) -> list[str]:
        """What that rank executes."""
        own = [f"{self.local_rank_arg}={local_rank}"] if self.local_rank_arg else []
        return [*self.command, *own, *self.arguments]
