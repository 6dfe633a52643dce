"""Tracks which batch the script uses, whether it trains with it, and this rank's part of it.

The purpose of a loop over a DataLoader is unknown at first, but a batch must be cut before it is
loaded. So a pass over a loader begins with whole batches, the same on every rank, which is correct
for any purpose. After an optimizer has stepped with batches of the pass, the pass counts as
training, and the following batches are cut. A later pass over that loader begins with cut batches,
unless gradients are disabled or the model was put into eval(). Evaluation is never cut.

Gradients and batch normalization must know their batch. In a plain loop that is the batch that the
script got last. If the script takes batches ahead of their backward (lists of batches,
prefetchers), or keeps them, several batches are possible. They are accepted if they are all alike,
and refused otherwise.
"""

from __future__ import annotations

import sys
import warnings
import weakref
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader

from pycollective.errors import InvalidArgument
from pycollective.torch.auto.sizes import Place, weighing

__all__ = ["Batch", "Batches", "Pass", "Share"]

NAME = "pycollective.torch.auto"
OF_PARTS = (
    "Every other number (accuracy, len(x), a loss before backward() or one of its terms) is of this rank's part: "
    "pc.metrics.mean() or sum() makes it whole (docs/auto.md)"
)


class Batch(NamedTuple):
    """One batch of a pass."""

    total: int  # number of samples on all ranks together; 0 if unknown
    mine: int  # number of samples on this rank
    cut: bool  # whether each rank has a part; otherwise every rank has the whole batch
    digest: int  # digest of the indices of the whole batch

    def like(self, other: Batch, size: int) -> bool:
        """Returns whether losses of both batches are treated in the same way."""
        return self.cut == other.cut and self.uneven(size) == other.uneven(size)

    def uneven(self, size: int) -> int:
        """Returns the number of samples if the ranks' parts differ in size, else 0."""
        return self.total if self.cut and self.total % size else 0


WHOLE = Batch(0, 0, False, 0)


@dataclass(frozen=True)
class Share:
    """The properties of the batches that one backward uses."""

    weight: float  # factor for the mean of this rank's samples; the average of all ranks' factors is 1
    cut: bool
    mixed: bool  # whether some of the batches are cut and some are whole
    parts: frozenset[int]  # sizes of this rank's parts of the cut batches
    digest: int


class Pass:
    """One pass over a loader."""

    def __init__(self, loader: DataLoader[Any], iterator: object, cutting: bool, evaluating: bool) -> None:
        self.loader = weakref.ref(loader)
        self.iterator = weakref.ref(iterator)
        self.cutting = cutting  # whether the next drawn batch will be cut
        # whether the pass began as evaluation: with gradients disabled or in eval()
        self.evaluating = evaluating
        # batches that the script has not got yet; worker processes load some ahead
        self.drawn: deque[Batch] = deque()
        self.last = WHOLE  # the batch that the script got last
        self.handed = 0  # number of batches that the script has got
        self.alike = 0  # number of consecutive batches, up to `last`, that are alike
        self.spent = 0  # number of backwards that used new batches of this pass
        self.trained = False  # whether an optimizer has stepped with batches of this pass
        self.had_cut = False
        self.spent_cut = False
        self.exhausted = False

    @property
    def live(self) -> bool:
        """Whether the script may still be inside the loop."""
        return not self.exhausted and self.iterator() is not None


