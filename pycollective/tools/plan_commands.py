"""`pycollective plan`: the catalog of algorithms, their steps, checks and predicted times.

These commands start no ranks.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence

from pycollective import _core
from pycollective.errors import CollectiveError

__all__ = ["add_arguments", "run"]

DRAWN_RANKS = 8
CHECKED_SPLITS = (1, 3)
ROOTED = ("broadcast", "reduce", "gather", "scatter")


def ranks(text: str) -> int:
    """Parses a number of ranks."""
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of ranks: 1 to 65535")
    return int(text)


def ranks_range(text: str) -> range:
    """Parses `8` or `1..64`, both ends included."""
    first, dots, last = text.partition("..")
    sizes = range(ranks(first), ranks(last if dots else first) + 1)
    if not sizes:
        raise argparse.ArgumentTypeError(f"'{text}' is empty: write the smaller number first, as in 1..64")
    return sizes


def number(text: str) -> int:
    """Parses a rank, or a number of pieces of an array."""
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 0 to 65535")
    return int(text)


def nbytes(text: str) -> int:
    """Parses `65536`, `64k`, `64m` or `1g`."""
    match = re.fullmatch(r"(\d{1,15})([kmg]?)", text.lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"'{text}' is no size in bytes: write 65536, 64k, 64m or 1g")
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the four subcommands and their options."""
    commands = parser.add_subparsers(dest="plan_command", required=True, metavar="command")
    listing = commands.add_parser("list", help="the algorithms: for which shapes, at what cost, from where")

    show = commands.add_parser("show", help="an algorithm's messages, or one rank's steps")
    check = commands.add_parser("check", help="prove plans right, without running them")
    simulate = commands.add_parser(
        "simulate", help="run all ranks' plans on data in this process, thousands if need be"
    )
    for one in (show, simulate):
        one.add_argument("collective", help="for example allreduce")
        one.add_argument("--algorithm", required=True, help="a name from `pycollective plan list`")
        one.add_argument("-n", "--ranks", type=ranks, required=True)
        one.add_argument("--root", type=number, default=0, metavar="R")
        one.add_argument("--split", type=number, default=1, metavar="K", help="pieces that follow each other")
    show.add_argument(
        "--rank", type=number, help=f"only its steps (default: all messages up to {DRAWN_RANKS} ranks)"
    )
    check.add_argument("--algorithm", help="only this one (default: all)")
    check.add_argument("--collective", help="only this one (default: all)")
    check.add_argument(
        "-n", "--ranks", type=ranks_range, default=range(1, 65), metavar="N|A..B", help="default 1..64"
    )
    splits = " and ".join(map(str, CHECKED_SPLITS))
    check.add_argument(
        "--split", type=number, action="append", metavar="K", help=f"may be repeated; default {splits}"
    )
    simulate.add_argument(
        "--nbytes", type=nbytes, default=1 << 20, help="of the whole array: 64m (default 1m)"
    )
    simulate.add_argument(
        "--model", choices=sorted(_core._plan_models()), default="ethernet_10g", help="of the links"
    )
    for one in (listing, check, simulate):
        one.add_argument("--json", action="store_true", help="for programs")


def run(options: argparse.Namespace) -> int:
    """Runs a subcommand. Returns 1 if a plan is wrong, 2 if the request is invalid."""
    command = {"list": _list, "show": _show, "check": _check, "simulate": _simulate}[options.plan_command]
    try:
        return command(options)
    except CollectiveError as error:
        print(f"pycollective plan {options.plan_command}: {error}", file=sys.stderr)
        return 2


def _table(rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _list(options: argparse.Namespace) -> int:
    catalog = _core._plan_catalog()
    if options.json:
        print(json.dumps(catalog, indent=2))
        return 0
    names = ["collective", "algorithm", "shapes", "cost", "source"]
    print(_table([names, *([row[name] for name in names] for row in catalog)]))
    return 0


def _show(options: argparse.Namespace) -> int:
    subject = (options.collective, options.algorithm, options.ranks, options.root, options.split)
    if options.rank is None and options.ranks <= DRAWN_RANKS:
        print(_core._plan_drawing(*subject), end="")
    else:
        print(_core._plan_steps(*subject, options.rank or 0), end="")
    return 0


def _subjects(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    catalog = [(row["collective"], row["algorithm"]) for row in _core._plan_catalog()]
    wanted = [
        (collective, algorithm)
        for collective, algorithm in catalog
        if options.collective in (None, collective) and options.algorithm in (None, algorithm)
    ]
    if not wanted:
        raise CollectiveError("there is no such algorithm: `pycollective plan list` shows all")
    yield from wanted


def _worlds(
    collective: str, algorithm: str, sizes: range, splits: Sequence[int]
) -> Iterator[tuple[int, int, int, bool]]:
    """Yields the supported combinations of size, root, split, and whether parts are even."""
    for size in sizes:
        for root in sorted({0, size // 2, size - 1} if collective in ROOTED else {0}):
            for split in splits:
                for even in (True, False):
                    if _core._plan_supports(collective, algorithm, size, root, split, even):
                        yield size, root, split, even


def _check(options: argparse.Namespace) -> int:
    results = []
    for collective, algorithm in _subjects(options):
        found: dict[str, object] = {
            "collective": collective,
            "algorithm": algorithm,
            "worlds": 0,
            "errors": [],
        }
        methods, errors, worlds = set(), [], 0
        for size, root, split, even in _worlds(
            collective, algorithm, options.ranks, options.split or CHECKED_SPLITS
        ):
            checked = _core._plan_check(collective, algorithm, size, root, split, even)
            worlds += 1
            methods.add(checked["method"])
            if checked["error"]:
                errors.append(checked["error"])
        found.update(worlds=worlds, methods=sorted(methods), errors=errors)
        results.append(found)
        if not options.json:
            outcome = (
                "right" if worlds and not errors else f"{len(errors)} WRONG" if errors else "none to check"
            )
            print(
                f"{collective} {algorithm}: {worlds} worlds, {outcome} ({', '.join(sorted(methods)) or '-'})"
            )
            for error in errors[:3]:
                print(f"  {error}")
    if options.json:
        print(json.dumps(results, indent=2))
    return 1 if any(found["errors"] for found in results) else 0


def _seconds(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _simulate(options: argparse.Namespace) -> int:
    subject = (options.collective, options.algorithm, options.ranks, options.root, options.split)
    result = _core._plan_simulate(*subject, options.nbytes, options.model)
    if options.json:
        print(json.dumps({"nbytes": options.nbytes, "model": options.model, **result}, indent=2))
        return 0
    least, most = result["sent_nbytes_least"], result["sent_nbytes_most"]
    about = "" if result["exact"] else ", about"
    print(f"result    right on all {options.ranks} ranks")
    print(f"steps     {result['steps']} of all ranks, {result['messages']} messages")
    print(f"rounds    {result['rounds']} messages on the longest chain")
    print(
        f"sent      {least} bytes by a rank"
        if least == most
        else f"sent      {least} to {most} bytes by a rank"
    )
    print(f"predicted {_seconds(result['seconds'])} ({options.model}{about})")
    return 0
