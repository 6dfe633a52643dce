"""Gradients that backward has made and that are not in their bucket yet: those that lie together go there in one copy.

One copy for many costs less than one for each, on a GPU by far. On the CPU few are taken together, as they are still in
the cache then.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pycollective.training.gradients.reducer import GradientReducer

__all__ = ["Arrival", "Gathered", "arrivals_of"]

CPU_NBYTES = 1 << 18  # of the gradients that are copied together there, if there are several


class Gathered:
    """Some gradients of one bucket."""

    __slots__ = ("_length", "_reducer", "gradients", "missing", "names", "parameters", "places")

    def __init__(self, reducer: GradientReducer) -> None:
        self._reducer = reducer
        self._length = 0
        self.clear()

    def grow(self) -> None:
        """One more belongs to it, from the next step on."""
        self._length += 1
        self.missing = self._length

    def clear(self) -> None:
        """Begins a new step."""
        self.missing = self._length  # which have not come in this step
        self.names: list[str] = []  # of those that have come, and that the reducer does not know of
        # Of those among them that do not lie in their place:
        self.parameters: list[torch.Tensor] = []
        self.places: list[torch.Tensor] = []
        self.gradients: list[torch.Tensor] = []

    def hand_over(self) -> None:
        """Gives the reducer what has come. The gradients of the parameters are their places after that."""
        if not self.names:
            return
        self._reducer.ready_together(self.names, self.places, self.gradients)
        for parameter, place in zip(self.parameters, self.places, strict=True):
            parameter.grad = place
        self.names, self.parameters, self.places, self.gradients = [], [], [], []

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        """The gradients are copied on that one, and perhaps not on the one on which they were made."""
        for gradient in self.gradients:
            gradient.record_stream(stream)


class Arrival:
    """What there is to know of a parameter when its gradient comes."""

    __slots__ = ("form", "gathered", "name", "place", "step")

    def __init__(self, name: str, place: torch.Tensor, gathered: Gathered) -> None:
        self.name = name
        self.place = place  # in its bucket
        self.gathered = gathered
        self.step = -1  # in which it came last
        self.form = (
            place.shape,
            place.dtype,
            place.device,
            torch.strided,
            False,
        )  # what is one copy away from its place


def arrivals_of(reducer: GradientReducer, names: Sequence[str]) -> tuple[dict[str, Arrival], list[Gathered]]:
    """That of each name, and what they share. Gradients that come after each other are taken together."""
    wanted = frozenset(names)
    arrivals: dict[str, Arrival] = {}
    every: list[Gathered] = []
    for bucket in reducer.buckets:
        nbytes = -1  # of what the last one has, if it is of this bucket
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
