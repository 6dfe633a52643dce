"""The callbacks for JAX, and their adjoints.

Calls are compared by value, so that JAX compiles equal calls only once.
"""
# ruff: noqa: D101, D102  nothing in here is public

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.experimental import io_callback

from pycollective.errors import Unsupported

if TYPE_CHECKING:
    from pycollective._core import Group, OpName

__all__ = [
    "Allgather",
    "Allreduce",
    "Alltoall",
    "Broadcast",
    "Call",
    "Recv",
    "Reduce",
    "ReduceScatter",
    "Send",
    "made",
]

# tag bit of gradients, which distinguishes them from forward messages between the same ranks
GRADIENT_TAG = 1 << 30

Host = npt.NDArray[Any]


@dataclass(frozen=True)
class Call(ABC):
    """One call. It takes one array and returns a new one."""

    group: Group
    timeout: float | None

    def __call__(self, x: jax.Array) -> Host:
        """Makes the call. JAX calls it on its own thread."""
        return self.run(np.asarray(x))

    @abstractmethod
    def run(self, x: Host) -> Host:
        """Makes the call; `x` is read-only."""

    def shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of the result from that of the operand."""
        return x

    def dtype(self, x: np.dtype[Any]) -> np.dtype[Any]:
        """Returns the dtype of the result from that of the operand."""
        return x

    @abstractmethod
    def adjoint(self, g: jax.Array) -> jax.Array:
        """Returns the gradient of the operand from that of the result."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def made(call: Call, x: jax.Array) -> jax.Array:
    """Returns the result of a call."""
    what = jax.ShapeDtypeStruct(call.shape(x.shape), call.dtype(x.dtype))
    result: jax.Array = io_callback(call, what, x, ordered=True)
    return result


def _forward(call: Call, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    if isinstance(call, (Allreduce, Reduce, ReduceScatter)) and call.op not in ("sum", "avg"):
        raise Unsupported(
            f"a gradient is wanted, and {call.op!r} has none here: call with jax.lax.stop_gradient(x), or with 'sum' "
            "or 'avg'"
        )
    zero = x.ravel()[:0].sum()
    return made(call, x), zero


def _backward(call: Call, zero: jax.Array, g: jax.Array) -> tuple[jax.Array]:
    # g is a constant for JAX, but the gradient that Send receives depends on x through the peer.
    # Adding a zero that depends on x prevents JAX from treating the gradient as a constant.
    return (call.adjoint(g + zero if isinstance(call, Send) else g),)


made.defvjp(_forward, _backward)


@dataclass(frozen=True)
class Allreduce(Call):
    op: OpName

    def run(self, x: Host) -> Host:
        return self.group.allreduce(x, self.op, out=np.empty_like(x), timeout=self.timeout)

    def adjoint(self, g: jax.Array) -> jax.Array:
        return made(self, g)


@dataclass(frozen=True)
class Reduce(Call):
    op: OpName
    root: int

    def run(self, x: Host) -> Host:
        result = x.copy()
        self.group.reduce(result, self.op, root=self.root, timeout=self.timeout)
        return result if self.group.rank == self.root else np.zeros_like(x)

    def adjoint(self, g: jax.Array) -> jax.Array:
        everywhere = made(Broadcast(self.group, self.timeout, self.root), g)
        return everywhere / self.group.size if self.op == "avg" else everywhere


@dataclass(frozen=True)
class Broadcast(Call):
    root: int

    def run(self, x: Host) -> Host:
        return self.group.broadcast(x.copy(), self.root, timeout=self.timeout)

    def adjoint(self, g: jax.Array) -> jax.Array:
        return made(Reduce(self.group, self.timeout, "sum", self.root), g)


def _with_length(shape: tuple[int, ...], axis: int, length: int) -> tuple[int, ...]:
    return (*shape[:axis], length, *shape[axis + 1 :])


@dataclass(frozen=True)
class Allgather(Call):
    axis: int

    def run(self, x: Host) -> Host:
        return self.group.allgather(x, axis=self.axis, timeout=self.timeout)

    def shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        return _with_length(x, self.axis, x[self.axis] * self.group.size)

    def adjoint(self, g: jax.Array) -> jax.Array:
        return made(ReduceScatter(self.group, self.timeout, "sum", self.axis), g)


@dataclass(frozen=True)
class ReduceScatter(Call):
    op: OpName
    axis: int

    def run(self, x: Host) -> Host:
        return self.group.reduce_scatter(x, self.op, axis=self.axis, timeout=self.timeout)

    def shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        return _with_length(x, self.axis, x[self.axis] // self.group.size)

    def adjoint(self, g: jax.Array) -> jax.Array:
        joined = made(Allgather(self.group, self.timeout, self.axis), g)
        return joined / self.group.size if self.op == "avg" else joined


@dataclass(frozen=True)
class Alltoall(Call):
    axis: int
    counts: tuple[int, ...] | None
    recv_counts: tuple[int, ...] | None

    def run(self, x: Host) -> Host:
        return self.group.alltoall(
            x, counts=self.counts, recv_counts=self.recv_counts, axis=self.axis, timeout=self.timeout
        )

    def shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        return x if self.recv_counts is None else _with_length(x, self.axis, sum(self.recv_counts))

    def adjoint(self, g: jax.Array) -> jax.Array:
        return made(Alltoall(self.group, self.timeout, self.axis, self.recv_counts, self.counts), g)


@dataclass(frozen=True)
class Message(Call):
    """A message and its peer.

    send() on one rank and recv() on the other have the same fields, so each is the adjoint of the
    other.
    """

    peer: int
    tag: int
    sent_shape: tuple[int, ...]
    sent_dtype: np.dtype[Any]

    def back(self, kind: type[Message]) -> Message:
        """Returns the message for the gradient. Raises Unsupported if this is a gradient itself."""
        if self.tag & GRADIENT_TAG:
            raise Unsupported(
                "send, recv: there are no second derivatives through messages, only through collectives"
            )
        tag = self.tag | GRADIENT_TAG
        return kind(self.group, self.timeout, self.peer, tag, self.sent_shape, self.sent_dtype)


@dataclass(frozen=True)
class Send(Message):
    def run(self, x: Host) -> Host:
        self.group.send(x, self.peer, tag=self.tag, timeout=self.timeout)
        return np.zeros((), x.dtype)

    def shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        return ()

    def adjoint(self, g: jax.Array) -> jax.Array:
        return made(self.back(Recv), g)


@dataclass(frozen=True)
class Recv(Message):
    def run(self, x: Host) -> Host:
        result = np.empty(self.sent_shape, self.sent_dtype)
        return self.group.recv(result, self.peer, tag=self.tag, timeout=self.timeout)

    def shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        return self.sent_shape

    def dtype(self, x: np.dtype[Any]) -> np.dtype[Any]:
        return self.sent_dtype

    def adjoint(self, g: jax.Array) -> jax.Array:
        return jnp.broadcast_to(made(self.back(Send), g), g.shape)  # the operand's gradient is zeros
