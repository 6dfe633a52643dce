"""Packages of any release and architecture of Debian, verified by apt, in a separate folder."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from .run import Failed, run, say

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
RELEASES = ("bookworm", "trixie", "forky")
LISTS_FOR_S = 86400.0  # apt fetches newer lists after this time

CONFIGURATION = """\
Dir::State "{folder}/state";
Dir::State::status "/dev/null";
Dir::Cache "{folder}/cache";
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "-";
APT::Architectures {{ "amd64"; "arm64"; }};
APT::Sandbox::User "root";
"""


def mirror() -> str:
    """Return the mirror that this system is configured to use."""
    places = run(
        "apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", "Label: Debian"
    ).split()
    if not places or not KEYRING.exists():
        raise Failed(
            f"needs a Debian system with {KEYRING}, and lists of packages: run apt-get update as root"
        )
    return places[0]


class Debian:
    """A folder with package lists and unpacked packages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {"APT_CONFIG": str(folder / "apt.conf")}

    def update(self) -> None:
        """Fetch the lists, unless they are less than a day old."""
        stamp = self.folder / "updated"
        if stamp.exists() and time.time() - stamp.stat().st_mtime < LISTS_FOR_S:
            return
        say(f"apt: lists of {', '.join(RELEASES)}, apart from the system's")
        for name in ("state/lists/partial", "cache/archives/partial"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "apt.conf").write_text(CONFIGURATION.format(folder=self.folder))
        lines = [f"[signed-by={KEYRING}] {mirror()} {release} main" for release in RELEASES]
        (self.folder / "sources.list").write_text("".join(f"deb {line}\ndeb-src {line}\n" for line in lines))
        run("apt-get", "update", env=self.env)
        stamp.touch()

    def source(self, package: str, release: str) -> Path:
        """Return the folder with the package's newest sources, with Debian's patches."""
        self.update()
        command = ("apt-get", "source", "--only-source", f"{package}/{release}")
        files = run(*command, "--print-uris", env=self.env).split()
        name = next(file for file in files if file.startswith(package) and file.endswith(".dsc"))
        folder = self.folder / "sources" / name.removesuffix(".dsc")
        if not folder.exists():
            say(f"apt: sources of {folder.name}")
            begun = folder.with_name(f"{folder.name}.begun")
            shutil.rmtree(begun, ignore_errors=True)
            begun.mkdir(parents=True)
            run(*command, where=begun, env=self.env)
            begun.rename(folder)
        return next(path for path in folder.iterdir() if path.is_dir())

    def unpacked(self, package: str, architecture: str, release: str) -> Path:
        """Return the folder with the package's files, which are not installed anywhere."""
        folder = self.folder / "unpacked" / f"{package}-{architecture}-{release}"
        if not folder.exists():
            self.update()
            say(f"apt: {package} of {release} for {architecture}")
            begun = folder.with_name(f"{folder.name}.begun")
            shutil.rmtree(begun, ignore_errors=True)
            begun.mkdir(parents=True)
            run("apt-get", "download", f"{package}:{architecture}/{release}", where=begun, env=self.env)
            archive = next(begun.glob("*.deb"))
            run("dpkg-deb", "--extract", archive, begun / "files")
            archive.unlink()
            begun.rename(folder)
        return folder / "files"
