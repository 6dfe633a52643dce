"""Builds the kernels for GPUs on their own, in the same way as CMake does in the whole build."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "csrc/kernels/device"


def tool(name: str) -> str:
    """Returns the program beside this Python or in PATH, or "" if there is none."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name) or ""


# The folder alone, in a program that prints what it contains. Only headers of the layers below are
# read.
PROJECT = """
cmake_minimum_required(VERSION 3.24)
project(carries LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
add_library(pc_base INTERFACE)
add_library(pc_warnings INTERFACE)
add_subdirectory({folder} device)
add_executable(carries main.cc)
target_link_libraries(carries PRIVATE pc_device_kernels)
"""
PROGRAM = """
#include <cstdio>
#include "kernels/device/embedded.h"
int main() {
  for (std::string_view target : pc::embedded_targets()) std::fprintf(stderr, "%s ", target.data());
  std::fwrite(pc::embedded_kernels().data(), 1, pc::embedded_kernels().size(), stdout);
}
"""


def configure(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "CMakeLists.txt").write_text(PROJECT.format(folder=FOLDER))
    (folder / "main.cc").write_text(PROGRAM)
    command = [tool("cmake"), "-S", str(folder), "-B", str(folder / "build"), "-G", "Ninja"]
    command.append(f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}")
    return subprocess.run([*command, *words], capture_output=True, text=True, timeout=100)


def carried(folder: Path) -> tuple[bytes, list[str]]:
    """Builds the program and returns what it prints: the kernels, and the targets it names."""
    built = subprocess.run(
        [tool("cmake"), "--build", folder / "build"], capture_output=True, text=True, timeout=100
    )
    assert built.returncode == 0, built.stdout + built.stderr
    said = subprocess.run([folder / "build/carries"], capture_output=True, check=True, timeout=20)
    return said.stdout, said.stderr.decode().split()
