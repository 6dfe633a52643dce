"""The calls of pycollective.jax. The package's docstring describes their common properties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from pycollective import _core
from pycollective.base.advice import advised
from pycollective.errors import InvalidArgument
from pycollective.jax import calls
from pycollective.jax.calls import GRADIENT_TAG, made

if TYPE_CHECKING:
    from jax.typing import ArrayLike

    from pycollective._core import Group, OpName

__all__ = ["allgather", "allreduce", "alltoall", "broadcast", "recv", "reduce", "reduce_scatter", "send"]

_ALIASES: dict[OpName, OpName] = {"add": "sum", "mean": "avg"}


def _group(group: Group | None) -> Group:
    return _core.world() if group is None else group


@advised
def allreduce(
    x: ArrayLike, op: OpName = "sum", *, group: Group | None = None, timeout: float | None = None
) -> jax.Array:
    """Combines the arrays of all ranks; every rank gets the result.

    Args:
        x: the same shape and dtype on every rank.
        op: as for pycollective.allreduce(); "sum" and "avg" have a gradient.
        group: the ranks that take part; default the world. Ranks outside a subgroup hold None for
            it, and None means the world, so they must not call this.
        timeout: seconds, separately for the call and for its adjoint; default that of init().

    Returns:
        An array of the shape and dtype of `x`. Its adjoint is the same allreduce.

    Raises:
        Unsupported: when a gradient is traced: `op` has none.
        jax.errors.JaxRuntimeError: with the text of the error of pycollective.allreduce().

    Example:
        >>> import jax, jax.numpy as jnp, pycollective as pc, pycollective.jax as pcj
        >>> _ = pc.init()
        >>> gradient = jax.jit(jax.grad(lambda x: (pcj.allreduce(x) ** 2).sum()))
        >>> gradient(jnp.array([1.0, 2.0])).tolist()
        [2.0, 4.0]
        >>> pc.shutdown()
    """
    return made(calls.Allreduce(_group(group), timeout, _ALIASES.get(op, op)), jnp.asarray(x))


@advised
def reduce(
    x: ArrayLike,
    op: OpName = "sum",
    *,
    root: int = 0,
    group: Group | None = None,
    timeout: float | None = None,
) -> jax.Array:
    """Combines the arrays of all ranks; the root gets the result, the other ranks zeros.

    Otherwise it is like allreduce(). Its adjoint gives the root's gradient to every rank; gradients
    of the zeros are ignored.

    Example:
        >>> import jax.numpy as jnp, pycollective as pc, pycollective.jax as pcj
        >>> _ = pc.init()
        >>> pcj.reduce(jnp.ones(2), root=0).tolist()
        [1.0, 1.0]
        >>> pc.shutdown()
    """
    return made(calls.Reduce(_group(group), timeout, _ALIASES.get(op, op), root), jnp.asarray(x))


@advised
def broadcast(
    x: ArrayLike, root: int = 0, *, group: Group | None = None, timeout: float | None = None
) -> jax.Array:
    """Gives every rank the root's array; the values of `x` are used only on the root.

    Otherwise it is like allreduce(). Its adjoint gives the root the sum of all gradients, and zeros
    to the other ranks, which must differentiate as well.

    Example:
        >>> import jax.numpy as jnp, pycollective as pc, pycollective.jax as pcj
        >>> _ = pc.init()
        >>> pcj.broadcast(jnp.ones(2)).tolist()
        [1.0, 1.0]
        >>> pc.shutdown()
    """
    return made(calls.Broadcast(_group(group), timeout, root), jnp.asarray(x))


@advised
def allgather(
    x: ArrayLike, *, axis: int = 0, group: Group | None = None, timeout: float | None = None
) -> jax.Array:
    """Joins the arrays of all ranks along an axis, in rank order; every rank gets the result.

    Args:
        x: the same shape and dtype on every rank.
        axis: the axis along which they are joined.
        group: the ranks that take part; default the world. Ranks outside a subgroup hold None for
            it, and None means the world, so they must not call this.
        timeout: seconds, separately for the call and for its adjoint; default that of init().

    Returns:
        An array `size` times as long in `axis`. Its adjoint is reduce_scatter() with "sum".

    Raises:
        InvalidArgument: `x` has no such axis.
        jax.errors.JaxRuntimeError: with the text of the error of pycollective.allgather().

    Example:
        >>> import jax.numpy as jnp, pycollective as pc, pycollective.jax as pcj
        >>> _ = pc.init()
        >>> pcj.allgather(jnp.ones((2, 3)), axis=1).shape
        (2, 3)
        >>> pc.shutdown()
    """
    return made(calls.Allgather(_group(group), timeout, _axis("allgather", x, axis)), jnp.asarray(x))


@advised
def reduce_scatter(
    x: ArrayLike,
    op: OpName = "sum",
    *,
    axis: int = 0,
    group: Group | None = None,
    timeout: float | None = None,
) -> jax.Array:
    """Combines the arrays of all ranks; each rank gets an equal part of the result.

    Args:
        x: the same shape and dtype on every rank; its length in `axis` is a multiple of `size`.
        op: as for pycollective.reduce_scatter(); "sum" and "avg" have a gradient.
        axis: the axis along which the result is cut, in the order of the ranks.
        group: the ranks that take part; default the world. Ranks outside a subgroup hold None for
            it, and None means the world, so they must not call this.
        timeout: seconds, separately for the call and for its adjoint; default that of init().

    Returns:
        An array `1 / size` as long in `axis`. Its adjoint is allgather(), divided by `size` for
        "avg".

    Raises:
        InvalidArgument: `x` has no such axis.
        Unsupported: when a gradient is traced: `op` has none.
        jax.errors.JaxRuntimeError: with the text of the error of pycollective.reduce_scatter().

    Example:
        >>> import jax.numpy as jnp, pycollective as pc, pycollective.jax as pcj
        >>> _ = pc.init()
        >>> pcj.reduce_scatter(jnp.ones((2, 3))).shape
        (2, 3)
        >>> pc.shutdown()
    """
    axis = _axis("reduce_scatter", x, axis)
    return made(calls.ReduceScatter(_group(group), timeout, _ALIASES.get(op, op), axis), jnp.asarray(x))


@advised
def alltoall(
    x: ArrayLike,
    *,
    counts: Sequence[int] | None = None,
    recv_counts: Sequence[int] | None = None,
    axis: int = 0,
    group: Group | None = None,
    timeout: float | None = None,
) -> jax.Array:
    """Sends each rank its part of `x`, and joins the parts from all ranks, in rank order.

    Args:
        x: cut along `axis`, into equal parts or into those of `counts`.
        counts: the length of the part for each rank; it requires `recv_counts`.
        recv_counts: the length of the part from each rank; given together with `counts`, or not at
            all.
        axis: the axis along which `x` is cut and the result joined.
        group: the ranks that take part; default the world. Ranks outside a subgroup hold None for
            it, and None means the world, so they must not call this.
        timeout: seconds, separately for the call and for its adjoint; default that of init().

    Returns:
        An array as long in `axis` as `x`, or as the sum of `recv_counts`. Its adjoint is alltoall()
        with the counts exchanged.

    Raises:
        InvalidArgument: `x` has no such axis, or one of the counts is missing.
        jax.errors.JaxRuntimeError: with the text of the error of pycollective.alltoall().

    Example:
        >>> import jax.numpy as jnp, pycollective as pc, pycollective.jax as pcj
        >>> _ = pc.init()
        >>> pcj.alltoall(jnp.arange(3), counts=[3], recv_counts=[3]).tolist()
        [0, 1, 2]
        >>> pc.shutdown()
    """
    if (counts is None) != (recv_counts is None):
        raise InvalidArgument(
            "alltoall: counts and recv_counts go together: JAX knows every shape beforehand"
        )
    sent = None if counts is None else tuple(counts)
    received = None if recv_counts is None else tuple(recv_counts)
    axis = _axis("alltoall", x, axis)
    return made(calls.Alltoall(_group(group), timeout, axis, sent, received), jnp.asarray(x))


@advised
def send(
    x: ArrayLike, peer: int, *, tag: int = 0, group: Group | None = None, timeout: float | None = None
) -> jax.Array:
    """Sends `x` to another rank; in backward its gradient is received from that rank.

    Args:
        x: the array to send.
        peer: the rank that calls recv().
        tag: from 0 to 2**30 - 1. Messages of one tag arrive in the order in which they were sent,
            and so do gradients.
        group: the ranks that take part; default the world. Ranks outside a subgroup hold None for
            it, and None means the world, so they must not call this.
        timeout: seconds, separately for the message and its gradient; default that of init().

    Returns:
        A token: zero, 0-d, of the dtype of `x`. Use it as the loss, or add it to a loss: the
        gradient of the token with respect to the inputs of `x` is that of the loss on the other
        rank.

    Raises:
        InvalidArgument: the tag is too large.
        Unsupported: when a second derivative is traced.
        jax.errors.JaxRuntimeError: with the text of the error of pycollective.send() or recv().

    Example:
        Two stages of a model on two ranks; a world of one has both on its only rank:

        >>> import jax, jax.numpy as jnp, pycollective as pc, pycollective.jax as pcj
        >>> _ = pc.init()
        >>> w, x = jnp.ones(3), jnp.array([1.0, 2.0, 3.0])
        >>> if pc.size() == 1:
        ...     gradient = jax.grad(lambda w: (w * x).sum() ** 2)(w)
        ... elif pc.rank() == 0:
        ...     gradient = jax.grad(lambda w: pcj.send((w * x).sum(), 1))(w)
        ... else:
        ...     loss = lambda like: pcj.recv(like, 0) ** 2
        ...     jax.block_until_ready(jax.grad(loss)(jnp.zeros(())))
        >>> gradient.tolist()
        [12.0, 24.0, 36.0]
        >>> pc.shutdown()
    """
    x = jnp.asarray(x)
    return made(calls.Send(_group(group), timeout, peer, _tag("send", tag), x.shape, np.dtype(x.dtype)), x)


@advised
def recv(
    like: ArrayLike, peer: int, *, tag: int = 0, group: Group | None = None, timeout: float | None = None
) -> jax.Array:
    """Receives an array from another rank; in backward its gradient is sent to that rank.

    Args:
        like: an array of the expected shape and dtype; its values are not used. JAX runs backward
            only for arguments that it differentiates. So that the gradient is sent, `like` must be
            (part of) such an argument: `jax.grad(loss, argnums=(0, 1))(weights, like)`. The
            gradient of `like` is zeros.
        peer: the rank that calls send().
        tag: as for send().
        group: the ranks that take part; default the world. Ranks outside a subgroup hold None for
            it, and None means the world, so they must not call this.
        timeout: seconds, separately for the message and its gradient; default that of init().

    Returns:
        The received array.

    Raises:
        As send().

    Example:
        See send().

        >>> import jax.numpy as jnp, pycollective as pc, pycollective.jax as pcj
        >>> _ = pc.init()
        >>> if pc.size() > 1 and pc.rank() == 1:
        ...     x = pcj.recv(jnp.zeros(3), 0)
        >>> pc.shutdown()
    """
    if like is None:
        raise InvalidArgument(
            "recv: like must be an array of the shape and dtype that come: what is traced by JAX must know them. "
            "Outside of jit and grad pycollective.recv(None, peer) needs neither"
        )
    x = jnp.asarray(like)
    return made(calls.Recv(_group(group), timeout, peer, _tag("recv", tag), x.shape, np.dtype(x.dtype)), x)


def _axis(call: str, x: ArrayLike, axis: int) -> int:
    axes: int = jnp.ndim(x)
    if not -axes <= axis < axes:
        raise InvalidArgument(f"{call}: x has {axes} axes, and no axis {axis}")
    return axis % axes


def _tag(call: str, tag: int) -> int:
    if not 0 <= tag < GRADIENT_TAG:
        raise InvalidArgument(
            f"{call}: tag must be between 0 and {GRADIENT_TAG - 1}, not {tag}: others are for gradients"
        )
    return tag
