"""What the launcher itself says, on standard error."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import sys
from collections.abc import Iterable, Mapping

from pycollective.launching.addresses import join
from pycollective.launching.environment import threads_per_rank
from pycollective.launching.local_ranks import LocalRanks
from pycollective.launching.options import Options
from pycollective.launching.output import write_all
from pycollective.launching.verdict import culprit


def say(what: str, *, before: bytes = b"", after: Iterable[bytes] = ()) -> None:
    lines = [os.fsencode(f"pycollective run: {what}"), *after]
    with contextlib.suppress(OSError):  # there is nowhere else to say it; the exit code tells as well
        write_all(sys.stderr.fileno(), before + b"".join(line + b"\n" for line in lines))


def banner(options: Options, env: Mapping[str, str]) -> str:
    """Who runs what, where, and with how much of the machine."""
    who = f"{options.size} rank{'s' if options.size > 1 else ''}"
    if machines := options.machines:
        here = f"{options.here[0]} to {options.here[-1]} on machine {machines.own} of {machines.count}"
        who += f", {here}, rank 0 at {join(machines.master, machines.port)}"
    facts = [
        f"{who}: {shlex.join([*options.command, *options.arguments])}",
        f"threads per rank: {threads_per_rank(env, options.ranks)}",
    ]
    if options.gpus:
        facts.append(f"GPUs: {','.join(options.gpus)}")
    if options.log_dir:
        facts.append(f"logs: {options.log_dir}")
    return "; ".join(facts)


def outcome(ranks: LocalRanks, options: Options) -> int:
    """Says what went wrong; returns the exit code."""
    if ranks.asked:
        return 128 + ranks.asked[0]
    if ranks.lost is not None:
        say(f"{cannot_write(ranks.lost)}; the ranks were stopped")
        return 1
    failure = culprit(ranks.failures)
    if failure is None:
        return 0
    here = f" on the machine with --node-rank {options.machines.own}" if options.machines else ""
    where = f"; logs: {options.log_dir}" if options.log_dir else ""
    what = f"rank {failure.rank} failed first{here} ({failure.cause}); the others were stopped{where}"
    last = ranks.screen.tails[failure.rank]
    more = "Its last lines:" if last else "It wrote nothing to stderr."
    say(f"{what}. {more}", before=b"\n", after=last)
    return failure.exit_code


def cannot_write(error: BaseException) -> str:
    if not isinstance(error, OSError):
        return f"cannot show what the ranks print: {error!r}"
    return f"cannot write {error.filename or 'what the ranks print'}: {error.strerror}{hint(error)}"


def cannot_start(program: str, error: OSError) -> int:
    """Says why; returns the exit code, for a bad program the shell's."""
    if error.filename != program:
        say(f"cannot start the ranks: {error.strerror}{hint(error)}")
        return 1
    say(f"cannot start {program}: {error.strerror}")
    return 127 if isinstance(error, FileNotFoundError) else 126


def hint(error: OSError) -> str:
    return "; raise the limit with `ulimit -n`" if error.errno == errno.EMFILE else ""
