"""The command line of `pycollective run`."""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import os
import re
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from pycollective.launching.gpus import ranks_by_default
from pycollective.launching.options import DEFAULT_PORT, LAST_PORT, Machines, Options

GPU = re.compile(r"\d+|(GPU|MIG)-[\w/-]+", re.ASCII)  # the forms of a GPU that CUDA_VISIBLE_DEVICES accepts
MASTER = re.compile(r"(?:\[([^][/]+)\]|([^][/:]+))(?::(\d+))?|[^][/]+", re.ASCII)


def positive(text: str) -> int:
    """Parse a number of ranks."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def ranks(text: str) -> int | None:
    """Parse `4` or `auto`. Returns None for `auto`, which is the default."""
    if text == "auto":
        return None
    if text in ("gpu", "cpu"):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number: leave -n out, or write auto, for as many as there are GPUs, or cores without any"
        )
    return positive(text)


def machine_count(text: str) -> int:
    """Parse a number of machines. Refuses ranges, which torchrun accepts."""
    if re.fullmatch(r"\d+:\d+", text):
        raise argparse.ArgumentTypeError(
            f"ranges such as {text} are not supported: a world has a fixed number of machines, as --nnodes "
            f"{text.partition(':')[2]}. Where it shall change, torchrun --nnodes {text} starts our ranks, too"
        )
    return positive(text)


def count(text: str) -> int:
    """Parse a number, which may be 0."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must be 0 or more")
    return value


def gpus(text: str) -> tuple[str, ...]:
    """Parse distinct GPUs: `0,1`, or `GPU-8f6f...,GPU-...`."""
    found = tuple(str(int(word)) if word.isdecimal() else word for word in text.split(","))
    if wrong := [word for word in found if not GPU.fullmatch(word)]:
        raise argparse.ArgumentTypeError(
            f"{wrong[0]!r} in {text!r} is no GPU: write numbers or names from `nvidia-smi -L`, as 0,1 or GPU-8f6f..."
        )
    if len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(
            f"{text!r} names a GPU twice; several ranks may share one: give -n as well"
        )
    if len({word.isdecimal() for word in found}) > 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} has numbers and names; libraries understand only one of both"
        )
    return found


def several(text: str) -> frozenset[int]:
    """Parse a set of ranks: `0,3`."""
    return frozenset(count(word) for word in text.split(","))


def master(text: str) -> tuple[str, int]:
    """Parse `node1`, `node1:29400`, `10.0.0.1`, `[fd00::1]:29400` or `fd00::1`."""
    found = MASTER.fullmatch(text)
    if found is None or not is_host(host := found[1] or found[2] or text):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST or HOST:PORT, as node1 or 10.0.0.1:29400")
    port = int(found[3] or DEFAULT_PORT)
    if not 0 < port <= LAST_PORT:
        raise argparse.ArgumentTypeError(f"the port of {text!r} must be from 1 to {LAST_PORT}")
    if host in ("0.0.0.0", "::"):
        raise argparse.ArgumentTypeError(f"{text!r}: name the address by which other machines reach this one")
    return host, port


def is_host(text: str) -> bool:
    """Return whether the text is a host name or a valid address."""
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(text)
        return True
    return ":" not in text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "-n",
        "-np",
        "--ranks",
        type=ranks,
        metavar="N",
        help="how many, on each machine (default, and auto: as many as --gpus, else as there are GPUs, else usable "
        "cores)",
    )
    add("--gpus", type=gpus, metavar="0,1", help="what the ranks see of this machine's GPUs, in this order")
    add(
        "--nnodes",
        type=machine_count,
        metavar="N",
        help="how many machines; each has a launcher with the same -n",
    )
    add("--node-rank", type=int, metavar="R", help="which of them this is, from 0 to N-1")
    add(
        "--master",
        type=master,
        metavar="HOST[:PORT]",
        help=f"machine 0, as all of them reach it, and a free port there (default {DEFAULT_PORT})",
    )
    add(
        "--max-restarts",
        type=count,
        default=0,
        metavar="K",
        help="when a rank fails, stop all and start them anew, at most K times (default 0)",
    )
    add("--log-dir", type=Path, help="also write rank0.out, rank0.err, ... into this folder")
    add(
        "--grace",
        type=float,
        default=5.0,
        metavar="S",
        help="seconds between SIGTERM and SIGKILL (default 5)",
    )
    add(
        "--no-prefix",
        action="store_true",
        help="show every byte as it is; else lines have [rank] in front, of one with carriage returns (a progress "
        "bar) only what follows the last is shown, and equal tracebacks are shown once",
    )
    add(
        "--only-rank",
        action="extend",
        type=several,
        metavar="R[,R]",
        help="show what these ranks print; of the others only why they failed (--log-dir keeps all)",
    )
    add("--stdin", type=count, metavar="R", help="the rank that reads standard input (default: none does)")
    add(
        "--banner",
        action=argparse.BooleanOptionalAction,
        help="say what is started before it is, with all settings and variables that decide about it (default: on a "
        "terminal, in one line)",
    )
    spelling = parser.add_mutually_exclusive_group()
    for option, spelled in (("--local-rank-arg", "--local_rank"), ("--local-rank-arg-dash", "--local-rank")):
        spelling.add_argument(
            option,
            dest="local_rank_arg",
            action="store_const",
            const=spelled,
            help=f"for old scripts: their first argument is {spelled}=K",
        )
    add("-m", "--module", action="store_true", help="the program is a Python module")
    add("program", nargs=argparse.REMAINDER, help="script.py, module or command, with its arguments")


