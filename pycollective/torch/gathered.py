"""Collects the gradients of a backward, to copy adjacent ones into their bucket together.

One copy of many gradients costs less than a copy of each, especially on a GPU. On the CPU only a
few are copied together, so that they are still in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pycollective.training.gradients.reducer import GradientReducer

__all__ = ["Arrival", "Gathered", "arrivals_of"]

CPU_NBYTES = 1 << 18  # most bytes of the gradients on the CPU that one group copies together


class Gathered:
    """A group of gradients of one bucket that are copied together."""

    __slots__ = ("_length", "_reducer", "gradients", "missing", "names", "parameters", "places")

    def __init__(self, reducer: GradientReducer) -> None:
        self._reducer = reducer
        self._length = 0
        self.clear()

    def grow(self) -> None:
        """Adds a gradient to the group, from the next step on."""
        self._length += 1
        self.missing = self._length

    def clear(self) -> None:
        """Begins a new step."""
        self.missing = self._length  # number of gradients that have not arrived in this step
        self.names: list[str] = []  # gradients that have arrived and have not been passed to the reducer
        # Of these, the gradients that are not in the bucket yet, with their parameters and
        # destinations:
        self.parameters: list[torch.Tensor] = []
        self.places: list[torch.Tensor] = []
        self.gradients: list[torch.Tensor] = []

    def hand_over(self) -> None:
        """Passes the gradients to the reducer. Each `grad` becomes a view of the bucket."""
        if not self.names:
            return
        self._reducer.ready_together(self.names, self.places, self.gradients)
        for parameter, place in zip(self.parameters, self.places, strict=True):
            parameter.grad = place
        self.names, self.parameters, self.places, self.gradients = [], [], [], []

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        """Marks the gradients as used on `stream`, which copies them.

        Another stream may have made them.
        """
        for gradient in self.gradients:
            gradient.record_stream(stream)


class Arrival:
    """What the hook of a parameter needs when the gradient arrives."""

    __slots__ = ("form", "gathered", "name", "place", "step")

    def __init__(self, name: str, place: torch.Tensor, gathered: Gathered) -> None:
        self.name = name
        self.place = place  # view of the gradient in its bucket
        self.gathered = gathered
        self.step = -1  # the last step in which the gradient arrived
        self.form = (
            place.shape,
            place.dtype,
            place.device,
            torch.strided,
            False,
        )  # the form of a gradient that can be copied together with other gradients


def arrivals_of(reducer: GradientReducer, names: Sequence[str]) -> tuple[dict[str, Arrival], list[Gathered]]:
    """Returns the Arrival of each name, and the groups, each of consecutive gradients."""
    wanted = frozenset(names)
    arrivals: dict[str, Arrival] = {}
    every: list[Gathered] = []
    for bucket in reducer.buckets:
        nbytes = -1  # bytes in the current group; -1 before the first group of this bucket
        for name in bucket:
            if name in wanted:
                place: torch.Tensor = reducer.view(name)
                if nbytes < 0 or (nbytes + place.nbytes > CPU_NBYTES and not place.is_cuda):
                    every.append(Gathered(reducer))
                    nbytes = 0
                nbytes += place.nbytes
                every[-1].grow()
                arrivals[name] = Arrival(name, place, every[-1])
    return {name: arrivals[name] for name in names}, every
