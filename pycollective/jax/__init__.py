"""Collectives and messages under jax.jit and jax.grad, on the CPU.

This module imports jax; pycollective itself never does.

    import pycollective as pc
    import pycollective.jax as pcj

    pc.init()
    step = jax.jit(jax.grad(lambda w, x: pcj.allreduce(loss(w, x))))

Every call is an *ordered* callback (`jax.experimental.io_callback`). Calls run in the order of the
program, forward and backward, within one jitted function and from one function to the next. A call
with an unused result is not omitted. Calls are made on a thread of JAX. The adjoints are those of
pycollective.torch.functional; those of collectives can be differentiated again.

JAX refuses ordered callbacks under vmap (ValueError), jax.checkpoint (NotImplementedError), jvp and
jacfwd (TypeError, as for every custom_vjp), and on more than one device of this process. JAX 0.5
also refuses gradients of calls in scan, while_loop and cond (NotImplementedError); newer versions
accept them.

JAX does not wait for the computations that it starts: call `jax.effects_barrier()` before a call of
pycollective itself and before shutdown(). If a call fails, the next operation of JAX that waits
raises jax.errors.JaxRuntimeError with the text of pycollective's error. A jitted function is bound
to the groups with which it was traced, including the world: after the world has ended, call
`jax.clear_caches()`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pycollective.base.foreign_words import missing
from pycollective.jax.functional import (
    allgather,
    allreduce,
    alltoall,
    broadcast,
    recv,
    reduce,
    reduce_scatter,
    send,
)

__all__ = ["allgather", "allreduce", "alltoall", "broadcast", "recv", "reduce", "reduce_scatter", "send"]

if not TYPE_CHECKING:  # with a __getattr__, type checkers would accept every name

    def __getattr__(name: str) -> object:
        raise missing(__name__, name, __all__)
