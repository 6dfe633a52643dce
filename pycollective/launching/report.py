"""The launcher's own messages on standard error."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

from pycollective._version import __version__
from pycollective.bootstrap.addresses import join
from pycollective.launching import gpus
from pycollective.launching.child import descriptors_hint
from pycollective.launching.environment import World, threads_per_rank
from pycollective.launching.failures import memory_cgroup
from pycollective.launching.failures.last_error import begins, error_lines, plain
from pycollective.launching.failures.root_cause import Failure, root_cause
from pycollective.launching.local_ranks import LocalRanks
from pycollective.launching.options import Options
from pycollective.launching.screen.tracebacks import Ending, named
from pycollective.launching.streams.lines import visible
from pycollective.launching.streams.output import write_all

WANTED_INPUT = re.compile(rb"EOFError\b|bdb\.BdbQuit\b")


def message(what: str, *, after: Sequence[bytes] = ()) -> None:
    lines = [os.fsencode(f"pycollective run: {what}"), *after]
    before = b"\n" if after else b""
    # an error here cannot be shown anywhere; the exit code also shows the failure
    with contextlib.suppress(OSError):
        write_all(sys.stderr.fileno(), before + b"".join(line + b"\n" for line in lines))


def show(lines: Sequence[bytes]) -> None:
    # the process that reads the output has ended; the exit code also shows the failure
    with contextlib.suppress(OSError):
        write_all(sys.stderr.fileno(), b"".join(line + b"\n" for line in lines))


def banner(options: Options, env: Mapping[str, str]) -> str:
    """Describe the ranks, the program, the machines and the resources in one line."""
    ranks_text = f"{options.size} rank{'s' if options.size > 1 else ''}"
    if machines := options.machines:
        here = f"{options.here[0]} to {options.here[-1]} on machine {machines.own} of {machines.count}"
        ranks_text += f", {here}, rank 0 at {join(machines.master, machines.port)}"
    facts = [
        f"{ranks_text}: {shlex.join([*options.command, *options.arguments])}",
        f"threads per rank: {threads_per_rank(env, options.ranks)}",
    ]
    if options.gpus:
        facts.append(f"GPUs: {','.join(options.gpus)}")
    if options.log_dir:
        facts.append(f"logs: {options.log_dir}")
    return "; ".join(facts)


def settings(options: Options, world: World, env: Mapping[str, str]) -> list[bytes]:
    """Return a line for each setting of this launcher, each address, and each relevant variable.

    The addresses are those of this attempt.
    """
    first, last = options.here[0], options.here[-1]
    owners = gpus.of_ranks(options.gpus, env, options.here)
    rows = {
        "world size": str(options.size),
        "ranks here": f"{first} to {last} of {options.size}" if options.size > 1 else "0 of 1",
        "host": socket.gethostname(),
        "Python": f"{sys.executable} ({sys.version.split()[0]})",
        "pycollective": __version__,
        "program": shlex.join([*options.command, *options.arguments]),
        "rank 0's store": world.store or join(world.master, world.store_port),
        "MASTER_ADDR": world.master,
        "MASTER_PORT": f"{world.master_port} (for torch.distributed; nothing of ours is there)",
        "GPUs": ",".join(options.gpus) or "as they are",
        **(
            {"GPU of each rank": ", ".join(f"rank {rank}: {owners[rank]}" for rank in owners)}
            if owners
            else {}
        ),
        "output": f"of rank {', '.join(map(str, sorted(options.only)))}" if options.only else "of all ranks",
        "standard input": "none" if options.stdin is None else f"of rank {options.stdin}",
        "logs": str(options.log_dir or "none"),
        "restarts": str(options.max_restarts),
        "grace": f"{options.grace_s:g} s",
    }
    decides = re.compile(r"PYCOLLECTIVE_|OMP_NUM_THREADS$|CUDA_VISIBLE_DEVICES$|NCCL_")
    rows |= {name: env[name] for name in sorted(env) if decides.match(name) and name != "PYCOLLECTIVE_KEY"}
    width = max(map(len, rows))
    return [visible(os.fsencode(f"  {name:<{width}}  {value}")) for name, value in rows.items()]


def outcome(ranks: LocalRanks, options: Options) -> int:
    """Report why the ranks ended, and show output that was held back. Returns the exit code."""
    if ranks.asked:  # drain() has already shown the output that was held back
        return 128 + ranks.asked[0]
    failure = root_cause(ranks.failures) if ranks.lost is None else None
    ending = ranks.screen.end(None if failure is None else failure.rank)
    if ending.lines:
        show([visible(line) for line in ending.lines])
    if ranks.lost is not None:
        message(f"{cannot_write(ranks.lost)}; the ranks were stopped")
        return 1
    if failure is None:
        return 0
    what, lines = summary_of(failure, ending, ranks, options)
    message(what, after=lines)
    return failure.exit_code


def summary_of(
    failure: Failure, ending: Ending, ranks: LocalRanks, options: Options
) -> tuple[str, list[bytes]]:
    """Return a sentence about the rank that failed first, and its last error."""
    here = f" on the machine with --node-rank {options.machines.own}" if options.machines else ""
    alike = f"; {named(ending.alike)} raised the same" if ending.alike else ""
    alike += f"; {named(ending.said_too)} wrote the same" if ending.said_too else ""
    where = f"; logs: {options.log_dir}" if options.log_dir else ""
    tail = [visible(line) for line in ranks.screen.tails[failure.rank].lines]
    what = f"rank {failure.rank} failed first{here} ({cause(failure, ranks, options)}){alike}"
    stopped = options.machines or options.ranks > 1 + len(ending.alike) + len(ending.said_too)
    what += f"{'; the others were stopped' if stopped else ''}{where}."
    if failure.status == -signal.SIGKILL:
        what += f" {memory_cgroup.hint(ranks.memory, memory_cgroup.read())}."
    error = plain(b"".join(error_lines(tail)[:1]))
    if WANTED_INPUT.match(error) and failure.rank != options.stdin:
        what += f" If it wanted input: --stdin {failure.rank} gives it ours, and breakpoint() asks at our terminal."
    if not tail:
        return f"{what} It wrote nothing to stderr.", []
    if ending.shown:
        return f"{what} Its error, of which more stands above:", error_lines(tail)
    return f"{what} Its last lines:", max(tail, [visible(line) for line in ending.whole], key=len)


def cause(failure: Failure, ranks: LocalRanks, options: Options) -> str:
    """Describe how the rank ended.

    An uncaught exception ends Python with 1 and writes to standard error. Therefore another code,
    or 1 with an empty standard error, was passed to sys.exit().
    """
    tail = ranks.screen.tails[failure.rank].lines
    chosen = failure.status > 0 and options.of_python
    chosen = chosen and (not tail or (failure.status != 1 and not any(map(begins, tail))))
    return f"{failure.cause}, as after sys.exit({failure.status})" if chosen else failure.cause


def cannot_write(error: BaseException) -> str:
    if not isinstance(error, OSError):
        return f"cannot show what the ranks print: {error!r}"
    return (
        f"cannot write {error.filename or 'what the ranks print'}: {error.strerror}{descriptors_hint(error)}"
    )


def cannot_start(program: str, error: OSError) -> int:
    """Report why the program cannot start. Returns the exit code that a shell would return."""
    if error.filename != program:
        message(f"cannot start the ranks: {error.strerror}{descriptors_hint(error)}")
        return 1
    message(f"cannot start {program}: {error.strerror}{program_hint(program)}")
    return 127 if isinstance(error, FileNotFoundError) else 126


def program_hint(program: str) -> str:
    """Return how to start the file that has the name of the program, or "" if there is none.

    The program was taken as a command, because its name is not that of a script.
    """
    if not os.path.isfile(program):
        return ""
    if os.path.dirname(program):
        return f". If it is a script for Python: pycollective run -n 4 -- python {program}"
    found = f". There is a file {program} here, and no command of that name"
    may_be_run = f", or ./{program}" if os.access(program, os.X_OK) else ""
    return f"{found}: write `pycollective run -n 4 -- python {program}`{may_be_run}"
