"""Common base of the samplers: the next epoch, the program's position in it, and the saved state.

An iteration uses the epoch that set_epoch() specified, or else the epoch after the last one. The
epoch is chosen when the first sample is drawn, not when iter() is called, because torch's
DataLoader calls iter() twice and discards one of the iterators.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeVar

from pycollective.data.agreement import check_alike, on_all
from pycollective.data.cut import Cut
from pycollective.data.order import Indices, Order, below_2_to_64
from pycollective.data.place import Place
from pycollective.errors import InvalidArgument

__all__ = ["Epochs", "Iteration"]

T = TypeVar("T")
VERSION = 1  # version of the saved states


@dataclass(eq=False)
class Iteration:
    """An iteration over an epoch, from a position on. It counts the sampler's items."""

    epoch: int
    start: int
    ahead: bool  # whether a DataLoader draws the items, possibly before the program gets them
    drawn: int = 0
    counted: int | None = None  # items that the program has received; None without counting()
    ended: bool = False

    def done(self) -> int:
        """Return how many items the program has received."""
        if self.counted is not None:
            return self.counted
        if self.ahead:
            raise InvalidArgument(
                "state_dict: a DataLoader draws samples before the program gets them, so the sampler does not know how "
                "many it has got: loop over sampler.counting(loader), or say state_dict(done=)"
            )
        return self.drawn


