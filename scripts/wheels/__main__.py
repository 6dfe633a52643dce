"""Build wheels of pycollective for Linux on x86-64 and aarch64, on Debian without a container."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .build import build_wheel, prepare
from .debian import Debian
from .interpreters import VERSIONS, all_that_can_be_had, find
from .run import ROOT, Failed, run, say
from .targets import TARGETS

WORK = ROOT / "build" / "wheels"
DIST = ROOT / "dist"


def build(options: argparse.Namespace) -> None:
    debian = Debian(WORK / "apt")
    wanted = options.python
    interpreters = [find(each, debian) for each in wanted] if wanted else all_that_can_be_had(debian)
    for name in options.target or TARGETS:
        tools = prepare(TARGETS[name], WORK, debian)
        for interpreter in interpreters:
            build_wheel(tools, interpreter, options.cuda, DIST)


def make_sdist(folder: Path) -> Path:
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", folder, ROOT)
    made: Path = max(folder.glob("*.tar.gz"), key=lambda path: path.stat().st_mtime)
    return made


def sdist(options: argparse.Namespace) -> None:
    say(f"{make_sdist(DIST)}")


def test(options: argparse.Namespace) -> None:
    pytest = (
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "no:cacheprovider",
        "-o",
        "faulthandler_timeout=0",
        ROOT / "tests" / "wheels",
    )
    run(*pytest, *options.arguments, show=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/wheel", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    one = commands.add_parser("build", help="wheels, into dist/")
    one.add_argument("--target", action="append", choices=TARGETS, help="this one (all); may be repeated")
    one.add_argument(
        "--python",
        action="append",
        metavar="VERSION|PATH",
        help=f"this one ({' '.join(VERSIONS)}); may be repeated",
    )
    one.add_argument(
        "--cuda", action="store_true", help="with kernels for GPUs: needs nvcc, docs/gpu-build.md"
    )
    one.set_defaults(do=build)
    one = commands.add_parser("sdist", help="the sources, into dist/")
    one.set_defaults(do=sdist)
    one = commands.add_parser(
        "test", help="prove that what is in dist/ works: tests/wheels; options go to pytest"
    )
    one.set_defaults(do=test)
    options, arguments = parser.parse_known_args()
    options.arguments = arguments
    if arguments and options.do is not test:
        parser.error(f"unknown: {' '.join(arguments)}")
    try:
        options.do(options)
    except Failed as error:
        print(f"wheel: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
