"""The options of `pycollective bench` that request a comparison."""

from __future__ import annotations

import argparse
from pathlib import Path

from pycollective.tools.compare.compared_libraries import KINDS

PICTURES = (".png", ".svg", ".pdf")


def names(text: str) -> list[str]:
    """Parses a list of libraries, such as `gloo,openmpi`."""
    words = text.split(",") if text else []
    return [_known(word) for word in words]


def peer(text: str) -> tuple[str, str]:
    """Parses a library and its interpreter, such as `openmpi=/opt/ompi/bin/python`."""
    name, separator, python = text.partition("=")
    if not separator or not python:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PYTHON")
    return _known(name), python


def picture(text: str) -> Path:
    """Parses a file name with the suffix of a picture format."""
    path = Path(text)
    if path.suffix not in PICTURES:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(PICTURES)}")
    return path


def _known(name: str) -> str:
    if name not in KINDS:
        raise argparse.ArgumentTypeError(f"no such peer: {name!r}; there are {' '.join(KINDS)}")
    return name


def positive(text: str) -> int:
    """Parses a number of at least one."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a comparison. Any of them makes `pycollective bench` a comparison.

    Without peer libraries, pycollective is compared only with the roofline of the machine.
    """
    group = parser.add_argument_group("comparison, of float32 sums; any of these asks for it")
    group.add_argument(
        "--compare", type=names, metavar="PEERS", help=f"libraries to measure alternately: {','.join(KINDS)}"
    )
    group.add_argument(
        "--peer",
        type=peer,
        action="append",
        default=[],
        metavar="NAME=PYTHON",
        help="the interpreter of a peer (default: this one)",
    )
    group.add_argument(
        "--plot",
        type=picture,
        action="append",
        default=[],
        metavar="FILE",
        help="draw curves into FILE.png or FILE.svg",
    )
    group.add_argument("--json", metavar="FILE", help="all figures; - instead of the table")
    group.add_argument("--rounds", type=positive, default=3, help="launches of each library (default 3)")
    group.add_argument(
        "--limit", type=positive, default=300, metavar="S", help="seconds that one launch may take (300)"
    )


def asked_for(options: argparse.Namespace) -> bool:
    """Returns whether the options request a comparison."""
    return bool(options.compare is not None or options.peer or options.plot or options.json)
