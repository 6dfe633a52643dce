"""Joins the world, and reports the placement of each rank and the round-trip times."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TypedDict

import numpy as np

from pycollective.errors import CollectiveError
from pycollective.tools.doctor import round_trips
from pycollective.tools.doctor.check_result import CheckResult, fail, ok, warn
from pycollective.tools.doctor.machine import ranges
from pycollective.tools.doctor.sockets import own_addresses

INIT_S = 20.0
REMEDY = (
    "what the message says; docs/errors.md explains each error, PYCOLLECTIVE_LOG=debug tells what was tried"
)


class About(TypedDict):
    """One rank's description of itself. `lines` has only the results that are not OK."""

    host: str
    pid: int
    cores: list[int]
    addresses: list[str]
    lines: list[dict[str, str]]


def visit(mine: list[CheckResult], rank: int) -> list[CheckResult]:
    """Returns the lines that this rank prints: on rank 0 those of all ranks, on other ranks none.

    If the world cannot be joined, each rank prints its own lines; ranks other than 0 only those
    that are WARN or FAIL.
    """
    import pycollective as pc

    lines = mine if rank == 0 else not_ok(mine)
    try:
        pc.init(timeout=INIT_S)
        lines = _together(mine)
        pc.shutdown()
    except CollectiveError as error:
        return [*lines, fail("world", f"{type(error).__name__}: {error}", REMEDY)]
    return lines


def not_ok(lines: list[CheckResult]) -> list[CheckResult]:
    """Returns the lines that are WARN or FAIL."""
    return [line for line in lines if line.status != "OK"]


def _together(mine: list[CheckResult]) -> list[CheckResult]:
    import pycollective as pc

    about: About = {
        "host": os.uname().nodename,
        "pid": os.getpid(),
        "cores": sorted(os.sched_getaffinity(0)),
        "addresses": own_addresses(Path("/proc/self")),
        "lines": [asdict(line) for line in not_ok(mine)],
    }
    ranks: list[About] = [json.loads(text) for text in _gather(json.dumps(about))]
    rows = _gather(json.dumps(round_trips.measure()))
    if pc.rank() != 0:
        return []
    trips = [{int(peer): seconds for peer, seconds in json.loads(text).items()} for text in rows]
    lines = [*mine, *of_others(mine, ranks), *table(ranks), *shared_cores(ranks)]
    return [*lines, ok("round trips", round_trips.table(trips))] if len(ranks) > 1 else lines


def _gather(text: str) -> list[str]:
    """Returns the texts of all ranks on rank 0, and an empty list on the other ranks."""
    import pycollective as pc

    content = np.frombuffer(text.encode(), np.uint8)
    if pc.rank() != 0:
        pc.send(np.array([content.size]), 0)
        pc.send(content, 0)
        return []
    texts = [text]
    for peer in range(1, pc.size()):
        length = np.zeros(1, np.int64)
        pc.recv(length, peer)
        theirs = np.zeros(int(length[0]), np.uint8)
        texts.append(pc.recv(theirs, peer).tobytes().decode())
    return texts


def table(ranks: list[About]) -> list[CheckResult]:
    """Returns a line for each rank."""
    return [
        ok(
            f"rank {rank}",
            f"host {each['host']}, pid {each['pid']}, cores {ranges(frozenset(each['cores']))}, "
            f"address {', '.join(each['addresses']) or 'none'}",
        )
        for rank, each in enumerate(ranks)
    ]


def of_others(mine: list[CheckResult], ranks: list[About]) -> list[CheckResult]:
    """Returns the WARN and FAIL lines of the other ranks, without repetitions.

    Repetitions are frequent, because all ranks of a host find the same problems.
    """
    said = {(line.check, line.found) for line in mine}
    lines = []
    for rank, each in enumerate(ranks[1:], 1):
        for line in (CheckResult(**row) for row in each["lines"]):  # type: ignore[arg-type]
            if (line.check, line.found) not in said:
                said.add((line.check, line.found))
                lines.append(CheckResult(f"rank {rank}: {line.check}", line.status, line.found, line.remedy))
    return lines


def shared_cores(ranks: list[About]) -> list[CheckResult]:
    """Returns a warning for each host that has more ranks than cores for them."""
    lines = []
    for host in dict.fromkeys(each["host"] for each in ranks):
        there = [each for each in ranks if each["host"] == host]
        if any(line["check"] == "cores" for each in there for line in each["lines"]):
            continue  # the check "cores" of a rank has reported this already
        here = [frozenset(each["cores"]) for each in there]
        together: frozenset[int] = frozenset().union(*here)
        if len(here) > len(together):
            found = f"{len(here)} ranks share {len(together)} cores ({ranges(together)}) of {host}"
            remedy = "start fewer ranks there, or let the launcher bind them apart (mpirun --bind-to core, srun -c)"
            lines.append(warn("shared cores", found, remedy))
    return lines
