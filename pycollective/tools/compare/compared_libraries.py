"""The libraries that can be compared, and the search for them on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PROBE_S = 60.0

GLOO = "import numpy, torch, torch.distributed as d; assert d.is_gloo_available(); print('torch', torch.__version__)"
MPI = (
    "import numpy, mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; "
    "print(MPI.Get_library_version().strip('\\0 \\n').splitlines()[0])"
)
CCL = (
    "import ctypes, pathlib, sys; ctypes.CDLL(str(pathlib.Path(sys.prefix) / 'lib' / 'libccl.so.2')); " + MPI
)


@dataclass(frozen=True)
class Kind:
    """A kind of library: its adapter, the program that detects it, and the name of its MPI."""

    adapter: str
    probe: str
    speaks: str = ""
    starts_by_mpiexec: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


KINDS = {
    "gloo": Kind("gloo", GLOO, environment={"GLOO_SOCKET_IFNAME": "lo"}),
    "openmpi": Kind("mpi", MPI, "Open MPI", starts_by_mpiexec=True),
    "mpich": Kind("mpi", MPI, "MPICH", starts_by_mpiexec=True),
    "intelmpi": Kind(
        "mpi", MPI, "Intel(R) MPI", starts_by_mpiexec=True, environment={"I_MPI_FABRICS": "shm"}
    ),
    "oneccl": Kind(
        "oneccl",
        CCL,
        starts_by_mpiexec=True,
        environment={"CCL_PLUGIN": "ONECCL_LEGACY_CPU", "CCL_LOG_LEVEL": "error"},
    ),
}


@dataclass(frozen=True)
class ComparedLibrary:
    """A library that can be measured: its interpreter, launcher and environment."""

    name: str
    adapter: str
    python: str
    launcher: tuple[str, ...] = ()  # mpiexec and its options; `pycollective run` if empty
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Missing:
    """A requested library that cannot run here."""

    name: str
    why: str


OURS = ComparedLibrary("pycollective", "ours", sys.executable)


def find(name: str, python: str = sys.executable) -> ComparedLibrary | Missing:
    """Returns the library of that name for that interpreter, or why it is missing."""
    kind = KINDS[name]
    environment = {**_home(python), **kind.environment}
    launcher: tuple[str, ...] = ()
    if shutil.which(python) is None:
        return Missing(name, f"there is no interpreter {python}")
    said = _ask(python, kind.probe, environment)
    if said.returncode != 0:
        return Missing(
            name, f"{python}: {_last_line(said.stderr)}; give its interpreter by --peer {name}=PYTHON"
        )
    if kind.speaks not in said.stdout:
        return Missing(
            name, f"the MPI of {python} is {said.stdout.strip()}; --peer {name}=PYTHON gives another"
        )
    if kind.starts_by_mpiexec:
        mpiexec = _mpiexec(python)
        if mpiexec is None:
            return Missing(name, f"there is no mpiexec beside {python} or in PATH")
        launcher = (mpiexec, *_options("Open MPI" in said.stdout))
    return ComparedLibrary(name, kind.adapter, python, launcher, environment)


def _home(python: str) -> dict[str, str]:
    """Returns variables by which the interpreter's own libraries and programs are found first."""
    folder = Path(python).parent
    if python == sys.executable or not folder.is_absolute():
        return {}
    libraries = [str(folder.parent / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    return {
        "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}",
        "LD_LIBRARY_PATH": os.pathsep.join(path for path in libraries if path),
        "PYTHONPATH": "",  # this process's PYTHONPATH must not affect another interpreter
    }


def _ask(python: str, program: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [python, "-c", program]
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PROBE_S,
            cwd="/",
            env={**os.environ, **environment},
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer in {PROBE_S:.0f} s")


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it ended without a word"


def _mpiexec(python: str) -> str | None:
    beside = Path(python).parent / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def _options(open_mpi: bool) -> list[str]:
    if not open_mpi:
        return []
    return [*(["--allow-run-as-root"] if os.geteuid() == 0 else []), "--map-by", ":OVERSUBSCRIBE"]
