"""The headers of an interpreter: from Debian, or from an interpreter of this machine.

Headers for x86-64 serve every 64-bit Linux: those for other processors differ only in what
compiling Python itself needs.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .debian import Debian
from .run import Failed, say
from .targets import Target

VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
RELEASE_WITH = {"3.11": "bookworm", "3.13": "trixie", "3.14": "forky"}

ASK = """
import os.path, sys, sysconfig
print(f"{sys.version_info[0]}.{sys.version_info[1]}{'t' * bool(sysconfig.get_config_var('Py_GIL_DISABLED'))}")
include = sysconfig.get_path("include")
folder, name = os.path.split(include)
of_debian = os.path.join(folder, sysconfig.get_config_var("MULTIARCH") or "", name, "pyconfig.h")
print(include)
print(of_debian if os.path.exists(of_debian) else sysconfig.get_config_h_filename())
"""


@dataclass(frozen=True)
class Interpreter:
    """A version such as 3.13 or 3.13t, and the folder with its headers."""

    version: str
    include: Path

    @property
    def number(self) -> str:
        return self.version.replace(".", "")

    def suffix(self, target: Target) -> str:
        return f".cpython-{self.number}-{target.machine}-linux-gnu.so"

    def tag(self, target: Target) -> str:
        return f"cp{self.number.rstrip('t')}-cp{self.number}-{target.platform}"


def together(version: str, headers: Path, config: str, debian: Debian) -> Interpreter:
    """Combine Debian's two folders: the headers, and pyconfig.h with the platform's settings."""
    include = debian.folder / "include" / f"python{version}"
    begun = include.with_name(f"{include.name}.begun")
    shutil.rmtree(begun, ignore_errors=True)
    shutil.copytree(headers, begun)
    (begun / "pyconfig.h").write_text(config)
    shutil.rmtree(include, ignore_errors=True)
    begun.rename(include)
    return Interpreter(version, include)


def asked(program: str, debian: Debian) -> Interpreter | None:
    """Return the headers of an interpreter on this machine, or None if it has none."""
    try:
        done = subprocess.run([program, "-c", ASK], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    version, include, config = done.stdout.split("\n")[:3]
    if not Path(include, "Python.h").exists():
        return None
    if Path(config).parent != Path(include):
        return together(version, Path(include), Path(config).read_text(), debian)
    return Interpreter(version, Path(include))


def installed(version: str, debian: Debian) -> Interpreter | None:
    """Find an interpreter in PATH, or one that pyenv has built."""
    built = sorted(Path.home().glob(f".pyenv/versions/{version.rstrip('t')}.*/bin/python{version}"))
    for program in (f"python{version}", *map(str, reversed(built))):
        found = asked(program, debian)
        if found is not None and found.version == version:
            return found
    return None


def from_debian(version: str, debian: Debian) -> Interpreter:
    """Return the headers that Debian has packaged."""
    plain = version.rstrip("t")
    files = debian.unpacked(f"libpython{plain}-dev", "amd64", RELEASE_WITH[plain]) / "usr" / "include"
    config = (files / "x86_64-linux-gnu" / f"python{plain}" / "pyconfig.h").read_text()
    if version.endswith("t"):  # the only difference of a free-threaded build's headers
        config = config.replace("/* #undef Py_GIL_DISABLED */", "#define Py_GIL_DISABLED 1")
    return together(version, files / f"python{plain}", config, debian)


def all_that_can_be_had(debian: Debian) -> list[Interpreter]:
    """Return the headers of every available version, and print which are missing, and why."""
    found = []
    for version in VERSIONS:
        try:
            found.append(find(version, debian))
        except Failed as error:
            say(f"left out: {error}")
    return found


def find(wanted: str, debian: Debian) -> Interpreter:
    """Return the headers for a version, or those of the interpreter at a path."""
    if "/" in wanted:
        found = asked(wanted, debian)
        if found is None:
            raise Failed(f"{wanted} is no Python that runs here and has its headers")
        return found
    if wanted.rstrip("t") in RELEASE_WITH:
        return from_debian(wanted, debian)
    found = installed(wanted, debian)
    if found is None:
        raise Failed(
            f"no headers of Python {wanted}: Debian has those of {', '.join(RELEASE_WITH)}, and no python{wanted} "
            f"with headers is in PATH or in ~/.pyenv. Install one and name it: --python /path/to/python{wanted}"
        )
    return found
