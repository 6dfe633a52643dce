"""What is compiled for aarch64 works there: under QEMU, which translates its programs."""

from __future__ import annotations

import json
import secrets
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import AARCH64
from roots import Root
from wheels.__main__ import WORK
from wheels.build import prepare
from wheels.debian import Debian
from wheels.libraries import GTEST
from wheels.run import ROOT, run

RANK = Path(__file__).with_name("digest_rank.py")
KEY = secrets.token_bytes(32)  # of the job, which all machines are given
# What QEMU does not support in the programs that it translates.
LEFT_OUT = (
    "Segment.every_page_is_entered_when_it_is_mapped",  # madvise
    "SingleLocalPeers.memory_is_there_before_it_is_touched",
    "PendingConnection.is_rejected_for_too_few_or_too_many_descriptors",  # 200 descriptors in a message
    "ProcessMemory.threads_of_one_process_read_each_other",  # process_vm_readv
)
LAYERS = ("base", "kernels", "wire", "net", "store", "transport", "engine", "comm")


@pytest.mark.timeout(5400)
def test_the_layers_on_aarch64(aarch64: Root) -> None:
    """Runs the C++ tests that need no GPU, with longer timeouts, because QEMU is slow."""
    tools = prepare(AARCH64, WORK, Debian(WORK / "apt"), GTEST)
    build = WORK / AARCH64.name / "tests"
    emulator = (
        "qemu-aarch64-static",
        "-L",
        c_library(aarch64),
        "-E",
        f"LD_LIBRARY_PATH={tools.libraries}/lib",
    )
    defines = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_TOOLCHAIN_FILE": tools.file,
        "CMAKE_CROSSCOMPILING_EMULATOR": ";".join(map(str, emulator)),
        "PYCOLLECTIVE_TESTS": "ON",
        "PYCOLLECTIVE_CUDA": "OFF",
        "PYCOLLECTIVE_TEST_TIMEOUT": 600,
    }
    run(
        "cmake",
        "-GNinja",
        f"-S{ROOT}",
        f"-B{build}",
        *(f"-D{name}={value}" for name, value in defines.items()),
    )
    run("cmake", "--build", build, "--parallel", "2", "--target", *(f"test_{layer}" for layer in LAYERS))
    run(
        "ctest",
        "--test-dir",
        build,
        "--parallel",
        "2",
        "--output-on-failure",
        "--no-tests=error",
        "-L",
        f"^({'|'.join(LAYERS)})$",
        env={"PYCOLLECTIVE_CASES_LEFT_OUT": ":".join(LEFT_OUT)},
    )


def c_library(root: Root) -> Path:
    """A folder with only a root's libraries: from a whole root, QEMU takes /dev and /proc, too."""
    folder = root.folder.with_name(f"{root.folder.name}.libraries")
    folder.mkdir(exist_ok=True)
    if not (folder / "lib").is_symlink():
        (folder / "lib").symlink_to(root.folder / "usr" / "lib")
    return folder


@pytest.mark.timeout(1800)
def test_ranks_on_aarch64(aarch64: Root) -> None:
    shutil.copy(ROOT / "examples" / "01_hello.py", aarch64.folder / "root")
    assert "aarch64" in aarch64.run("python3", "-c", "import os, pycollective; print(os.uname().machine)")
    command = ("python3", "-m", "pycollective", "run", "-n", "2", "--no-prefix", "/root/01_hello.py")
    lines = aarch64.run(*command, env={"PYCOLLECTIVE_TIMEOUT_S": "300"}).splitlines()
    assert sorted(lines) == [f"rank {rank} of 2: [3. 3. 3.]" for rank in range(2)]


@pytest.mark.timeout(3600)
def test_ranks_on_both_processors_have_the_bits_of_one(x86_64: Root, aarch64: Root) -> None:
    alone = digests([x86_64] * 4)
    mixed = digests([x86_64, aarch64, x86_64, aarch64])
    assert {each["machine"] for each in mixed} == {"x86_64", "aarch64"}
    assert {each["digest"] for each in alone} == {alone[0]["digest"]} == {each["digest"] for each in mixed}


def digests(roots: list[Root]) -> list[dict[str, str]]:
    """Returns what each rank of a world found; rank 0 runs in `roots[0]`, and so on.

    The ranks use TCP, as two processors are two machines.
    """
    address = f"127.0.0.1:{free_port()}"
    with ThreadPoolExecutor(len(roots)) as threads:
        started = [
            threads.submit(one_rank, root, address, str(rank), str(len(roots)))
            for rank, root in enumerate(roots)
        ]
        return [json.loads(each.result().strip().rpartition("\n")[2]) for each in started]  # after warnings


def one_rank(root: Root, *place: str) -> str:
    shutil.copy(RANK, root.folder / "root")
    key = root.folder / "root" / "key"
    key.write_bytes(KEY)
    key.chmod(0o600)
    variables = {"PYCOLLECTIVE_TRANSPORT": "tcp", "PYCOLLECTIVE_KEY_FILE": "/root/key"}
    return root.run("python3", f"/root/{RANK.name}", *place, env=variables)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
