"""send and recv, each the adjoint of the other: for a model with stages on different ranks."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pycollective._core import ANY_SOURCE
from pycollective.base.advice import advised
from pycollective.base.clock import Clock
from pycollective.errors import InvalidArgument, Unsupported
from pycollective.torch.functional.live_groups import group_at, number_of
from pycollective.torch.functional.operation import Operation

if TYPE_CHECKING:
    from types import FrameType

    from torch.distributed import ProcessGroup

    from pycollective._core import Group

__all__ = ["recv", "send"]

# The tag bit of gradients, which distinguishes them from forward messages between the same ranks.
_GRADIENT = 1 << 30

# Autograd runs the backward of an operation only if an operand requires grad. recv() has no operand
# of its own, so this is its operand.
_ANCHOR = torch.zeros((), device="cpu", requires_grad=True)


@advised
def send(
    x: Tensor,
    peer: int,
    *,
    tag: int = 0,
    group: Group | ProcessGroup | None = None,
    timeout: float | None = None,
) -> Tensor:
    """Sends `x` to another rank; in backward its gradient is received from that rank.

    Args:
        x: the tensor to send. It is only read.
        peer: the rank that calls recv().
        tag: from 0 to 2**30 - 1. Messages of one tag arrive in the order in which they were sent,
            and so do gradients: in backward both ranks process the messages of one tag in the same
            order.
        group: the ranks that take part; default the world. Ranks outside a subgroup hold None for
            it, and None means the world, so they must not call this.
        timeout: seconds, separately for the message and its gradient; default that of init().

    Returns:
        A token: zero, 0-d, of the dtype of `x`. If `x` requires grad, backward from the token is
        backward through `x`: call `token.backward()` or add it to a loss. The gradient of the token
        itself is ignored. A token that is dropped without backward causes a RuntimeWarning with the
        line of send(), even if an error has ended the step.

    Raises:
        InvalidArgument: the tag is too large; and as pycollective.send().
        Unsupported: in backward: with create_graph=True.
        CollectiveError: as pycollective.send(), and in backward as pycollective.recv().

    Example:
        Two stages of a model on two ranks; a world of one has both on its only rank:

        >>> import torch, pycollective as pc
        >>> from pycollective.torch import functional as F
        >>> _ = pc.init()
        >>> first, last = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)
        >>> x = torch.ones(2, 3)
        >>> if pc.size() == 1:
        ...     last(first(x)).sum().backward()
        ... elif pc.rank() == 0:
        ...     F.send(first(x), 1).backward()  # waits for the gradient
        ... else:
        ...     last(F.recv(torch.empty(2, 4), 0)).sum().backward()
        >>> pc.shutdown()
    """
    _check_tag("send", tag)
    token = _send(x, list(x.shape), x.dtype, peer, tag, number_of(group), timeout, timeout)
    if token.requires_grad and not torch.compiler.is_compiling():
        # the frame above the wrapper made by @advised is the program's
        token.register_hook(_Awaited(peer, sys._getframe(2)))
    return token


@advised
def recv(
    like: Tensor | None,
    peer: int,
    *,
    tag: int = 0,
    requires_grad: bool = True,
    group: Group | ProcessGroup | None = None,
    timeout: float | None = None,
) -> Tensor:
    """Receives a tensor from another rank; in backward its gradient is sent to that rank.

    Args:
        like: a tensor of the expected shape and dtype, `torch.empty(shape)` for example. Its values
            are not read. With None, shape and dtype are taken from the message. Under torch.compile
            None breaks the graph.
        peer: the rank that calls send(), or pycollective.ANY_SOURCE, which breaks the graph too:
            the gradient is sent to the sender of the received message.
        tag: as for send().
        requires_grad: whether the sender waits for a gradient; False if the tensor it sends does
            not require grad. It has no effect for dtypes without gradients and under
            torch.no_grad().
        group: the ranks that take part; default the world. Ranks outside a subgroup hold None for
            it, and None means the world, so they must not call this.
        timeout: seconds, separately for the message and its gradient; default that of init().

    Returns:
        A new contiguous tensor on the CPU. backward() sends its gradient; torch.autograd.grad() and
        backward(inputs=) do not, as they skip nodes that lead to none of their inputs.

    Raises:
        InvalidArgument: the tag is too large, or `like` is not a tensor; and as
            pycollective.recv().
        Unsupported: in backward: with create_graph=True. Without `like`: the message has a dtype
            that torch lacks.
        CollectiveError: as pycollective.recv(), and in backward as pycollective.send().

    Example:
        See send().

        >>> import torch, pycollective as pc
        >>> from pycollective.torch import functional as F
        >>> _ = pc.init()
        >>> if pc.size() > 1 and pc.rank() == 1:
        ...     activation = F.recv(torch.empty(2, 4), 0)
        >>> pc.shutdown()
    """
    _check_tag("recv", tag)
    if not (like is None or isinstance(like, Tensor)):
        raise InvalidArgument(f"recv: like must be a tensor or None, not {type(like).__name__}")
    number, within = number_of(group), timeout
    if like is None:
        peer, shape, dtype, within = _announced(number, peer, tag, timeout)
    else:
        shape, dtype = list(like.shape), like.dtype
        if peer == ANY_SOURCE:
            peer, within = _first_to_send(number, tag, timeout)
    differentiable = requires_grad and (dtype.is_floating_point or dtype.is_complex)
    anchor = _ANCHOR if differentiable else _ANCHOR.detach()
    return _recv(anchor, shape, dtype, peer, tag, number, within, timeout)


_warned: dict[str | tuple[str, type[Warning], int], int] = {}  # one warning for each line of the program


class _Awaited:
    """The hook of a token. It warns if the graph is freed before backward has called this hook."""

    def __init__(self, peer: int, sender: FrameType) -> None:
        self._peer = peer
        self._place = sender.f_code.co_filename, sender.f_lineno
        self._came = False

    def __call__(self, gradient: Tensor) -> None:
        self._came = True

    def __del__(self) -> None:
        if self._came or sys.is_finalizing():
            return
        warnings.warn_explicit(
            f"pycollective.torch.functional.send: the token of a message to rank {self._peer} went without backward(), "
            "so what was sent got no gradient: unless an error has ended the step, call token.backward() or add the "
            "token to the loss. Where recv() there has requires_grad=False, send x.detach()",
            RuntimeWarning,
            *self._place,
            registry=_warned,
        )


@torch.compiler.disable
def _announced(
    number: int, peer: int, tag: int, timeout: float | None
) -> tuple[int, list[int], torch.dtype, float | None]:
    """Waits for a message without receiving it.

    Returns the message's sender, shape and dtype, and the remaining seconds.
    """
    clock = Clock(timeout)
    peer, name, shape, token = group_at(number)._find(peer, tag, clock.left_s())
    del token
    dtype = getattr(torch, name, None) if name else None
    if not isinstance(dtype, torch.dtype):
        what = f"sends {name!r}, which is no dtype of torch" if name else "does not say what it sends"
        raise Unsupported(f"recv: rank {peer} {what}: receive it by pycollective.recv()")
    return peer, list(shape), dtype, clock.left_s()


@torch.compiler.disable
def _first_to_send(number: int, tag: int, timeout: float | None) -> tuple[int, float | None]:
    """Waits for a message from any rank without receiving it.

    Returns the message's sender and the remaining seconds.
    """
    clock = Clock(timeout)
    peer, *_, token = group_at(number)._find(ANY_SOURCE, tag, clock.left_s())
    del token
    return peer, clock.left_s()


def _check_tag(call: str, tag: int) -> None:
    if not 0 <= tag < _GRADIENT:
        raise InvalidArgument(
            f"{call}: tag must be between 0 and {_GRADIENT - 1}, not {tag}: others are for gradients"
        )


def _refuse_second_derivatives() -> None:
    if torch.is_grad_enabled():
        raise Unsupported(
            "send, recv: backward(create_graph=True): there are no second derivatives through messages, only through "
            "collectives"
        )


# Both operations have the same parameters, so that each can be the adjoint of the other. `within`
# is the timeout of the operation's own message, `timeout` that of the message with the gradient.
_PARAMETERS = "SymInt[] shape, ScalarType dtype, int peer, int tag, int group, float? within, float? timeout"


def _run_send(
    x: Tensor,
    shape: list[int],
    dtype: torch.dtype,
    peer: int,
    tag: int,
    group: int,
    within: float | None,
    timeout: float | None,
) -> Tensor:
    group_at(group).send(x, peer, tag=tag, timeout=within)
    return x.new_zeros(())


def _gradient_from_peer(
    g: Tensor,
    shape: list[int],
    dtype: torch.dtype,
    peer: int,
    tag: int,
    group: int,
    within: float | None,
    timeout: float | None,
) -> Tensor:
    _refuse_second_derivatives()
    return _recv(g, shape, dtype, peer, tag | _GRADIENT, group, timeout, timeout)


def _run_recv(
    anchor: Tensor,
    shape: list[int],
    dtype: torch.dtype,
    peer: int,
    tag: int,
    group: int,
    within: float | None,
    timeout: float | None,
) -> Tensor:
    return group_at(group).recv(anchor.new_empty(shape, dtype=dtype), peer, tag=tag, timeout=within)


def _gradient_to_peer(
    g: Tensor,
    shape: list[int],
    dtype: torch.dtype,
    peer: int,
    tag: int,
    group: int,
    within: float | None,
    timeout: float | None,
) -> None:
    _refuse_second_derivatives()
    _send(g, shape, dtype, peer, tag | _GRADIENT, group, timeout, timeout)


_send: Operation = Operation(
    f"send(Tensor x, {_PARAMETERS}) -> Tensor",
    run=_run_send,
    fake=lambda x, *parameters: x.new_empty(()),
    adjoint=_gradient_from_peer,
)
_recv: Operation = Operation(
    f"recv(Tensor anchor, {_PARAMETERS}) -> Tensor",
    run=_run_recv,
    fake=lambda anchor, shape, dtype, *rest: anchor.new_empty(shape, dtype=dtype),
    adjoint=_gradient_to_peer,
)
