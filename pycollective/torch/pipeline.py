"""A model in stages, one per rank, that processes micro-batches in a pipeline.

If a step fails on one rank, the rank keeps its schedule and sends a marker in place of each tensor.
So every message is received, no rank waits forever, all ranks raise at the end of the step, and the
next step can begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from pycollective.base.advice import advised
from pycollective.base.whole_numbers import whole_number
from pycollective.errors import CollectiveMismatch, InvalidArgument
from pycollective.objects import objects
from pycollective.objects.remote_error import record_of, reraised
from pycollective.torch.groups import group_of

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from pycollective._core import Group, Work

__all__ = ["Pipeline", "schedule"]

T = TypeVar("T")
Pass: TypeAlias = Literal["forward", "backward"]

FORWARD, BACKWARD = 0, 1  # message tags
# the marker that a failed rank sends in place of a tensor
FAILED = np.zeros(1, [("pycollective: this stage has failed", np.uint8)])


class Pipeline:
    """Trains a model with its stages on different ranks, in the order of the ranks.

        pipeline = pc.torch.Pipeline(stage, micro_batches=8, loss=torch.nn.functional.cross_entropy)
        for inputs, targets in loader:    # the first rank uses the inputs, the last the targets
            optimizer.zero_grad()
            loss = pipeline.step(inputs, targets)
            optimizer.step()              # of this rank's stage

    A batch is cut into micro-batches, which the stages process at the same time. Each rank runs
    forward passes until its first gradient can arrive, and then alternates forward and backward
    (1F1B), so it keeps the activations of at most `size - rank` micro-batches. (Narayanan et al.,
    Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM,
    arXiv:2104.04473; PipeDream-Flush of arXiv:2006.09503.) The stages are idle for about `size - 1`
    of `micro_batches + size - 1` time slots.

    Gradients are those of the whole model for the whole batch, if `loss` is a mean over samples,
    and are added to existing gradients. Batch normalization uses the statistics of micro-batches.

    Parameters:
        stage: this rank's part, a module that takes one tensor and returns one. Shapes and
            dtypes are found at run time.
        micro_batches: the number of parts of a batch, the same on all ranks. The parts differ by
            at most one sample.
        loss: on the last rank, a function of (outputs, targets) that averages over samples.
        group: the ranks of the stages; default the world. All of them must make the Pipeline.
        timeout: seconds that a message may take; default that of init().

    With data parallelism, each gradient is complete after `micro_batches` backwards. Average it
    then: `DistributedOptimizer(optimizer, group=mesh["dp"],
    backward_passes_per_step=micro_batches)`.

    Raises:
        InvalidArgument: micro_batches is less than 1, or is not an int on another rank.
        TypeError: micro_batches is not an int on this rank.
        CollectiveMismatch: the ranks pass different values of micro_batches.

    Example:
        >>> import pycollective as pc, torch
        >>> _ = pc.init()
        >>> stage = torch.nn.Linear(2, 1)
        >>> pipeline = pc.torch.Pipeline(stage, micro_batches=2, loss=torch.nn.functional.mse_loss)
        >>> _ = pipeline.step(torch.ones(4, 2), torch.zeros(4, 1))
        >>> stage.weight.grad.shape
        torch.Size([1, 2])
        >>> pc.shutdown()
    """

    @advised
    def __init__(
        self,
        stage: Callable[[Tensor], Tensor],
        *,
        micro_batches: int,
        loss: Callable[[Tensor, Any], Tensor] | None = None,
        group: Group | ProcessGroup | None = None,
        timeout: float | None = None,
    ) -> None:
        ranks = group_of(group)
        self.micro_batches = _agreed(ranks, micro_batches, timeout)
        # separates the pipeline's messages from those of the user
        group_of_stages = ranks.split(0, timeout=timeout)
        assert group_of_stages is not None
        self.group: Group = group_of_stages
        self.stage = stage
        self.loss = loss
        self.timeout = timeout
        self._between = False  # whether messages of an interrupted step may still arrive

    def step(self, inputs: Tensor | None = None, targets: Any = None) -> float:  # noqa: ANN401  a tensor, mostly
        """Trains with one batch, forward and backward. Returns its loss on every rank.

        Parameters:
            inputs: on the first rank, the batch along axis 0, at least one sample per micro-batch.
                Ignored on other ranks.
            targets: on the last rank, a tensor of the same length. Ignored on other ranks.

        Raises:
            InvalidArgument: the batch is missing or too short, or inputs and targets differ in
                length, or an earlier step was interrupted by a timeout or Ctrl-C.
            What a stage or the loss raises: on all ranks; those that did not fail raise it with
                a RemoteError that has the traceback. The gradients are invalid then; the next step
                can begin.
            CollectiveMismatch: other ranks called the pipeline, not step(). All ranks raise it.
            CollectiveTimeout, PeerFailure: as send() and recv().
        """
        run = _Run(self, inputs, targets)
        return self._run(run, schedule(self.group.rank, self.group.size, self.micro_batches))

    def close(self) -> None:
        """Releases the resources of the pipeline's group: see Group.close().

        No batch can be trained after this.
        """
        self.group.close()

    def __call__(self, inputs: Tensor | None = None) -> Tensor | None:
        """Runs a batch forward, without gradients.

        Returns the outputs for the whole batch on the last rank, None on the other ranks.
        """
        with torch.no_grad():
            run = _Run(self, inputs, None, trains=False)
            self._run(run, (("forward", index) for index in range(self.micro_batches)))
        return torch.cat(run.outputs) if run.outputs else None

    def _run(self, run: _Run, passes: Iterator[tuple[Pass, int]]) -> float:
        """Runs the passes, and returns the loss. Raises on all ranks an exception of one rank."""
        if self._between:
            raise InvalidArgument(
                "Pipeline: an earlier step ended early on this rank, and its messages may still come: make a new "
                "Pipeline, on all ranks"
            )
        self._between = True
        for kind, index in passes:
            (run.forward if kind == "forward" else run.backward)(index)
        run.wait_until_sent()
        mine = np.array([run.loss, run.failed, run.unmatched, run.trains])
        loss, failed, unmatched, training = self.group.allreduce(mine, timeout=self.timeout).tolist()
        if 0 < training < self.group.size:
            raise CollectiveMismatch(
                f"Pipeline: {training:.0f} of {self.group.size} ranks called step(), the others the pipeline itself: "
                "messages of theirs are on their way, so make a new Pipeline, on all ranks",
                rank=self.group.rank,
            )
        reports = []
        if failed:
            words = None if run.error is None else record_of(run.error)
            reports = objects.allgather_object(self.group, words, timeout=self.timeout)
        self._between = False
        if run.error is not None:
            raise run.error
        for rank, words in enumerate(reports):
            if words is not None:
                raise reraised(words, rank)
        if unmatched and run.trains:
            raise InvalidArgument(f"Pipeline: inputs and targets differ by {abs(unmatched):.0f} samples")
        return float(loss)


def schedule(stage: int, stages: int, micro_batches: int) -> Iterator[tuple[Pass, int]]:
    """Yields the passes of a stage, each with its micro-batch, in 1F1B order."""
    ahead = min(stages - 1 - stage, micro_batches)
    for index in range(ahead):
        yield "forward", index
    for index in range(micro_batches):
        if index + ahead < micro_batches:
            yield "forward", index + ahead
        yield "backward", index


class _Run:
    """The processing of one batch in this rank's stage."""

    def __init__(
        self,
        pipeline: Pipeline,
        inputs: Tensor | None,
        targets: Any,  # noqa: ANN401
        trains: bool = True,
    ) -> None:
        self._pipeline = pipeline
        self.trains = trains
        rank, last = pipeline.group.rank, pipeline.group.size - 1
        self._before = None if rank == 0 else rank - 1
        self._behind = None if rank == last else rank + 1
        # inputs and outputs of the stage until their backward, by micro-batch
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}
        self._sent: dict[int, Work[Any]] = {}  # the last message, by tag
        self.outputs: list[Tensor] = []  # on the last rank, without training: outputs of the micro-batches
        self.loss = 0.0
        # this rank's samples in inputs minus those in targets; summed over the ranks at the end
        self.unmatched = 0
        self.failed = False  # whether this or another rank failed: only markers are sent from then on
        self.error: Exception | None = None  # this rank's exception
        # `Any`, because the value is None, and unused, on a rank that has failed.
        self._inputs: Any = None if rank > 0 else self._attempt(self._cut, "inputs", inputs)
        self._targets: Any = self._attempt(self._cut, "targets", targets) if trains and rank == last else None

    def forward(self, index: int) -> None:
        if self._before is None:
            x = self._inputs[index] if self._inputs else None
        else:
            x = self._receive(self._before, FORWARD)
        output = self._attempt(self._through_stage, index, x)
        if self._behind is not None:
            self._send(output, self._behind, FORWARD)

    def backward(self, index: int) -> None:
        gradient = None if self._behind is None else self._receive(self._behind, BACKWARD)
        gradient = self._attempt(self._back_through_stage, index, gradient)
        if self._before is not None:
            self._send(gradient, self._before, BACKWARD)

    def wait_until_sent(self) -> None:
        for work in self._sent.values():
            work.wait()

    def _attempt(self, compute: Callable[..., T], *args: object) -> T | None:
        """Returns the result of `compute`, or None if it raises or the step has failed before."""
        if not self.failed:
            try:
                return compute(*args)
            except Exception as error:
                self.failed, self.error = True, error
        return None

    def _cut(self, what: str, batch: Tensor | None) -> tuple[Tensor, ...]:
        count, rank = self._pipeline.micro_batches, self._pipeline.group.rank
        if batch is None or len(batch) < count:
            raise InvalidArgument(
                f"Pipeline: rank {rank} needs {what} of at least a sample for each of the {count} micro-batches, and "
                f"got {'none' if batch is None else f'{len(batch)} samples'}"
            )
        self.unmatched += len(batch) if what == "inputs" else -len(batch)
        parts: tuple[Tensor, ...] = batch.tensor_split(count)
        return parts

    def _through_stage(self, index: int, x: Tensor) -> Tensor:
        if self.trains and self._before is not None and (x.is_floating_point() or x.is_complex()):
            x.requires_grad_()
        output = self._pipeline.stage(x)
        if not isinstance(output, Tensor):
            raise InvalidArgument(
                f"Pipeline: the stage of rank {self._pipeline.group.rank} returned a {type(output).__name__}, and a "
                "stage hands on one tensor"
            )
        if not self.trains:
            self.outputs += [output] if self._behind is None else []
            return output
        if self._behind is None:
            output = self._part_of_loss(output, self._targets[index])
        self._kept[index] = x, output
        return output

    def _part_of_loss(self, output: Tensor, targets: Tensor) -> Tensor:
        if self._pipeline.loss is None:
            raise InvalidArgument("Pipeline: the last rank needs a loss")
        samples = sum(len(each) for each in self._targets)
        loss = self._pipeline.loss(output, targets) * (len(targets) / samples)
        self.loss += loss.item()
        return loss

    def _back_through_stage(self, index: int, gradient: Tensor | None) -> Tensor | None:
        x, output = self._kept.pop(index)
        if output.requires_grad:
            output.backward(gradient)
        if self._before is None:
            return None
        return torch.zeros_like(x) if x.grad is None else x.grad

    def _send(self, x: Tensor | None, peer: int, tag: int) -> None:
        """Sends in the background, because the peer may be sending too.

        At most one message is in flight in each direction, to limit memory.
        """
        if (previous := self._sent.get(tag)) is not None:
            previous.wait()
        block: Any = FAILED if x is None else x.detach().contiguous()
        group, timeout = self._pipeline.group, self._pipeline.timeout
        self._sent[tag] = group.send_async(block, peer, tag=tag, timeout=timeout)

    def _receive(self, peer: int, tag: int) -> Tensor | None:
        group = self._pipeline.group
        _, name, shape, token = group._find(peer, tag, self._pipeline.timeout)
        dtype = getattr(torch, name, None)
        if isinstance(dtype, torch.dtype):
            return group._receive(torch.empty(shape, dtype=dtype), token, None)
        group._receive(np.empty_like(FAILED), token, None)
        self.failed = True
        return None


def _agreed(ranks: Group, micro_batches: int, timeout: float | None) -> int:
    """Returns micro_batches, if they are equal on all ranks.

    A rank with an invalid value raises only after the exchange, so that the other ranks receive the
    value and raise too.
    """
    mine, wrong = 0, None
    try:
        mine = whole_number("Pipeline", "micro_batches", micro_batches)
    except TypeError as error:
        wrong = error
    said: list[int] = ranks.allgather(np.array([mine]), timeout=timeout).tolist()
    if wrong is not None:
        raise wrong
    if min(said) < 1:
        raise InvalidArgument(f"Pipeline: micro_batches must be an int of at least 1; the ranks say {said}")
    if min(said) < max(said):
        raise CollectiveMismatch(f"Pipeline: the ranks differ in micro_batches: {said}")
    return mine
