"""`pycollective run`: starts ranks of one program, shows their output, and ends them together."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from types import FrameType

from pycollective.bootstrap.key import new_key
from pycollective.bootstrap.local_store import open_store_of_run
from pycollective.errors import CollectiveError
from pycollective.launching import child, gpus, machines, report
from pycollective.launching.environment import World, free_port
from pycollective.launching.local_ranks import LocalRanks, Logs
from pycollective.launching.options import Options
from pycollective.launching.streams.output import fill_standard_streams, open_logs
from pycollective.launching.streams.terminal import in_background, settings_kept
from pycollective.runtime import devices

__all__ = ["Options", "run"]

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
USER_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)


class CannotLog(Exception):
    """A log file cannot be opened."""


def run(options: Options) -> int:
    """Run the ranks until all have ended, and restart them after failures if that is allowed.

    Returns the exit code.
    """
    fill_standard_streams()
    if options.script is not None and not os.path.exists(options.script):
        report.message(f"cannot start the ranks: there is no file {options.script} in {os.getcwd()}")
        return 2  # Python's exit code for a missing file
    if options.stdin is not None and in_background(0):
        report.message(
            f"--stdin {options.stdin}: this is a job in the background of its terminal, where it gets no answers. "
            f"Start it in the foreground, or give it a file or a pipe (< answers)"
        )
        return 1
    try:
        if options.machines and (awaited := machines.check(options.machines)):
            report.message(awaited)
        if options.banner:
            report.message(report.banner(options, os.environ))
        for attempt in range(options.max_restarts + 1):
            its = options.of_attempt(attempt)
            ranks = run_once(its, attempt)
            # The report follows after the event loop and its signal handlers have ended, so that
            # Ctrl-C works if the process that reads the output pauses.
            code = report.outcome(ranks, its)
            if not ranks.failed or attempt == options.max_restarts:
                break
            ranks.screen.close()
            report.message(
                f"all ranks are started anew: restart {attempt + 1} of at most {options.max_restarts}"
            )
        return code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except CannotLog as error:
        report.message(str(error))
        return 1
    except OSError as error:
        return report.cannot_start(options.command[0], error)
    # the store could not be opened, or has no address that other machines could reach
    except CollectiveError as error:
        report.message(f"cannot start the ranks: {error}")
        return 1


def run_once(options: Options, attempt: int) -> LocalRanks:
    with settings_kept(0), contextlib.ExitStack() as files:
        try:
            logs = open_logs(options.log_dir, options.here, files)
        except OSError as error:
            raise CannotLog(report.cannot_write(error)) from error
        key = report_absent = None
        if options.machines is not None:
            world = machines.world_of(options.machines, options.here)
        else:
            # a new key for each attempt, so that processes of an earlier attempt cannot connect
            key = new_key()
            store = files.enter_context(open_store_of_run(key))
            report_absent = store._report_absent
            world = World(
                size=options.ranks, store=store.addresses[0], master_port=free_port(), attempt=attempt
            )
        if attempt == 0:
            print_details(options, world)
        ranks = asyncio.run(ran(options, world, key, logs, report_absent))
    for number in filter(is_handled, USER_SIGNALS):
        signal.signal(number, ignored)  # between two attempts the signal must not end the launcher
    return ranks


def print_details(options: Options, world: World) -> None:
    """Print the lines below the banner."""
    if options.settings:
        report.show(report.settings(options, world, os.environ))
    if not options.ranks_are_named and devices.visible_gpus():
        report.message(
            f"{options.ranks} ranks, one for each GPU that is visible here; -n gives another number"
        )
    if missing := gpus.missing(options.gpus):
        report.message(missing)


async def ran(
    options: Options,
    world: World,
    key: bytes | None,
    logs: Logs,
    report_absent: Callable[[Sequence[int], str], None] | None,
) -> LocalRanks:
    """Run the ranks of one attempt, and return them after they have ended."""
    with child.guarded() as guard_fd:
        ranks = LocalRanks(options, world, guard_fd, logs, report_absent)
        for number in filter(is_handled, STOP_SIGNALS):
            ranks.loop.add_signal_handler(number, ranks.asked_to_stop, number)
        for number in filter(is_handled, USER_SIGNALS):
            ranks.loop.add_signal_handler(number, ranks.pass_on, number)
        await ranks.run(key)
    return ranks


def ignored(number: int, frame: FrameType | None) -> None:
    pass


def is_handled(number: signal.Signals) -> bool:
    """Return false if the launcher's parent has set the signal to be ignored (nohup, background).

    The ranks inherit that setting.
    """
    return signal.getsignal(number) is not signal.SIG_IGN
