"""Ranks without further batches take part in the steps of the other ranks with zero gradients.

In join() an allreduce of two numbers announces every step. Its result is the kind of the step, and
the highest rank that makes the step. A rank that has left the block takes part in the announced
steps until none is announced. (The context and its name are those of
torch.distributed.algorithms.join.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
import torch

from pycollective.errors import CollectiveError, CollectiveMismatch, InvalidArgument, Unsupported
from pycollective.torch.gradient_hooks import FORWARD, STEP, GradientHooks

__all__ = ["Joined", "join"]

NOTHING = 0
NO_STEP = 1 << 62  # stands for "no step" where the minimum of the announcements is needed
KINDS = 2  # FORWARD and STEP; n * KINDS is added to the announcements of the n-th model


class Joined(NamedTuple):
    """The parts of a DataParallel or a DistributedOptimizer that join() needs."""

    hooks: GradientHooks
    forward: Callable[
        [int], None
    ]  # takes part in a forward of other ranks; the argument is the rank that broadcasts its buffers
    tensors: Callable[[], list[torch.Tensor]]  # the tensors that are made equal at the end


class Joinable(Protocol):
    """A DataParallel or a DistributedOptimizer."""

    def _joined(self) -> Joined: ...


@contextlib.contextmanager
def join(*models: Joinable) -> Iterator[None]:
    """Lets ranks train on different numbers of batches.

        with pc.torch.join(model):
            for inputs, targets in loader:  # any number of batches on each rank
                optimizer.zero_grad()
                loss_function(model(inputs), targets).backward()
                optimizer.step()

    At the end of the block, ranks with fewer batches take part in the remaining steps of the other
    ranks. Each step costs one more small allreduce. Gradients are still averaged over all ranks; a
    rank without a batch counts as zeros. Buffers are those of the highest rank that has a batch. If
    ranks have made different numbers of steps, all ranks receive at the end the parameters and
    buffers of a rank with the most steps. The state of an optimizer (momentum) stays local, so it
    differs on a rank that has made fewer steps.

    Parameters:
        models: each DataParallel and DistributedOptimizer that the block trains, in the same
            order on all ranks. The block must not make other calls on all ranks, such as those of
            SyncBatchNorm. PYCOLLECTIVE_CHECK=strict compares no parameters in it.

    Raises:
        InvalidArgument: there is no model, one is in a block already, or they are on different
            ranks.
        PeerExited: another rank has left the block by an exception.
        Unsupported: there are several models, and one has sparse gradients.
        CollectiveMismatch: the ranks train their models in different orders.
        The errors of backward(): at the end of the block, too.

    Example:
        >>> import pycollective as pc, torch
        >>> _ = pc.init()
        >>> model = pc.torch.DataParallel(torch.nn.Linear(2, 1))
        >>> with pc.torch.join(model):
        ...     for _ in range(1 + pc.rank()):
        ...         model(torch.ones(3, 2)).sum().backward()
        >>> pc.shutdown()
    """
    if not models:
        raise InvalidArgument("join() needs the models and optimizers that are trained: join(model)")
    with _Block([each._joined() for each in models]) as block:
        with block.announced():
            yield
        block.answer_the_others()
        block.make_equal()


class _Block:
    """One block of join(). It has its own group, to announce steps while buckets are in flight."""

    def __init__(self, joined: list[Joined]) -> None:
        if any(each.hooks.announce is not None for each in joined):
            raise InvalidArgument("join(): this model is in the block of a join() already")
        if len({each.hooks.group.ranks for each in joined}) > 1:
            raise InvalidArgument(
                "join(): the models are on different ranks: join those of one group at a time"
            )
        if len(joined) > 1 and any(each.hooks.has_sparse for each in joined):
            raise Unsupported(
                "join(): a model with sparse gradients can be joined alone, and not beside another"
            )
        self._timeout_s = joined[0].hooks.timeout_s
        group = joined[0].hooks.group.split(0, timeout=self._timeout_s)
        assert group is not None
        self._joined = joined
        self._group = group
        self._steps = 0  # steps that this rank has announced
        # Hooks with a step that this rank has begun without gradients and has not finished.
        self._begun: list[GradientHooks] = []

    def __enter__(self) -> _Block:
        for each in self._joined:
            each.hooks.recover()  # a step before the block may have failed
            # Ranks that only take part in announced steps do not update their parameters, so
            # parameters differ.
            each.hooks.compare_parameters(False)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for each in self._joined:
            each.hooks.compare_parameters(True)
        if kind is not None:  # the other ranks wait for this rank's announcement, so their calls must fail
            with contextlib.suppress(CollectiveError):
                self._group._quit()
        else:
            self._group.close()

    @contextlib.contextmanager
    def announced(self) -> Iterator[None]:
        """Announces steps while the program's block runs."""
        for place, each in enumerate(self._joined):
            each.hooks.announce = self._announcing(place)
        try:
            yield
        finally:
            for each in self._joined:
                each.hooks.announce = None

    def _announcing(self, place: int) -> Callable[[int], int]:
        def announce(kind: int) -> int:
            self._steps += kind == STEP
            return self._exchange(kind + KINDS * place)[1]

        return announce

    def _exchange(self, mine: int) -> tuple[int, int]:
        """Returns the announcement and the highest rank that makes it. Raises if ranks differ."""
        words = np.array([mine * self._group.size + self._group.rank, -mine if mine else -NO_STEP])
        self._group.allreduce(words, "max", timeout=self._timeout_s)
        largest, last = divmod(int(words[0]), self._group.size)
        if largest != NOTHING and (least := -int(words[1])) != largest:
            raise CollectiveMismatch(
                f"join(): one rank makes {_words(least)} and another {_words(largest)} at the same time: all ranks "
                "train their models in the same order"
            )
        return largest, last

    def answer_the_others(self) -> None:
        """Takes part in the steps that other ranks announce, without gradients of its own."""
        announced, last = self._exchange(NOTHING)
        while announced != NOTHING:
            place, is_step = divmod(announced - FORWARD, KINDS)
            each = self._joined[place]
            self._end(each.hooks)
            if is_step:  # finished later: the backward may begin steps of other models before it ends
                each.hooks.begin_without_gradients()
                self._begun.append(each.hooks)
                if each.hooks.has_sparse:
                    self._end(each.hooks)
            else:
                each.forward(last)
            announced, last = self._exchange(NOTHING)
        for each in self._joined:
            self._end(each.hooks)

    def _end(self, hooks: GradientHooks) -> None:
        if hooks in self._begun:
            self._begun.remove(hooks)
            hooks.synchronize()

    def make_equal(self) -> None:
        """Broadcasts the tensors of a rank that has made the most steps."""
        steps = self._group.allgather(np.array([self._steps]), timeout=self._timeout_s)
        if steps.min() == steps.max():
            return
        root = int(np.argmax(steps))
        for each in self._joined:
            each.hooks.restart()
            if tensors := [tensor.detach() for tensor in each.tensors()]:
                self._group.broadcast(tensors, root=root, timeout=self._timeout_s)


def _words(announced: int) -> str:
    place, is_step = divmod(announced - FORWARD, KINDS)
    return f"{'a backward' if is_step else 'a forward'} of model {place}"