class Epochs(ABC):
    """The base of all samplers. Subclasses define the items."""

    def __init__(self, call: str, place: Place, make: Callable[[], tuple[Order, Cut]]) -> None:
        if place.group is None:
            self._order, self._cut = make()
        else:
            self._order, self._cut = _made_alike(call, place, make)
        self.rank, self.size = place.rank, place.size
        self._next = (0, 0)  # epoch and position of the next iteration
        # the iteration that began last; None if _next was set after it
        self._iteration: Iteration | None = None

    @property
    def epoch(self) -> int:
        """The epoch of the latest iteration; at first and after set_epoch(), of the next one."""
        return self._next[0] if self._iteration is None else self._iteration.epoch

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration go through this epoch. Later iterations continue from there.

        If this is the epoch of a state that was just loaded, the position of that state is kept.

        Parameters:
            epoch: from 0.

        Raises:
            InvalidArgument: the epoch is negative, or not a whole number.
        """
        epoch = below_2_to_64("set_epoch", "epoch", epoch)
        if self._iteration is not None or epoch != self._next[0]:
            self._next, self._iteration = (epoch, 0), None

    def counting(self, loader: Iterable[T]) -> Iterator[T]:
        """Iterate a loader that draws from this sampler, and count its batches for state_dict().

        Loaders with workers draw several batches ahead. A batch counts as soon as the loop has
        received it, so take the state at the end of the loop's body.

        Parameters:
            loader: torch's DataLoader, or any other loader that iterates this sampler once
                and yields one item for each item of the sampler.

        Raises:
            InvalidArgument: the loader does not draw from this sampler.

        Example:
            >>> import pycollective as pc
            >>> sampler = pc.data.BatchSampler(10, global_batch_size=4, rank=0, size=2)
            >>> loader = sampler  # or torch's DataLoader(dataset, batch_sampler=sampler, num_workers=2)
            >>> for batch in sampler.counting(loader):
            ...     state = sampler.state_dict()
            ...     break
            >>> state["epoch"], state["position"]
            (0, 4)
        """
        steps = self._steps_of_one(loader)
        before, here = self._iteration, None
        for count, batch in enumerate(loader, 1):
            here = here or self._iteration
            if here is None or here is before:
                raise InvalidArgument("counting: this loader does not draw from this sampler")
            here.counted = count * steps
            yield batch
        here = here or self._iteration
        if here is not None and here is not before:
            here.ended = True

    def state_dict(self, *, done: int | None = None) -> dict[str, int | str]:
        """Return the position of the program, for load_state_dict() on any number of ranks.

        The state is the same on all ranks.

        Parameters:
            done: the number of batches that the program has received in this iteration; for a
                Sampler, the number of this rank's samples. Default: the count of counting() or,
                without a DataLoader, the number that the sampler has yielded.

        Raises:
            InvalidArgument: a DataLoader draws from the sampler without counting(), or `done`
                exceeds the length of the iteration.
        """
        epoch, position = self._next
        here = self._iteration
        if here is not None:
            steps = self._steps(here.start)
            if done is not None and not 0 <= done <= steps:
                raise InvalidArgument(f"state_dict(done={done}): this iteration has {steps} steps")
            is_over = here.ended if done is None else done == steps
            done = here.done() if done is None else done
            epoch, position = here.epoch, here.start + done * self._cut.batch
            if is_over or position >= self._cut.end(here.start):
                epoch, position = here.epoch + 1, 0
        elif done:
            raise InvalidArgument(f"state_dict(done={done}): no iteration has begun")
        return {"version": VERSION, **self._data(), "epoch": epoch, "position": position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next iteration begin where the state was taken.

        The number of ranks, the batch size and `uneven` may differ from those of the state.

        Parameters:
            state: the result of state_dict(), the same on all ranks.

        Raises:
            InvalidArgument: the state has another number of samples, seed or order, or is not a
                state of a sampler.
        """
        known = {"version": VERSION, **self._data()}
        if missing := [name for name in (*known, "epoch", "position") if name not in state]:
            raise InvalidArgument(f"load_state_dict: that is no state of a sampler: it has no {missing[0]!r}")
        for name, value in known.items():
            if state[name] != value:
                raise InvalidArgument(
                    f"load_state_dict: the state is of other data: {name} is {state[name]!r} there and {value!r} here"
                )
        epoch, position = (
            below_2_to_64("load_state_dict", name, state[name]) for name in ("epoch", "position")
        )
        if position > self._order.n:
            raise InvalidArgument(
                f"load_state_dict: position={position} is behind the last of {self._order.n} samples"
            )
        # If the rest of the epoch has no complete batch with these settings, it is dropped.
        over = position > 0 and not self._cut.steps(position)
        self._next, self._iteration = (epoch + 1, 0) if over else (epoch, position), None

    def _data(self) -> dict[str, int | str]:
        return {"n": self._order.n, "seed": self._order.seed, "order": self._order.kind}

    def _begin(self) -> Iteration:
        """Begin an iteration.

        __iter__ is a generator, so this runs when the first item is drawn.
        """
        epoch, start = self._next
        self._next = (epoch + 1, 0)
        self._iteration = Iteration(epoch, start, ahead=_is_drawn_by_a_loader())
        return self._iteration

    @abstractmethod
    def _steps(self, start: int = 0) -> int:
        """Return how many items this rank gets from position `start` on."""

    @abstractmethod
    def _steps_of_one(self, loader: object) -> int:
        """Return how many of the sampler's items are in one item of the loader."""

    @abstractmethod
    def _positions(self, rank: int) -> Indices:
        """Return all positions of a rank in an epoch, in the order in which the rank gets them."""


def _is_drawn_by_a_loader() -> bool:
    """Return whether a DataLoader draws the first sample, directly or through another sampler."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("torch.utils.data."):
            return True
        frame = frame.f_back
    return False


def _made_alike(call: str, place: Place, make: Callable[[], tuple[Order, Cut]]) -> tuple[Order, Cut]:
    made = []

    def facts() -> dict[str, object]:
        made.append(make())
        order, cut = made[0]
        return {
            "the number of samples": order.n,
            "seed": order.seed,
            "the order": order.kind,
            "the global batch": cut.batch,
            "uneven": cut.uneven,
        }

    assert place.group is not None
    check_alike(call, on_all(place.group, call, facts))
    return made[0]
