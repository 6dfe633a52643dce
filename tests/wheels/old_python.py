"""A release of Debian with a newer Python than its own, compiled in a root that is thrown away."""

from __future__ import annotations

import shutil

from roots import Root
from wheels.__main__ import WORK
from wheels.debian import Debian
from wheels.run import run, say
from wheels.targets import Target

NEEDS = "gcc,libc6-dev,libffi-dev,make,pkg-config,zlib1g-dev"
RUNS_WITH = "libffi7,zlib1g"
# The other steps of its installation are not needed here, and take longer than the compiler.
BUILD = """\
cd /python
./configure --quiet --prefix=/usr/local --disable-test-modules CFLAGS=-O1
make -s -j2
rm -r Lib/test
mkdir -p /made/bin /made/lib
cp python /made/bin/python3
cp -r Lib /made/lib/python3.11
cp -r build/lib.* /made/lib/python3.11/lib-dynload
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
        for folder in ("python", "made"):
            shutil.rmtree(builder.folder / folder, ignore_errors=True)
        shutil.copytree(source, builder.folder / "python", symlinks=True)
        builder.run("sh", "-euc", BUILD)
        super().make()
        run("cp", "-a", f"{builder.folder}/made/.", self.folder / "usr" / "local")
        shutil.rmtree(builder.folder)
