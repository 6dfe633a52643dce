"""Tracks which batch the script uses, whether it trains with it, and this rank's part of it.

The purpose of a loop over a DataLoader is unknown, and a batch must be cut before it is loaded. So
a pass over a loader begins with whole batches, the same on every rank, which is correct for any
purpose. When an optimizer has stepped with its batches, the pass is training, and the following
batches are cut. A later pass over that loader begins with cut batches, unless gradients are
disabled or the model was put into eval(). Evaluation is never cut.

Gradients and batch normalization must know their batch. In a plain loop that is the batch handed
out last. If batches are taken ahead of their backward (lists of batches, prefetchers), or kept, it
could be one of several. That is accepted if all of these are alike, and refused otherwise.
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
    """One batch of a pass, as it was drawn."""

    total: int  # samples on all ranks together; 0 if unknown
    mine: int  # samples on this rank
    cut: bool  # false: whole on every rank
    digest: int  # digest of the indices before the cut

    def like(self, other: Batch, size: int) -> bool:
        """Returns whether a loss of this batch is treated like a loss of the other one."""
        return self.cut == other.cut and self.uneven(size) == other.uneven(size)

    def uneven(self, size: int) -> int:
        """Returns its number of samples if ranks have parts of different sizes, else 0."""
        return self.total if self.cut and self.total % size else 0


WHOLE = Batch(0, 0, False, 0)


@dataclass(frozen=True)
class Share:
    """What a backward must know about its batches."""

    weight: float  # weight of this rank's mean; the average over the ranks is 1
    cut: bool
    mixed: bool  # some are cut, and some are whole
    parts: frozenset[int]  # numbers of samples of the cut parts
    digest: int


class Pass:
    """One pass over a loader."""

    def __init__(self, loader: DataLoader[Any], iterator: object, cutting: bool, evaluating: bool) -> None:
        self.loader = weakref.ref(loader)
        self.iterator = weakref.ref(iterator)
        self.cutting = cutting  # whether the next drawn batch will be cut
        self.evaluating = evaluating  # whether it seemed to be evaluation when it began
        self.drawn: deque[Batch] = deque()  # batches not yet handed out: worker processes load some ahead
        self.last = WHOLE  # the batch handed out last
        self.handed = 0  # number of batches handed out
        self.alike = 0  # number of the latest ones that are alike
        self.spent = 0  # number of backwards that used new batches of this pass
        self.trained = False  # whether an optimizer has stepped with them
        self.had_cut = False
        self.spent_cut = False
        self.exhausted = False

    @property
    def live(self) -> bool:
        """Whether the script may be inside the loop."""
        return not self.exhausted and self.iterator() is not None


class Batches:
    """All passes of one process. Thread-safety: one thread at a time."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._new: dict[Pass, None] = {}  # passes that handed out batches since the last backward
        self._used: list[Pass] = []  # passes with batches in the last backward
        self._training: weakref.WeakSet[DataLoader[Any]] = weakref.WeakSet()  # loaders of earlier training
        self._steps = 0
        self._cuts = 0
        self._warned = False
        self._looked = False  # whether the program's text was searched for weights by batch size
        self._weighs: Place | None = None  # the line that weighs, if any
        self._warned_of_parts = False
        self.eval_mode = False  # whether the latest module to change its mode entered eval()

    def begin(self, loader: DataLoader[Any], iterator: object, grad_enabled: bool) -> Pass:
        """Begins a loop."""
        evaluating = self.eval_mode or not grad_enabled
        return Pass(loader, iterator, loader in self._training and not evaluating, evaluating)

    def draw(self, running: Pass, samples: Any, digest: Callable[[Any], int]) -> Any:  # noqa: ANN401
        """Returns this rank's part of a batch, or of the indices to load it from.

        `digest` is applied to the whole batch.
        """
        if not (hasattr(samples, "__len__") and hasattr(samples, "__getitem__")):
            samples = list(samples)
        total = len(samples)
        # A batch with fewer samples than ranks stays whole: nothing can be computed from no
        # samples.
        cut = running.cutting and total >= self._size and torch.is_grad_enabled()
        part = slice(self._rank * total // self._size, (self._rank + 1) * total // self._size)
        mine = samples[part] if cut else samples
        running.drawn.append(Batch(total, len(mine), cut, digest(samples)))
        return mine

    def hand(self, running: Pass) -> None:
        """Records that the script gets the next drawn batch."""
        batch = running.drawn.popleft() if running.drawn else WHOLE
        if running.had_cut and not running.spent:
            raise _cut_for_nothing()
        if not torch.is_grad_enabled():
            if batch.cut:  # it was loaded ahead
                raise _cut_for_nothing()
            running.spent += not running.evaluating  # evaluation in a training loop: no backward will follow
        running.alike = running.alike + 1 if batch.like(running.last, self._size) else 1
        running.last = batch
        running.handed += 1
        running.had_cut |= batch.cut
        self._cuts += batch.cut
        self._new[running] = None
        if batch.cut:
            self._warn_of_parts()

    def leave_out(self, running: Pass) -> None:
        """Drops the next batch: loading it raised, and the script may continue."""
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
        """Whether a model's current input is this rank's part of a batch."""
        passes = self._current()
        kinds = {each.last.cut for each in passes}
        if len(kinds) > 1:
            raise _unclear(
                "parts of batches and whole ones are in use together, which batch normalization cannot tell"
            )
        return kinds == {True}

    def spend(self) -> Share:
        """Begins a backward: returns the Share of its batches."""
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
        """Records an optimizer step: the batches of the last backward are for training."""
        self._steps += 1
        for each in self._used:
            each.trained = True
            if each.handed == each.spent:
                self._warn_of_sizes(each)
                each.cutting = True
                if (
                    loader := each.loader()
                ) is not None:  # the loader may be freed while the pass over it still runs
                    self._training.add(loader)

    def report(self) -> None:
        """Warns if no batch was cut, so that several ranks gave no speedup."""
        if self._steps and not self._cuts:
            self._warn_whole("no batch was cut")

    def _current(self) -> list[Pass]:
        """Returns the passes that provide the batches in use; raises if that is uncertain."""
        training = [each for each in self._new if not each.evaluating]
        passes = training or [each for each in self._used if each.live] or list(self._new) or self._used
        for each in passes:
            kept = each.exhausted and each not in self._new  # any of its batches may be in use again
            if each.alike < (each.handed if kept else each.handed - each.spent):
                raise _unclear("batches are kept, or taken ahead of their backward, and are not all alike")
        return passes

    def _warn_of_sizes(self, training: Pass) -> None:
        """Warns before the first batch that will be cut."""
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
        """Warns with the first cut batch, since a number computed from a part does not show it."""
        if self._warned_of_parts or self._rank != 0:
            return
        self._warned_of_parts = True
        where = self._weighs.where if self._weighs is not None else ""
        hint = f"; {where} may add up or weigh by the size of a batch" if where else ""
        _warn(
            f"from here on each rank computes with its part of a batch. loss.item() after backward() is of the "
            f"whole batch. {OF_PARTS}{hint}",
            stacklevel=5,  # the loop over the loader
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
    """Warns without raising: an exception on one rank would leave the other ranks waiting."""
    try:
        warnings.warn(f"{NAME}: {text}", stacklevel=stacklevel)
    except UserWarning as error:  # as with python -W error
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
