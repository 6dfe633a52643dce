"""A release of Debian with a newer Python than its own, which is compiled there, in a root that is thrown away."""

from __future__ import annotations

import shutil

from roots import Root
from wheels.__main__ import WORK
from wheels.debian import Debian
from wheels.run import run, say
from wheels.targets import Target

NEEDS = "gcc,libc6-dev,libffi-dev,make,pkg-config,zlib1g-dev"
RUNS_WITH = "libffi7,zlib1g"
BUILD = """\
cd /python && ./configure --quiet --prefix=/usr/local --without-doc-strings CFLAGS=-O1 MODULE_BUILDTYPE=static
make -s -j2 && make -s install DESTDIR=/made
"""


class OldPython(Root):
    """Python 3.11 below /usr/local, from the sources that Debian 12 has."""

    def __init__(self, release: str, target: Target) -> None:
        super().__init__(release, target, packages=RUNS_WITH)

    def make(self) -> None:
        if self.folder.exists():
            return
        builder = Root(self.release, self.target, name=f"{self.release}-builder", packages=NEEDS)
        builder.make()
        say("compiling Python 3.11")
        source = Debian(WORK / "apt").source("python3.11", "bookworm")
        shutil.copytree(source, builder.folder / "python", symlinks=True, dirs_exist_ok=True)
        builder.run("sh", "-euc", BUILD)
        super().make()
        run("cp", "-a", f"{builder.folder}/made/usr/local/.", self.folder / "usr" / "local")
        shutil.rmtree(builder.folder)
