"""Other systems in a folder: unpacked Debian packages, entered with chroot in own namespaces.

Needs root, debootstrap and, for another processor, qemu-user-static.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from wheels.debian import mirror
from wheels.run import ROOT, run, say
from wheels.targets import Target

HERE = ROOT / "build" / "wheels" / "roots"
# the same script for all releases, including those that debootstrap does not know yet
SCRIPT = "/usr/share/debootstrap/scripts/sid"
BINFMT = Path("/proc/sys/fs/binfmt_misc")
PACKAGES = Path("opt", "packages")

# A process in the root sees only its own processes, and has shared memory. All of it ends with the
# last process.
ENTER = """\
mount -t proc proc "$1/proc"
mount -t tmpfs tmpfs "$1/dev/shm"
exec chroot "$@"
"""


class Root:
    """One system: a release of Debian, for one processor."""

    def __init__(self, release: str, target: Target, name: str = "", packages: str = "") -> None:
        self.release = release
        self.target = target
        self.packages = packages
        self.folder = HERE / f"{name or release}-{target.debian}"

    def make(self) -> None:
        if self.folder.exists():
            return
        say(f"debootstrap: {self.release} for {self.target.debian} {self.packages}")
        begun = self.folder.with_name(f"{self.folder.name}.begun")
        shutil.rmtree(begun, ignore_errors=True)
        begun.parent.mkdir(parents=True, exist_ok=True)
        options = [f"--arch={self.target.debian}", "--variant=minbase"]
        if self.packages:
            options.append(f"--include={self.packages}")
        run("debootstrap", *options, self.release, begun, mirror(), SCRIPT)
        shutil.rmtree(begun / "var" / "cache" / "apt")
        begun.rename(self.folder)

    def run(self, *command: str, env: Mapping[str, str] | None = None) -> str:
        """Returns what a command in the root prints.

        The command finds what `install` has put there.
        """
        inside = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": f"/{PACKAGES}",
            "HOME": "/root",
            **(env or {}),
        }
        words = [f"{name}={value}" for name, value in inside.items()]
        spaces = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", ENTER, "sh")
        return run(*spaces, self.folder, "env", "-i", *words, *command)

    def install(self, dist: Path, *packages: str) -> None:
        """Installs the wheel for the root's Python and other packages, as pip would there."""
        version = self.run("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
        wheel = wheel_for(version, self.target, dist)
        to = self.folder / PACKAGES
        shutil.rmtree(to, ignore_errors=True)
        platforms = [f"--platform=manylinux_2_{minor}_{self.target.machine}" for minor in (28, 27, 17)]
        platforms.append(f"--platform=manylinux2014_{self.target.machine}")
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--no-compile")
        run(*pip, "--target", to, "--python-version", version, *platforms, wheel, *packages)

    def has(self, program: str) -> bool:
        return any(
            (self.folder / folder / program).exists() for folder in ("usr/bin", "bin", "usr/local/bin")
        )


def wheel_for(version: str, target: Target, dist: Path) -> Path:
    number = version.replace(".", "")
    found = sorted(
        dist.glob(f"pycollective-*-cp{number}-cp{number}-*{target.machine}.whl"),
        key=lambda path: path.stat().st_mtime,
    )
    assert found, f"no wheel for Python {version} on {target.name} in {dist}: scripts/wheel build"
    return found[-1]


def run_aarch64_programs() -> None:
    """Registers QEMU with Linux for these programs, as systemd does where it runs."""
    if not (BINFMT / "register").exists():
        run("mount", "-t", "binfmt_misc", "binfmt_misc", BINFMT)
    if not (BINFMT / "qemu-aarch64").exists():
        (BINFMT / "register").write_text(Path("/usr/lib/binfmt.d/qemu-aarch64.conf").read_text())
