"""The options of `pycollective run`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pycollective.launching.environment import with_debugger, with_terminal

DEFAULT_PORT = 29400
LAST_PORT = 65534  # MASTER_PORT is the port after the store's


@dataclass(frozen=True)
class Machines:
    """Several machines with one launcher each. Launchers do not communicate; their ranks do."""

    count: int
    own: int  # the index of this machine
    master: str  # the host of machine 0, by a name that all machines can resolve
    port: int  # port of rank 0's store on machine 0


@dataclass(frozen=True)
class Options:
    ranks: int  # number of ranks on this machine
    command: list[str]
    # the program's arguments after those that the launcher adds
    arguments: list[str] = field(default_factory=list)
    local_rank_arg: str | None = None  # the option that passes the local rank to the program
    log_dir: Path | None = None
    grace_s: float = 5.0
    prefix: bool = True
    # GPUs that the ranks see, in this order; if empty, the ranks see the same as the launcher
    gpus: Sequence[str] = ()
    machines: Machines | None = None
    max_restarts: int = 0
    banner: bool = False
    settings: bool = False  # whether a line for each setting follows the banner
    only: frozenset[int] = frozenset()  # ranks that have their output shown; empty means all
    stdin: int | None = None  # the rank that gets the launcher's standard input
    ranks_are_named: bool = True  # whether -n or --gpus specified the number of ranks

    @property
    def shown(self) -> Collection[int]:
        """The ranks that have their output shown."""
        return self.only or self.here

    @property
    def script(self) -> str | None:
        """The file that this Python will run, or None if the program is not a file."""
        python, *rest = self.command
        return rest[0] if python == sys.executable and len(rest) == 1 else None

    @property
    def of_python(self) -> bool:
        """Whether the ranks run this Python, as far as can be determined."""
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
        """The number of ranks on all machines."""
        return self.ranks * (self.machines.count if self.machines else 1)

    def of_attempt(self, number: int) -> Options:
        """Return the options of attempt `number`.

        A restart gets its own log folder, so that earlier logs are kept.
        """
        if number == 0 or self.log_dir is None:
            return self
        return replace(self, log_dir=self.log_dir / f"restart{number}")

    def environment(self, base: Mapping[str, str]) -> Mapping[str, str]:
        env = with_terminal(with_debugger(base) if self.of_python else base)
        if self.gpus:
            # All ranks see all GPUs: a rank that sees only its own cannot access the other GPUs'
            # memory.
            env["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus)
        return env

    def words(self, local_rank: int) -> list[str]:
        """Return the command line of the rank with that local rank."""
        own = [f"{self.local_rank_arg}={local_rank}"] if self.local_rank_arg else []
        return [*self.command, *own, *self.arguments]
