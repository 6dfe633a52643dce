"""The parts of the report: what is run, for how long at most, and what its output means."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import readers
from .check import FAILED, SKIPPED, Check
from .readers import Judge, Read

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 480.0  # of all parts
PROGRAMS_S = 165.0  # in which the programs of users begin
COMPARED = "allreduce,broadcast,allgather,reduce_scatter,alltoall"  # with NCCL's own
EVERY = "allreduce,broadcast,reduce,allgather,reduce_scatter,alltoall,gather,scatter,scan,exscan"
# Two ranks of NCCL on one GPU: they connect on this host, and leave each other room to run.
SHARED = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_MAX_CTAS": "4", "NCCL_RAS_ENABLE": "0"}


@dataclass(frozen=True)
class Places:
    """The paths of what the parts run."""

    python: str
    test_gpu: Path
    wheels: Path
    site: Path


@dataclass(frozen=True)
class Part:
    """`instead`: why it is not run, as its checks."""

    name: str
    command: Sequence[str]
    deadline_s: float
    read: Read
    env: Mapping[str, str] = field(default_factory=dict)
    needs_package: bool = True
    instead: tuple[Check, ...] = ()


def bench(
    places: Places, part: str, name: str, deadline_s: float, judge: Judge, words: str, **env: str
) -> Part:
    command = [places.python, "-m", "pycollective.tools.bench_binary", "--device", "cuda", "--json"]
    read = functools.partial(readers.read_bench, "benchmark", name, judge)
    return Part(part, [*command, *words.split()], deadline_s, read, env)


def install(places: Places) -> Part:
    pip = [places.python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target"]
    wheels = [str(each) for each in sorted(places.wheels.glob("*.whl"))]
    part, name = "package", "it can be installed without a network"
    why = f"there is no wheel in {places.wheels}: PYCOLLECTIVE_GPU_PYTHON=... scripts/build gpu makes it"
    absent = () if wheels else (Check(part, name, FAILED, why),)
    read = functools.partial(readers.read_code, part, name)
    return Part("install", [*pip, str(places.site), *wheels], 35, read, {}, False, absent)


def cpp(places: Places, tests: Sequence[str]) -> list[Part]:
    kernels = [each for each in tests if each.startswith("KernelsOnGpu.")]
    run = functools.partial(readers.read_gtest, "C++", tests)
    sanitizer = shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path="/usr/local/cuda/bin"
    )
    memcheck = [
        sanitizer or "compute-sanitizer",
        "--tool",
        "memcheck",
        "--error-exitcode",
        "9",
        str(places.test_gpu),
    ]
    name = "memcheck of KernelsOnGpu"
    absent = (
        () if sanitizer else (Check("compute-sanitizer", name, SKIPPED, "not run: no compute-sanitizer"),)
    )
    return [
        Part("cpp", [str(places.test_gpu), "--gtest_brief=0", "--gtest_color=no"], 45, run, {}, False),
        Part(
            "sanitizer",
            [*memcheck, "--gtest_color=no", f"--gtest_filter={':'.join(kernels) or 'KernelsOnGpu.*'}"],
            40,
            functools.partial(readers.read_sanitizer, "compute-sanitizer", name),
            {},
            False,
            absent,
        ),
    ]


def python_checks(places: Places, together: Sequence[str], alone: Sequence[str]) -> list[Part]:
    """In two programs, so that ranks that hang take no time from the checks of one rank."""
    script = str(ROOT / "tests" / "gpu" / "card" / "on_gpu.py")
    parts = []
    for name, checks, deadline_s in (("together", together, 75), ("alone", alone, 45)):
        read = functools.partial(readers.read_on_gpu, "Python", checks)
        parts.append(Part(f"python_{name}", [places.python, script, name], deadline_s, read))
    return parts


def programs(places: Places, names: Sequence[str], logs: Path) -> Part:
    """The programs of users in tests/gpu.

    They run alone, because some fill the GPU or measure time.
    """
    path = os.pathsep.join([str(places.site), str(ROOT / "tests")])
    words = [
        "-m",
        "gpu",
        "--device",
        "cuda",
        "--within",
        f"{PROGRAMS_S:.0f}",
        "--logs",
        str(logs / "programs"),
    ]
    read = functools.partial(readers.read_on_gpu, "programs", names)
    return Part("programs", [places.python, *words], PROGRAMS_S + 15, read, {"PYTHONPATH": path})


def benchmarks(places: Places) -> list[Part]:
    few = "--iters 3 -w 1"
    parts = [
        bench(
            places,
            "bench_small",
            "8 B, 1 rank beside NCCL",
            10,
            readers.added_to_nccl,
            "allreduce -n 1 --way nccl --raw --sizes 8 -N 5",
        ),
        bench(
            places,
            "bench_1_rank",
            "1 rank beside NCCL",
            25,
            readers.figures_beside_nccl,
            f"--ops {COMPARED} -n 1 --way nccl --raw --sizes 8,1M,256M",
        ),
        bench(
            places,
            "bench_graph",
            "CUDA graph, 1 rank",
            10,
            readers.figures_beside_nccl,
            "allreduce -n 1 --way nccl --raw -G 10 --iters 20 --sizes 8,1M",
        ),
    ]
    for size in (2, 4, 8):
        name = f"{size} ranks on one GPU: every collective"
        words = f"--ops {EVERY} -n {size} --gpus 0 --sizes 8,100000,4M {few}"
        parts.append(bench(places, f"bench_{size}_ranks", name, 15, readers.all_right, words))
    parts.append(
        bench(
            places,
            "bench_256M",
            "256 MiB on one GPU, 2 ranks",
            15,
            readers.bandwidth,
            "allreduce -n 2 --gpus 0 --sizes 256M --iters 10 -w 2 --copy",
        )
    )
    shared = "-n 2 --gpus 0 --allow-shared-gpu --way nccl --raw"
    by_nccl = f"--ops {COMPARED} {shared} --sizes 8,1M --iters 20 -w 2"
    name = "2 ranks by NCCL on one GPU"
    parts.append(bench(places, "bench_hostid", name, 20, readers.figures_beside_nccl, by_nccl, **SHARED))
    return parts


def places_here() -> Places:
    build = ROOT / "build" / "gpu"
    return Places(sys.executable, build / "tests" / "cpp" / "test_gpu", build / "wheels", build / "site")
