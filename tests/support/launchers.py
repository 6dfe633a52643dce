"""How each launcher starts n ranks of a program, and why it is missing.

Run by test_launchers.py.
"""

from __future__ import annotations

import functools
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

BUILD = Path(__file__).resolve().parents[2] / "build/launchers"
ROOT_FLAG = ["--allow-run-as-root"] if os.geteuid() == 0 else []
Program = Sequence[str]  # the words after "python"


@dataclass(frozen=True)
class Command:
    words: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Launcher:
    name: str
    start: Callable[[int, Program], list[Command]]  # several commands are started together
    missing: Callable[[], str | None]  # why it cannot be used here
    hosts: int = 1  # number of hosts that the launcher sees
    slurm: bool = False  # needs nodes

    def __str__(self) -> str:
        return self.name


def here() -> str | None:
    return None


def torch() -> str | None:
    import importlib.util

    return None if importlib.util.find_spec("torch") else "PyTorch is not installed"


def program(path: str, said: str = "") -> str | None:
    """Returns why there is no such program, or none that prints `said` as its version."""
    found = shutil.which(path)
    if found is None:
        return f"{path} is not installed: scripts/launchers does that"
    if said:
        try:
            done = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=30)
        except subprocess.TimeoutExpired:
            return f"{path} did not say its version within 30 s"
        if said not in done.stdout:
            return f"{path} is not {said}"
    return None


def slurm() -> str | None:
    for name in ("srun", "slurmctld", "slurmd", "munged", "unshare"):
        if reason := program(name):
            return reason
    return None if os.geteuid() == 0 else "only root can start two Slurm nodes on this host"


def alone(words: Sequence[str], **env: str) -> list[Command]:
    return [Command(words, env)]


def pycollective(ranks: int, what: Program) -> list[Command]:
    main = "import sys; from pycollective.cli import main; sys.exit(main())"
    return alone([sys.executable, "-c", main, "run", "-n", str(ranks), "--no-prefix", *what])


def pycollective_twice(ranks: int, what: Program) -> list[Command]:
    """Starts two launchers, as on two machines."""
    main = "import sys; from pycollective.cli import main; sys.exit(main())"
    words = [sys.executable, "-c", main, "run", "-n", str(ranks // 2), "--no-prefix", "--nnodes", "2"]
    words += ["--master", f"127.0.0.1:{free_port()}", "--node-rank"]
    return [Command([*words, str(number), *what]) for number in range(2)]


def torchrun(ranks: int, what: Program) -> list[Command]:
    return alone([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), *what])


def two_agents(ranks: int, what: Program, *, homes: Path, options: Sequence[str] = ()) -> list[Command]:
    """Starts two agents, as on two hosts that share no home directory."""
    words = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        "2",
        "--nproc-per-node",
        str(ranks // 2),
    ]
    words += ["--rdzv-backend", "c10d", "--rdzv-id", "7", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    homes_of = [str(homes / name) for name in ("a", "b")]
    return [Command([*words, *options, *what], {"HOME": home, "XDG_CONFIG_HOME": home}) for home in homes_of]


def two_agents_somewhere(ranks: int, what: Program) -> list[Command]:
    return two_agents(ranks, what, homes=Path("/nonexistent"))


def open_mpi(ranks: int, what: Program, *, mpirun: str) -> list[Command]:
    return alone([mpirun, *ROOT_FLAG, "--oversubscribe", "-np", str(ranks), sys.executable, *what])


def mpich(ranks: int, what: Program, *, hosts: Sequence[str] = ()) -> list[Command]:
    words = [str(BUILD / "mpich/bin/mpiexec")]
    if hosts:
        places = ",".join(f"{host}:{ranks // len(hosts)}" for host in hosts)
        words += ["-launcher", "fork", "-hosts", places]
    return alone([*words, "-n", str(ranks), sys.executable, *what])


def intel_mpi(ranks: int, what: Program) -> list[Command]:
    root = BUILD / "intel-mpi"
    return alone(
        [str(root / "bin/mpiexec.hydra"), "-n", str(ranks), sys.executable, *what],
        I_MPI_ROOT=str(root),
        LD_LIBRARY_PATH=str(root / "lib"),
    )


def srun(ranks: int, what: Program, *, options: Sequence[str] = ()) -> list[Command]:
    return alone(["srun", "-K", "-N2", "-n", str(ranks), *options, sys.executable, *what])


def variables(ranks: int, what: Program) -> list[Command]:
    common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [
        Command([sys.executable, *what], {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(ranks)
    ]


def paddle_variables(ranks: int, what: Program) -> list[Command]:
    """A fake: sets what paddle.distributed.launch 3.3 sets, without Paddle, which is large."""
    port = free_port()
    common = {
        "PADDLE_TRAINERS_NUM": str(ranks),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(f"127.0.0.1:{port + rank}" for rank in range(ranks)),
        "PADDLE_MASTER": f"127.0.0.1:{port + ranks}",
        "PADDLE_LOCAL_SIZE": str(ranks),
    }
    return [
        Command(
            [sys.executable, *what],
            {**common, "PADDLE_TRAINER_ID": str(rank), "PADDLE_LOCAL_RANK": str(rank)},
        )
        for rank in range(ranks)
    ]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


OPEN_MPI_5, MPICH, INTEL_MPI = (
    str(BUILD / path) for path in ("openmpi-5/bin/mpirun", "mpich/bin/mpiexec", "intel-mpi/bin/mpiexec.hydra")
)
bind = functools.partial
LAUNCHERS = (
    Launcher("pycollective", pycollective, here),
    Launcher("pycollective-2machines", pycollective_twice, here, hosts=2),
    Launcher("variables", variables, here),
    Launcher("paddle-variables", paddle_variables, here),
    Launcher("torchrun", torchrun, torch),
    Launcher("torchrun-2agents", two_agents_somewhere, torch, hosts=2),
    Launcher("openmpi-4", bind(open_mpi, mpirun="mpirun"), bind(program, "mpirun", "(Open MPI) 4.")),
    Launcher("openmpi-5", bind(open_mpi, mpirun=OPEN_MPI_5), bind(program, OPEN_MPI_5, "Open MPI")),
    Launcher("mpich", mpich, bind(program, MPICH)),
    Launcher("mpich-2hosts", bind(mpich, hosts=("n0", "n1")), bind(program, MPICH), hosts=2),
    Launcher("intel-mpi", intel_mpi, bind(program, INTEL_MPI)),
    Launcher("srun", srun, slurm, hosts=2, slurm=True),
    Launcher("srun-pmi2", bind(srun, options=["--mpi=pmi2"]), slurm, hosts=2, slurm=True),
)
