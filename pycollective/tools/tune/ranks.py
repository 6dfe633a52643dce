"""The code of tuning that runs in the ranks.

All worlds of an experiment exist at the same time, and every call is made in each of them
round-robin, so that other activity of the machine affects all of them equally.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import pycollective as pc
from pycollective import _core
from pycollective.bootstrap.detect import detect
from pycollective.bootstrap.rendezvous import find_rendezvous
from pycollective.tools.tune.experiments import Cell, Experiment, World

if TYPE_CHECKING:
    from pycollective.tools.tune.decide import Passes, Times

JOINING_S = 60.0
# Below SHORT_S there is one pass, too few for a decision. Otherwise there is one pass per
# PER_PASS_S, but at least 3 and at most 9.
SHORT_S, PER_PASS_S = 5.0, 20.0
PER_CELL_BYTES = 1 << 20  # bytes that the calls of a cell move in one round; FEWEST and MOST limit the calls
FEWEST, MOST = 1, 16
# Number of calls before the measurement. They create rings and connections, and try the copy paths
# of a group (csrc/engine/shm/copy_path_tuner.h).
WARM_UP, OF_LONG_CALLS = 14, 6


@dataclass
class Measured:
    """The passes of one experiment, or the reason why there are none."""

    passes: Passes
    why_not: str = ""


def measure(experiments: Sequence[Experiment], seconds: float) -> list[Measured]:
    """Measures on every rank of a world. Every time is that of the slowest rank."""
    ends = time.monotonic() + seconds
    number = 1  # number of the next world; that of init() has number 0
    results = [Measured([]) for _ in experiments]
    turns = list(zip(experiments, results, strict=True)) * passes_for(seconds)
    for done, (experiment, result) in enumerate(turns):
        if done >= len(experiments) and not agreed(time.monotonic() < ends):
            break  # the machine is slow, so only the completed passes decide
        share = (ends - time.monotonic()) / (len(turns) - done)
        one = conduct(experiment, number, share)
        result.passes.extend(one.passes)
        result.why_not = one.why_not
        number += len(experiment.worlds)
    return results


def passes_for(seconds: float) -> int:
    """Returns the number of passes. Each has new worlds, because worlds make random choices."""
    return 1 if seconds < SHORT_S else max(3, min(9, int(seconds / PER_PASS_S)))


def conduct(experiment: Experiment, number: int, seconds: float) -> Measured:
    """Runs one pass of an experiment, with as many rounds as the time allows, and at least one."""
    began = time.monotonic()
    runtimes: list[_core.Runtime] = []
    try:
        for world in experiment.worlds:
            runtimes.append(join(world, number + len(runtimes)))
    except pc.Unsupported as error:
        for each in runtimes:
            each.shutdown()
        return Measured([], str(error))
    table = [[Call(runtime, cell) for runtime in runtimes] for cell in experiment.cells]
    for call in (call for row in table for call in row):
        call.warm_up()
    rounds: list[Times] = []
    while not rounds or agreed(time.monotonic() - began < seconds):
        rounds.append(one_round(table, len(rounds)))
    del table  # also releases the arrays in the heaps of the worlds
    for each in runtimes:
        each.shutdown()
    return Measured([rounds])


def join(world: World, number: int) -> _core.Runtime:
    """Joins another world with the same ranks."""
    placement = detect()
    rendezvous = find_rendezvous(placement, number=number, timeout_s=JOINING_S)
    runtime = _core.Runtime(
        placement.rank,
        placement.size,
        store_addresses=rendezvous.store_addresses,
        host_store=rendezvous.host_store,
        key=rendezvous.key,
        key_source=rendezvous.key_source,
        encrypts=rendezvous.encrypts,
        job=rendezvous.job,
        epoch=number,
        listen=rendezvous.listen,
        local_rank=placement.local_rank,
        local_size=placement.local_size,
        init_timeout_s=JOINING_S,
        transport=world.transport,
        tune=world.tune,
        tuning=world.tuning,
    )
    rendezvous.all_joined()
    return runtime


def agreed(wanted: bool) -> bool:
    """Returns rank 0's value of `wanted` on all ranks."""
    word = np.array([wanted], np.uint8)
    pc.broadcast(word, root=0)
    return bool(word[0])


def one_round(table: list[list[Call]], turn: int) -> Times:
    """Makes each call in each world, in an order of worlds that changes with `turn`."""
    seconds = np.zeros((len(table), len(table[0])))
    for row, calls in enumerate(table):
        for i in range(len(calls)):
            column = (turn + row + i) % len(calls)
            seconds[row, column] = calls[column].time()
    pc.allreduce(seconds, "max")
    times: Times = seconds.tolist()
    return times


class Call:
    """One cell in one world.

    Its arrays are written before each call, as programs do. If data stayed untouched in a core's
    cache, a world that reads them there would seem faster.
    """

    def __init__(self, runtime: _core.Runtime, cell: Cell) -> None:
        self.group = runtime.world
        ranks = self.group.size
        part = max(1, cell.nbytes // 4 // ranks)
        self.repeats = max(FEWEST, min(MOST, PER_CELL_BYTES // cell.nbytes))
        new = in_heap_of(runtime) if cell.in_heap else np.empty
        whole = {"allreduce": cell.nbytes // 4, "broadcast": cell.nbytes // 4, "allgather": part}
        self.x = new(whole.get(cell.collective, part * ranks), np.dtype("float32"))
        given: dict[str, Callable[[], object]] = {
            "allreduce": lambda: self.group.allreduce(self.x),
            "broadcast": lambda: self.group.broadcast(self.x, root=0),
        }
        if cell.collective in given:
            self.call = given[cell.collective]
            return
        out = np.zeros(part if cell.collective == "reduce_scatter" else part * ranks, "float32")
        function = getattr(self.group, cell.collective)
        self.call = lambda: function(self.x, out=out)

    def warm_up(self) -> None:
        """Makes calls, so that the measured calls create nothing and try nothing."""
        for _ in range(WARM_UP if self.repeats > 1 else OF_LONG_CALLS):
            self.call()

    def time(self) -> float:
        """Returns the seconds of a call on this rank: the median of several calls."""
        seconds = []
        for _ in range(self.repeats):
            self.x.fill(0)  # sums of zeros stay zeros
            self.group.barrier()
            began = time.perf_counter()
            self.call()
            seconds.append(time.perf_counter() - began)
        return float(np.median(seconds))


def in_heap_of(runtime: _core.Runtime) -> Callable[..., Any]:
    """Returns pc.empty for the heap of another world than the current one."""

    def empty(count: int, dtype: np.dtype[Any]) -> object:
        usual = _core.world()
        _core._set_world(runtime.world)
        try:
            return pc.empty(count, dtype)
        finally:
            _core._set_world(usual)

    return empty