def options_of(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Options:
    """Return the options. Exits the program with a message if they contradict each other."""
    command, arguments = program(given.program, module=given.module)
    if not command:
        parser.error("which program? For example: pycollective run -n 4 script.py")
    if command == ["-"]:
        parser.error(
            "a program on standard input has no name under which ranks find it: write it into a file, or start it as "
            "`python -` and call pycollective.run() in it"
        )
    if given.local_rank_arg and command[0] != sys.executable:
        parser.error(f"--local-rank-arg is for script.py or -m module; where would {command[0]} take it?")
    named = given.ranks or len(given.gpus or ())
    options = Options(
        ranks=named or ranks_by_default(),
        ranks_are_named=bool(named),
        command=command,
        arguments=arguments,
        local_rank_arg=given.local_rank_arg,
        log_dir=given.log_dir,
        grace_s=given.grace,
        prefix=not given.no_prefix,
        gpus=given.gpus or (),
        machines=machines(parser, given),
        max_restarts=given.max_restarts,
        banner=sys.stderr is not None and sys.stderr.isatty() if given.banner is None else given.banner,
        settings=bool(given.banner),
        only=frozenset(given.only_rank or ()),
        stdin=given.stdin,
    )
    check_ranks(parser, options)
    return options


def check_ranks(parser: argparse.ArgumentParser, options: Options) -> None:
    """Check that the ranks named by --only-rank and --stdin are on this machine."""
    named = {"--only-rank": sorted(options.only), "--stdin": [] if options.stdin is None else [options.stdin]}
    for option, ranks in named.items():
        for rank in ranks:
            if rank not in options.here:
                first, last = options.here[0], options.here[-1]
                parser.error(f"{option} {rank}: the ranks here are {first} to {last}")


def program(words: Sequence[str], *, module: bool) -> tuple[list[str], list[str]]:
    """Return a rank's command, including Python for a module or script, and the arguments."""
    words = list(words[1:] if words[:1] == ["--"] else words)
    python = [sys.executable, "-m"] if module else [sys.executable] if words and is_script(words[0]) else []
    return [*python, *words[:1]], words[1:]


def is_script(word: str) -> bool:
    """Return whether `python word` can run the file.

    That is so for a .py file, and for a folder or zip file with a __main__.py. Any other word is a
    command.
    """
    if word.endswith((".py", ".pyc", ".pyz")) or os.path.isdir(word):
        return True
    return os.path.isfile(word) and zipfile.is_zipfile(word)


def machines(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Machines | None:
    count, own = given.nnodes, given.node_rank
    if count is None and (own is not None or given.master):
        parser.error("--node-rank and --master are for several machines: say how many, --nnodes N")
    if own is not None and not 0 <= own < count:
        parser.error(f"--node-rank {own}: with --nnodes {count} machines count from 0 to {count - 1}")
    if count is None or count == 1:
        return None
    if own is None:
        parser.error(
            f"--nnodes {count} needs --node-rank R: which of the machines this is, from 0 to {count - 1}"
        )
    if given.master is None:
        parser.error(
            f"--nnodes {count} needs --master HOST: the machine with --node-rank 0, as all of them reach it"
        )
    if not given.ranks and not given.gpus:
        parser.error(f"--nnodes {count} needs -n: as many ranks on every machine, however many cores it has")
    if given.max_restarts:
        parser.error(
            "--max-restarts is for one machine: the launchers of several do not know of each other's restarts. "
            "torchrun's agents do: torchrun --nnodes N --nproc-per-node n --max-restarts K script.py"
        )
    return Machines(count, own, *given.master)
