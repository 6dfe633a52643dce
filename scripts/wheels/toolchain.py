"""The cross compiler: Zig's Clang, a PyPI package with the C libraries of every platform."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import ziglang

from .targets import Target

ZIG = Path(ziglang.__file__).with_name("zig")
LLVM = ZIG.with_name("lib")
# Without any -O, Zig makes a debug build, and compiles a second C++ library for it. A later -O
# overrides this one. With -O0, which the fakes use, it also checks for undefined behaviour, by a
# library that shared libraries are not linked with.
FLAGS = "-O2 -g0 -fomit-frame-pointer -ffunction-sections -fdata-sections -fno-sanitize=undefined"

# When it links, it must not link or compile its own C++ library.
CXX = """\
for each; do
  case $each in -c | -E | -S) exec "{zig}" c++ {flags} "$@" ;; esac
done
exec "{zig}" c++ {flags} -nostdlib++ "$@"\
"""

CMAKE = """\
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR {machine})
set(CMAKE_C_COMPILER {folder}/cc)
set(CMAKE_CXX_COMPILER {folder}/c++)
set(CMAKE_AR {folder}/ar)
set(CMAKE_RANLIB {folder}/ranlib)
set(CMAKE_STRIP {folder}/strip)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
foreach(kind IN ITEMS SHARED MODULE EXE)
  set(CMAKE_${{kind}}_LINKER_FLAGS_INIT -s)
endforeach()
if(NOT PROJECT_NAME STREQUAL "standard_library")
  set(CMAKE_CXX_STANDARD_LIBRARIES "{libraries}/lib/libc++.so.1 {libraries}/for_linking/libgcc_s.so.1")
endif()
set(CMAKE_FIND_ROOT_PATH {libraries})
list(PREPEND CMAKE_PREFIX_PATH {libraries})
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
"""


class Toolchain:
    """The programs that compile for one target, and CMake's toolchain file."""

    def __init__(self, target: Target, folder: Path, libraries: Path) -> None:
        self.target = target
        self.folder = folder
        self.libraries = libraries
        self.file = folder / "toolchain.cmake"

    @property
    def identity(self) -> str:
        """Identify the compiler and its flags; output of another compiler is compiled again."""
        return f"ziglang {version('ziglang')} -target {self.target.compiler} {FLAGS}"

    def program(self, name: str) -> Path:
        return self.folder / name

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        compile_for = f"-target {self.target.compiler} {FLAGS}"
        # The linker has already stripped the output.
        lines = {
            "cc": f'exec "{ZIG}" cc {compile_for} "$@"',
            "c++": CXX.format(zig=ZIG, flags=compile_for),
            "ar": f'exec "{ZIG}" ar "$@"',
            "ranlib": f'exec "{ZIG}" ranlib "$@"',
            "strip": "true",
        }
        for name, line in lines.items():
            self.program(name).write_text(f"#!/bin/sh\n{line}\n")
            self.program(name).chmod(0o755)
        text = CMAKE.format(machine=self.target.machine, folder=self.folder, libraries=self.libraries)
        self.file.write_text(text)
