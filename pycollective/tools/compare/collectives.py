"""The collectives that can be compared, and how bandwidth follows from time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _one(ranks: int) -> float:
    del ranks
    return 1.0


def _all_but_own(ranks: int) -> float:
    return (ranks - 1) / ranks


def _there_and_back(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


@dataclass(frozen=True)
class Collective:
    """One collective: the bandwidth factor of nccl-tests, and whether it transfers data."""

    bus_factor: Callable[[int], float]  # busbw = factor * bytes / time
    moves_data: bool = True


# Sizes are those of the larger array: the output of an allgather, the input of a reduce_scatter.
COLLECTIVES = {
    "allreduce": Collective(_there_and_back),
    "broadcast": Collective(_one),
    "reduce": Collective(_one),
    "allgather": Collective(_all_but_own),
    "reduce_scatter": Collective(_all_but_own),
    "alltoall": Collective(_all_but_own),
    "gather": Collective(_all_but_own),
    "scatter": Collective(_all_but_own),
    "scan": Collective(_one),
    "exscan": Collective(_one),
    "sendrecv": Collective(_one),
    "barrier": Collective(lambda ranks: 0.0, moves_data=False),
}
