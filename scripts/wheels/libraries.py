"""The libraries in a wheel: libc++, and libsodium and Highway as archives from Debian's sources."""

from __future__ import annotations

import shutil
from pathlib import Path

from .debian import Debian
from .run import run, say
from .toolchain import LLVM, Toolchain

STANDARD_LIBRARY = ("standard_library", "")
SODIUM, HIGHWAY, GTEST = ("libsodium", "forky"), ("highway", "trixie"), ("googletest", "trixie")
PARALLEL = "2"


def configure_and_make(source: Path, build: Path, tools: Toolchain) -> None:
    run(
        source / "configure",
        f"--host={tools.target.machine}-linux-gnu",
        f"--prefix={tools.libraries}",
        "--disable-shared",
        "--disable-dependency-tracking",
        "--enable-minimal",
        f"CC={tools.program('cc')}",
        f"AR={tools.program('ar')}",
        f"RANLIB={tools.program('ranlib')}",
        "CFLAGS=-fPIC",
        where=build,
    )
    run("make", f"-j{PARALLEL}", "install", where=build)


def cmake_and_ninja(source: Path, build: Path, tools: Toolchain, *options: str) -> None:
    run(
        "cmake",
        "-GNinja",
        f"-S{source}",
        f"-B{build}",
        f"-DCMAKE_TOOLCHAIN_FILE={tools.file}",
        f"-DCMAKE_INSTALL_PREFIX={tools.libraries}",
        "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_POSITION_INDEPENDENT_CODE=ON",
        *options,
    )
    run("cmake", "--build", build, "--parallel", PARALLEL, "--target", "install")


def build_library(package: tuple[str, str], debian: Debian, tools: Toolchain) -> None:
    """Compile and install the library, unless this compiler has already built these sources."""
    name, release = package
    stamp = tools.libraries / f"{name}.built"
    source = debian.source(name, release) if release else Path(__file__).with_name(name)
    own = [] if release else [path.read_text() for path in sorted(source.iterdir())]
    identity = "\n".join([str(source), tools.identity, *own])
    if stamp.exists() and stamp.read_text() == identity:
        return
    say(f"compiling {source.name} for {tools.target.name}")
    build = tools.libraries / "build" / name
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir(parents=True)
    if package == STANDARD_LIBRARY:
        cmake_and_ninja(source, build, tools, f"-DLLVM={LLVM}")
    elif package == SODIUM:
        configure_and_make(source, build, tools)
    elif package == HIGHWAY:
        parts = [f"-DHWY_ENABLE_{part}=OFF" for part in ("CONTRIB", "EXAMPLES", "TESTS")]
        cmake_and_ninja(source, build, tools, *parts, "-DBUILD_TESTING=OFF")
    else:
        cmake_and_ninja(source, build, tools, "-DBUILD_GMOCK=ON")
    shutil.rmtree(build)
    stamp.write_text(identity)
