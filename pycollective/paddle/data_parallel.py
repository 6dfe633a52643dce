"""Keeps the copies of a Paddle layer on all ranks equal: backward averages their gradients.

A hook on each parameter passes its gradient to a GradientReducer as soon as Paddle has accumulated
it, and Paddle's hook at the end of backward finishes the step.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import paddle
from paddle import nn

from pycollective import _core
from pycollective.arrays.libraries import by_name
from pycollective.base.advice import advised, elsewhere
from pycollective.errors import InvalidArgument
from pycollective.paddle.places import refuse_gpus
from pycollective.training.gradients.reducer import GradientReducer

if TYPE_CHECKING:
    from pycollective._core import Group

__all__ = ["DataParallel"]

# An array that is reduced together with the gradients. It has one element per parameter, 1 if this
# rank has a gradient. If the average is 0, no rank has a gradient for the parameter, and the
# parameter gets none: zeros would let weight decay and momentum change it.
USED = "(parameters that are used)"


@elsewhere("scale_loss", "apply_collective_grads")
class DataParallel(nn.Layer):  # type: ignore[misc]
    """Trains one model on all ranks of a group, each with its own part of every batch.

        model = pc.paddle.DataParallel(model)
        for inputs, targets in loader:                    # this rank's part
            loss_function(model(inputs), targets).backward()  # returns with averaged gradients
            optimizer.step()
            optimizer.clear_grad()

    The constructor broadcasts the parameters and buffers of rank 0 to all ranks. After that every
    backward averages the gradients over the ranks, in buckets that are sent while backward
    continues to compute. (Li et al., PyTorch Distributed, VLDB 2020.) As with paddle.DataParallel,
    running statistics of batch normalizations are local to each rank: see pc.paddle.SyncBatchNorm.

    Parameters:
        layers: the model, equal in structure on all ranks, on the CPU.
        group: the ranks that take part; default the world. Ranks outside a subgroup hold None for
            it, and None means the world, so they must not call this.
        bucket_nbytes, first_bucket_nbytes, compression, timeout: see GradientReducer.

    Ranks may use different parameters. A parameter that no rank has used gets no gradient. A rank
    without a batch calls synchronize(). After an exception in the middle of a step, call reset().

    Raises:
        InvalidArgument: `layers` is not a Layer of Paddle, or has no parameter that requires a
            gradient. When the model is called: a parameter requires a gradient now, but did not
            when this object was made (stop_gradient).
        Unsupported: a parameter or a buffer is on a GPU; also raised when the model is called.
        CollectiveMismatch: the models of the ranks differ.
        SystemError, OSError: from backward(), with a CollectiveError as the cause or in the text:
            Paddle calls Python hooks from within its own code.

    Example:
        >>> import pycollective as pc, paddle
        >>> _ = pc.init()
        >>> model = pc.paddle.DataParallel(paddle.nn.Linear(2, 1))
        >>> model(paddle.ones([3, 2])).sum().backward()
        >>> model.parameters()[0].grad.flatten().tolist()
        [3.0, 3.0]
        >>> pc.shutdown()
    """

    @advised
    def __init__(
        self,
        layers: nn.Layer,
        *,
        group: Group | None = None,
        bucket_nbytes: int = 25 << 20,
        first_bucket_nbytes: int = 1 << 20,
        compression: Literal["bf16", "f16"] | None = None,
        timeout: float | None = None,
    ) -> None:
        if not isinstance(layers, nn.Layer):
            raise InvalidArgument(f"DataParallel: it takes a Layer of Paddle, not {type(layers).__name__}")
        super().__init__()
        self._layers = layers
        named = dict(layers.named_parameters())
        refuse_gpus("DataParallel", {**named, **dict(layers.named_buffers())})
        self._trained = {name: each for name, each in named.items() if not each.stop_gradient}
        self._frozen = {name: each for name, each in named.items() if each.stop_gradient}
        if not self._trained:
            raise InvalidArgument(
                "DataParallel: no parameter requires a gradient, so there is nothing to train"
            )
        used = _on_the_cpu([False] * len(self._trained))
        ranks = _core.world() if group is None else group
        self._reducer = GradientReducer(
            {USED: used, **self._trained},
            op="avg",
            group=ranks,
            bucket_nbytes=bucket_nbytes,
            first_bucket_nbytes=first_bucket_nbytes,
            compression=compression,
            timeout=timeout,
        )
        ranks.broadcast([*layers.parameters(), *layers.buffers()], timeout=timeout)
        self._library = by_name("paddle")
        self._enabled = True  # false inside no_sync()
        self._backward: object | None = None  # identifies the running backward; None if none runs
        self._reduces = False  # whether the running backward reduces gradients
        self._closed = False
        me = weakref.ref(self)
        for name, each in self._trained.items():
            each._register_backward_hook(partial(_arrived, me, name))

    def forward(self, *inputs: Any, **named: Any) -> Any:  # noqa: ANN401  whatever the layer takes
        """Runs the layers."""
        if self.training and paddle.is_grad_enabled():
            self._check()
        return self._layers(*inputs, **named)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside this block, backward only accumulates gradients.

        The first backward after the block reduces all of them. All ranks must use no_sync() for the
        same backwards.
        """
        before, self._enabled = self._enabled, False
        try:
            yield
        finally:
            self._enabled = before

    def synchronize(self) -> None:
        """Averages the current gradients as backward does, for a step without a backward."""
        self._check()
        self._reduce()

    def reset(self) -> None:
        """Abandons a step after an exception that this rank survives.

        See GradientReducer.reset().
        """
        self._backward = None
        self._reducer.reset()

    def close(self) -> None:
        """Ends the averaging: a later backward reduces nothing."""
        self._closed = True
        self._reducer.close()

    def state_dict(self, *args: Any, **named: Any) -> Any:  # noqa: ANN401  as Paddle has it
        """Returns the state of the layers. The keys have no prefix."""
        return self._layers.state_dict(*args, **named)

    def set_state_dict(self, state_dict: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401
        """Loads the state of the layers. All ranks must load the same state."""
        return self._layers.set_state_dict(state_dict, *args, **named)

    set_dict = load_dict = set_state_dict

    def _check(self) -> None:
        if self._closed:
            raise InvalidArgument("this DataParallel was ended by its close()")
        if self._backward is not None:  # the last backward has raised
            self.reset()
        refuse_gpus("DataParallel", self._trained)
        self._check_frozen()

    def _check_frozen(self) -> None:
        for name, parameter in self._frozen.items():
            if not parameter.stop_gradient:
                raise InvalidArgument(
                    f'"{name}" requires a gradient since the DataParallel was made (its stop_gradient was set to '
                    "False), and its gradients would not be reduced: freeze and thaw parameters first, or call "
                    "close(), and make the DataParallel anew"
                )

    def _arrived(self, name: str) -> None:
        """Passes the accumulated gradient of a parameter to the reducer."""
        if self._closed:
            return
        if self._backward is None:
            self._begin()
        if not self._reduces:
            return
        if self._reducer.has(name):
            raise InvalidArgument(f'"{name}" got two gradients in one backward')
        self._reducer.ready(name, self._trained[name].grad)

    def _begin(self) -> None:
        self._check_frozen()
        self._backward = backward = object()
        self._reduces = self._enabled
        me = weakref.ref(self)
        paddle.base.core.eager._add_backward_final_hook(lambda: _ended(me, backward))

    def _ended(self, backward: object) -> None:
        if backward is not self._backward:  # the hook of an earlier backward, which has raised
            return
        self._backward = None
        if self._reduces:
            self._reduce()

    @paddle.no_grad()  # type: ignore[untyped-decorator]
    def _reduce(self) -> None:
        for name in self._reducer.missing():
            if name != USED and self._trained[name].grad is not None:
                self._reducer.ready(name, self._trained[name].grad)
        if not self._reducer.has(USED):
            self._reducer.ready(USED, _on_the_cpu([each.grad is not None for each in self._trained.values()]))
        reduced = self._reducer.finish()
        for (name, parameter), used_somewhere in zip(
            self._trained.items(), reduced[USED].tolist(), strict=True
        ):
            if used_somewhere == 0:
                continue
            if parameter.grad is None:
                parameter.grad = reduced[name].clone()
            else:
                self._library.assign(parameter.grad, reduced[name])


def _on_the_cpu(flags: list[bool]) -> Any:  # noqa: ANN401
    """Returns the flags as a tensor on the CPU, where the gradients are.

    Without a place, a build of Paddle for GPUs would create the tensor on a GPU.
    """
    return paddle.to_tensor(flags, dtype="float32", place=paddle.CPUPlace())


def _arrived(me: weakref.ref[DataParallel], name: str, *_: object) -> None:
    """The hook of a parameter. `me` is weak, so the hook does not keep the DataParallel alive."""
    model = me()
    if model is not None:
        model._arrived(name)


def _ended(me: weakref.ref[DataParallel], backward: object) -> None:
    model = me()
    if model is not None:
        model._ended(backward)