class Batches:
    """All passes of one process.

    Thread-safety: one thread at a time.
    """

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._new: dict[Pass, None] = {}  # passes of which the script got a batch since the last backward
        self._used: list[Pass] = []  # passes with batches that the last backward used
        # loaders with a pass that was training
        self._training: weakref.WeakSet[DataLoader[Any]] = weakref.WeakSet()
        self._steps = 0
        self._cuts = 0
        self._warned = False
        self._looked = False  # whether the script's source was searched for weighing by batch size
        self._weighs: Place | None = None  # the line that weighs, if one was found
        self._warned_of_parts = False
        self.eval_mode = False  # whether eval() was called last, and not train()

    def begin(self, loader: DataLoader[Any], iterator: object, grad_enabled: bool) -> Pass:
        """Begins a pass over a loader."""
        evaluating = self.eval_mode or not grad_enabled
        return Pass(loader, iterator, loader in self._training and not evaluating, evaluating)

    def draw(self, running: Pass, samples: Any, digest: Callable[[Any], int]) -> Any:  # noqa: ANN401
        """Returns this rank's part of a batch, or of the indices from which the batch is loaded.

        `digest` is applied to the whole batch.
        """
        if not (hasattr(samples, "__len__") and hasattr(samples, "__getitem__")):
            samples = list(samples)
        total = len(samples)
        # A batch with fewer samples than ranks stays whole, because a rank without samples could
        # compute nothing.
        cut = running.cutting and total >= self._size and torch.is_grad_enabled()
        part = slice(self._rank * total // self._size, (self._rank + 1) * total // self._size)
        mine = samples[part] if cut else samples
        running.drawn.append(Batch(total, len(mine), cut, digest(samples)))
        return mine

    def hand(self, running: Pass) -> None:
        """Records that the script gets the batch that was drawn first."""
        batch = running.drawn.popleft() if running.drawn else WHOLE
        if running.had_cut and not running.spent:
            raise _cut_for_nothing()
        if not torch.is_grad_enabled():
            if batch.cut:  # the batch was cut before gradients were disabled
                raise _cut_for_nothing()
            # evaluation inside a training loop: no backward will use this batch
            running.spent += not running.evaluating
        running.alike = running.alike + 1 if batch.like(running.last, self._size) else 1
        running.last = batch
        running.handed += 1
        running.had_cut |= batch.cut
        self._cuts += batch.cut
        self._new[running] = None
        if batch.cut:
            self._warn_of_parts()

    def leave_out(self, running: Pass) -> None:
        """Drops the batch that was drawn first: loading it raised, and the script may continue."""
        if running.drawn:
            running.drawn.popleft()

    def end(self, running: Pass) -> None:
        """Records that the loop has reached the end of the loader."""
        running.exhausted = True
        if running.had_cut and not running.spent_cut:
            raise _cut_for_nothing()
        if running.trained and not running.had_cut and running.handed > self._size:
            self._warn_whole("a loop trained with whole batches")

    def cut(self) -> bool:
        """Whether the input that a model gets now is this rank's part of a batch."""
        passes = self._current()
        kinds = {each.last.cut for each in passes}
        if len(kinds) > 1:
            raise _unclear(
                "parts of batches and whole ones are in use together, which batch normalization cannot tell"
            )
        return kinds == {True}

    def spend(self) -> Share:
        """Begins a backward, and returns the properties of its batches."""
        passes = self._current()
        lasts = [each.last for each in passes]
        if len({last.uneven(self._size) for last in lasts}) > 1:
            raise _unclear(
                "batches of different sizes are in one backward, and not all can be divided by the ranks"
            )
        for each in passes:
            each.spent += each in self._new
            each.spent_cut |= each.last.cut
        self._used = passes
        self._new.clear()
        parts = frozenset(last.mine for last in lasts if last.cut)
        mixed = len({last.cut for last in lasts}) > 1
        uneven = next((last for last in lasts if last.uneven(self._size)), None)
        weight = uneven.mine * self._size / uneven.total if uneven else 1.0
        digest = zlib.crc32(repr([last.digest for last in lasts]).encode())
        return Share(weight, bool(parts), mixed, parts, digest)

    def stepped(self) -> None:
        """Records that an optimizer stepped, so the last backward's batches were for training."""
        self._steps += 1
        for each in self._used:
            each.trained = True
            if each.handed == each.spent:
                self._warn_of_sizes(each)
                each.cutting = True
                if (
                    loader := each.loader()
                ) is not None:  # the loader may be freed while a pass over it still runs
                    self._training.add(loader)

    def report(self) -> None:
        """Warns if no batch was cut, because several ranks were then no faster than one."""
        if self._steps and not self._cuts:
            self._warn_whole("no batch was cut")

    def _current(self) -> list[Pass]:
        """Returns the passes with the batches in use. Raises if it is uncertain which."""
        training = [each for each in self._new if not each.evaluating]
        passes = training or [each for each in self._used if each.live] or list(self._new) or self._used
        for each in passes:
            kept = each.exhausted and each not in self._new  # the script may use any batch of the pass again
            if each.alike < (each.handed if kept else each.handed - each.spent):
                raise _unclear("batches are kept, or taken ahead of their backward, and are not all alike")
        return passes

    def _warn_of_sizes(self, training: Pass) -> None:
        """Warns that the script weighs by batch size, before the first batch is cut."""
        if self._looked or training.cutting:
            return
        self._looked = True
        self._weighs = weighing() if self._rank == 0 else None
        if self._weighs is not None and self._weighs.certain:
            self._warned_of_parts = True
            _warn(
                f"{self._weighs.where} adds up or weighs by the size of a batch: len(x) is that of this rank's "
                "part from the second batch of a training loop on, while loss.item() after backward() is of the whole "
                f"batch. For a mean over an epoch add up loss.item() and divide by the number of batches. {OF_PARTS}",
                stacklevel=3,
            )

    def _warn_of_parts(self) -> None:
        """Warns at the first cut batch: a number does not show that it was computed from a part."""
        if self._warned_of_parts or self._rank != 0:
            return
        self._warned_of_parts = True
        where = self._weighs.where if self._weighs is not None else ""
        hint = f"; {where} may add up or weigh by the size of a batch" if where else ""
        _warn(
            f"from here on each rank computes with its part of a batch. loss.item() after backward() is of the "
            f"whole batch. {OF_PARTS}{hint}",
            stacklevel=5,  # refers to the loop over the loader
        )

    def _warn_whole(self, what: str) -> None:
        if self._rank == 0 and not self._warned:
            self._warned = True
            why = "an iterable dataset with workers, batches smaller than the world, or taken ahead of their backward"
            _warn(
                f"{what} ({why}): every rank computed the same, which is right, and no faster than one rank",
                stacklevel=3,
            )


def _warn(text: str, *, stacklevel: int) -> None:
    """Warns but never raises, because an exception on one rank would leave other ranks waiting."""
    try:
        warnings.warn(f"{NAME}: {text}", stacklevel=stacklevel)
    except UserWarning as error:  # raised if warnings are errors (python -W error)
        print(error, file=sys.stderr)


def _unclear(what: str) -> InvalidArgument:
    return InvalidArgument(
        f"{NAME}: {what}: take a batch_size that all ranks divide, with drop_last=True, or begin each backward before "
        "the next batch is taken"
    )


def _cut_for_nothing() -> InvalidArgument:
    return InvalidArgument(
        f"{NAME}: a loop over a DataLoader gets this rank's part of each batch, because an earlier one over it was "
        "training; but this one does not train, so what it computes would be of a part: begin it under "
        "torch.no_grad(), or after model.eval(). (If it leaves out what looks like a short batch: every part is short)"
    )
