"""The command line: `pycollective run`, `bench`, `tune`, `plan`, `doctor`, `env`."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import Any

from pycollective import bench
from pycollective._version import __version__
from pycollective.base.foreign_words import of_option
from pycollective.launching import run_command
from pycollective.launching.run_command import positive
from pycollective.tools import plan_commands
from pycollective.tools.compare import arguments as compare
from pycollective.tools.compare.collectives import COLLECTIVES


def several_ranks(text: str) -> list[int]:
    """Parse the group sizes to tune, such as `2,4`."""
    counts = sorted({int(word) for word in text.split(",")})
    if counts[0] < 2:
        raise argparse.ArgumentTypeError("a group has at least 2 ranks")
    return counts


def seconds(text: str) -> float:
    """Parse a number of seconds, positive and at most a day."""
    value = float(text)
    if not 0 < value <= 86400:
        raise argparse.ArgumentTypeError("must be more than 0, and at most a day")
    return value


class Parser(argparse.ArgumentParser):
    """A parser that knows the options of other launchers and accepts no abbreviations.

    If abbreviations were accepted, Paddle's --rank, for example, would be taken as --ranks.
    """

    is_launcher = False  # whether the command starts ranks, so that users may pass options of other launchers

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  as argparse has it
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401
        """Parse. If the command starts ranks, refuse unknown options with advice.

        This is done in the command's parser, because the main parser does not know the command's
        options.
        """
        if self.is_launcher:
            self._refuse_run_together(list(args or ()))
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self.is_launcher:
            options = [word for word in unknown if word.startswith("-")]
            hints = [of_option(word, self._option_string_actions) for word in options]
            self.error("; ".join([f"unrecognized arguments: {' '.join(unknown)}", *filter(None, hints)]))
        return found, unknown

    def _refuse_run_together(self, words: Sequence[str]) -> None:
        """Refuse other launchers' long options with a single dash.

        For example, -hostfile must not be parsed as -h with the value "ostfile".
        """
        left = iter(words)
        for word in left:
            if not word.startswith("-") or word in ("-", "--"):
                return
            if re.fullmatch(r"-\w\w+", word) and (hint := of_option(word)):
                self.error(f"unrecognized arguments: {word}; {hint}")
            action = self._option_string_actions.get(word)
            if action is not None and action.nargs is None:
                next(left, None)  # skip the option's value


def make_parser() -> argparse.ArgumentParser:
    """Return the parser with all commands and their options."""
    parser = Parser(prog="pycollective", description="Collective communication for any array library.")
    parser.add_argument("--version", action="version", version=f"pycollective {__version__}")
    commands = parser.add_subparsers(dest="command_name", required=True, metavar="command")

    run = commands.add_parser(
        "run",
        help="start ranks of a program on this host, or its part of them",
        epilog="example: pycollective run -n 4 train.py --epochs 10",
    )
    run_command.add_arguments(run)
    run.is_launcher = True
    run.set_defaults(of_command=run)

    measure = commands.add_parser("bench", help="measure collectives between ranks on this host")
    measure.add_argument("-n", "-np", "--ranks", type=positive, default=2, help="how many (default 2)")
    bench.add_arguments(measure, tuple(COLLECTIVES))
    compare.add_arguments(measure)

    tune = commands.add_parser(
        "tune", help="measure this machine, and keep what is better here than the defaults"
    )
    tune.add_argument(
        "--time", type=seconds, default=60.0, metavar="S", help="about so many seconds (default 60)"
    )
    tune.add_argument(
        "-n",
        "-np",
        "--ranks",
        type=several_ranks,
        help="for groups of how many, as 2,4 (default: 2, 4, and one for each core)",
    )
    tune.add_argument("--output", metavar="FILE", help="where the profile goes (default: where init() looks)")
    tune.add_argument("--dry-run", action="store_true", help="show it, and write nothing")

    plan = commands.add_parser("plan", help="list, show, check and simulate algorithms, without ranks")
    plan_commands.add_arguments(plan)

    look = commands.add_parser(
        "doctor", help="look for what is missing or slow on this host, and say what to do"
    )
    look.add_argument(
        "--json", action="store_true", help="for programs: check, status, found and remedy of each"
    )
    look.add_argument(
        "--world",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="join the other ranks and measure round trips (default: if a launcher started several)",
    )

    look.add_argument("--gpu", action="store_true", help="open the driver and NCCL, and say what they have")

    commands.add_parser("env", help="print the environment variables that pycollective reads")
    return parser


def measure(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    """Run `bench`: the comparison if an option requests it, else the plain benchmark."""
    if compare.asked_for(options):
        if options.dtype != "float32":
            parser.error(f"bench: the comparison is of float32, not {options.dtype}")
        from pycollective.tools.compare import command

        return command.run(options)
    only_compared = [name for name in options.ops if name not in bench.OPERATION_NAMES]
    if only_compared:
        parser.error(
            f"bench: {' '.join(only_compared)}: measured by pycollective-bench, or here with --compare"
        )
    from pycollective.launching.run import Options, run

    ranks = [sys.executable, "-m", bench.__name__, *bench.words(options)]
    return run(Options(ranks=options.ranks, command=ranks, prefix=False))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code for the shell."""
    try:
        code = _run_command(argv)
        sys.stdout.flush()
    except BrokenPipeError:  # the process that read the output, for example `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return code


def _run_command(argv: Sequence[str] | None) -> int:
    parser = make_parser()
    options = parser.parse_args(argv)
    if options.command_name == "env":
        from pycollective import _core

        print(_core.environment_markdown())
        return 0
    if options.command_name == "plan":
        return plan_commands.run(options)
    if options.command_name == "doctor":
        from pycollective.tools.doctor import doctor

        return doctor(as_json=options.json, world=options.world, gpus=options.gpu)

    if options.command_name == "tune":
        from pycollective.tools.tune import command as tuning

        return tuning.run(
            seconds=options.time, output=options.output, dry_run=options.dry_run, ranks=options.ranks
        )

    if options.command_name == "bench":
        return measure(parser, options)
    from pycollective.launching.run import run

    return run(run_command.options_of(options.of_command, options))


if __name__ == "__main__":
    sys.exit(main())
