"""`pycollective-bench`: the benchmark program, alone or as a rank started by a launcher.

Without a launcher, this process becomes the program, which starts ranks of its own. In a launcher's
rank, this process stays as the parent of the program: it finds the other ranks, as `init()` does,
and passes their addresses in the environment (csrc/bench/role.cc reads them).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from pycollective import _core
from pycollective.bootstrap import detect
from pycollective.bootstrap.addresses import split
from pycollective.bootstrap.key import key_file
from pycollective.bootstrap.local_store import open_store
from pycollective.bootstrap.placement import Placement
from pycollective.bootstrap.rendezvous import Rendezvous, find_rendezvous
from pycollective.errors import CollectiveError
from pycollective.launching import child
from pycollective.launching.failures.root_cause import signal_name
from pycollective.runtime.availability import wheel_folders

if TYPE_CHECKING:
    from pycollective.launching.child import Child

BINARY = Path(_core.__file__).parent / "bin" / "pycollective-bench"
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DEFAULT_TIMEOUT_S = 600.0


def main() -> int:
    words = sys.argv[1:]
    try:
        placement = detect.detect()
        if placement.launcher == "single":
            become(words)
        return run_rank(placement, find_rendezvous(placement, number=0, timeout_s=patience(words)), words)
    except CollectiveError as error:
        message(str(error))
    except OSError as error:
        message(f"cannot start {BINARY}: {error.strerror}")
    return 1


def become(words: Sequence[str]) -> NoReturn:
    # Python ignores SIGPIPE, but the program needs the default action
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execve(BINARY, [BINARY.name, *words], {**os.environ, **nccl_folders()})


def nccl_folders() -> dict[str, str]:
    """Returns a variable with the folders of Python's NCCL packages.

    The program (csrc/bench/gpu_session.cc) cannot find them by itself.
    """
    return {"PYCOLLECTIVE_BENCH_NCCL_FOLDERS": ",".join(wheel_folders())}


def environment(placement: Placement, rendezvous: Rendezvous) -> dict[str, str]:
    given = {
        "RANK": placement.rank,
        "WORLD_SIZE": placement.size,
        "LOCAL_RANK": placement.local_rank,
        "LOCAL_WORLD_SIZE": placement.local_size,
        "STORE": ",".join(rendezvous.store_addresses),
        "INTERFACE": ",".join(rendezvous.listen),
        "SECURITY": "encrypt" if rendezvous.encrypts else "auth",
        "BENCH_JOB": rendezvous.job.hex(),
        "BENCH_KEY_SOURCE": rendezvous.key_source,
    }
    return {
        **os.environ,
        **nccl_folders(),
        **{f"PYCOLLECTIVE_{name}": str(value) for name, value in given.items()},
    }


def run_rank(placement: Placement, rendezvous: Rendezvous, words: Sequence[str]) -> int:
    """Runs the program as a child of this rank, and returns its exit code.

    Rank 0 keeps its store open meanwhile.
    """
    key_fd = key_file(rendezvous.key)
    env = {**environment(placement, rendezvous), "PYCOLLECTIVE_KEY_FD": str(key_fd)}
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, key_fd)
        stack.callback(rendezvous.close)
        if rendezvous.host_store is not None:
            stack.callback(open_first(rendezvous.host_store, rendezvous).close)
        with signals_passed_on() as (children, asked):
            each = child.start(
                [str(BINARY), *words], rank=placement.rank, env=env, key_fd=key_fd, stdout=1, stderr=2
            )
            children.append(each)
            for number in asked:  # signals that arrived before the child was started
                each.signal(number)
            status = end_of(each)
        if status == 0:
            rendezvous.all_joined()
    if asked:
        return 128 + asked[0]
    if status < 0:
        message(f"rank {placement.rank} (process {each.process.pid}) was killed by {signal_name(-status)}")
        return 128 - status
    return status


def end_of(each: Child) -> int:
    os.waitid(os.P_PID, each.process.pid, os.WEXITED | os.WNOWAIT)
    status = each.exit_status()
    each.reap()
    assert status is not None
    return status


def open_first(addresses: Sequence[str], rendezvous: Rendezvous) -> _core.StoreServer:
    """Opens a store at the first port that can be bound, as `init()` does.

    The store listens on every address in the list that has this port.
    """
    first: CollectiveError | None = None
    for port in dict.fromkeys(split(address)[1] for address in addresses):
        same = [address for address in addresses if split(address)[1] == port]
        try:
            return open_store(same, key=rendezvous.key, job=rendezvous.job, key_source=rendezvous.key_source)
        except CollectiveError as error:
            first = first or error
    assert first is not None
    raise first


@contextlib.contextmanager
def signals_passed_on() -> Iterator[tuple[list[Child], list[int]]]:
    """Forwards signals to the processes in the first list, and appends them to the second one."""
    children: list[Child] = []
    asked: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        for each in children:
            each.signal(number)

    handled = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = [signal.signal(number, pass_on) for number in handled]
    try:
        yield children, asked
    finally:
        for number, handler in zip(handled, before, strict=True):
            signal.signal(number, handler)


def patience(words: Sequence[str]) -> float:
    """Returns the timeout for joining; the default if invalid, which the program itself reports."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--timeout_s", nargs="?")
    given: str | None = parser.parse_known_args(list(words))[0].timeout_s
    text = given or os.environ.get("PYCOLLECTIVE_TIMEOUT_S") or DEFAULT_TIMEOUT_S
    try:
        return float(text)
    except ValueError:
        return DEFAULT_TIMEOUT_S


def message(what: str) -> None:
    print(f"pycollective-bench: {what}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
