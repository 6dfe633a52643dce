"""Compile for one target and pack a wheel per interpreter. Only the module is compiled for each."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from .debian import Debian
from .interpreters import Interpreter
from .libraries import HIGHWAY, SODIUM, STANDARD_LIBRARY, build_library
from .run import ROOT, Failed, run, say
from .targets import Target
from .toolchain import Toolchain

MOST_NBYTES = 3 << 20
# auditwheel knows the platforms of every processor, but accepts only those of this machine.
AUDITWHEEL = """
import platform, sys
machine = sys.argv.pop(1)
platform.machine = lambda: machine
from auditwheel.main import main
sys.exit(main())
"""


def prepare(target: Target, work: Path, debian: Debian, *more: tuple[str, str]) -> Toolchain:
    """Prepare the compiler for a target, and the libraries that it links."""
    tools = Toolchain(target, work / target.name / "tools", work / target.name / "libraries")
    tools.write()
    for package in (STANDARD_LIBRARY, SODIUM, HIGHWAY, *more):
        build_library(package, debian, tools)
    return tools


def build_wheel(tools: Toolchain, interpreter: Interpreter, cuda: bool, dist: Path) -> Path:
    """Build one wheel. auditwheel verifies that it suits its platform."""
    folder = tools.folder.parent
    made = folder / "made"
    shutil.rmtree(made, ignore_errors=True)
    settings = {
        "build-dir": str(folder / "cmake"),
        "wheel.tags": interpreter.tag(tools.target),
        "cmake.toolchain-file": str(tools.file),
        "cmake.python-hints": "false",
        "cmake.define.PYCOLLECTIVE_CUDA": "ON" if cuda else "OFF",
        "cmake.define.PYCOLLECTIVE_UNITY": "ON",
        "cmake.define.PYBIND11_USE_CROSSCOMPILING": "ON",
        "cmake.define.Python_INCLUDE_DIR": str(interpreter.include),
        "cmake.define.PYTHON_MODULE_EXTENSION": interpreter.suffix(tools.target),
        "cmake.define.PYTHON_MODULE_DEBUG_POSTFIX": "",
        "cmake.define.PYTHON_IS_DEBUG": "OFF",
    }
    options = [f"-C{key}={value}" for key, value in settings.items()]
    say(
        f"compiling for Python {interpreter.version} on {tools.target.name}{', with kernels for GPUs' if cuda else ''}"
    )
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    run(*pip, "--wheel-dir", made, ROOT, *options)
    return repaired(next(made.glob("*.whl")), tools, dist)


def repaired(wheel: Path, tools: Toolchain, dist: Path) -> Path:
    """Add the C++ library to the wheel, and name the wheel after its platform.

    Fails if the wheel needs more than its platform has.
    """
    done = wheel.parent / "repaired"
    env = {"AUDITWHEEL_LD_LIBRARY_PATH": str(tools.libraries / "lib")}
    auditwheel = (sys.executable, "-c", AUDITWHEEL, tools.target.machine)
    run(*auditwheel, "repair", "--only-plat", "--plat", tools.target.tag, "--wheel-dir", done, wheel, env=env)
    found = next(done.glob("*.whl"))
    nbytes = found.stat().st_size
    if nbytes > MOST_NBYTES:
        raise Failed(f"{found.name} has {nbytes} bytes, more than {MOST_NBYTES}")
    dist.mkdir(exist_ok=True)
    say(f"{found.name}: {nbytes:,} bytes")
    return found.replace(dist / found.name)
