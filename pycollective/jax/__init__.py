"""Collectives and messages under jax.jit and jax.grad, on the CPU. Imports jax; pycollective itself never does.

    import pycollective as pc
    import pycollective.jax as pcj

    pc.init()
    step = jax.jit(jax.grad(lambda w, x: pcj.allreduce(loss(w, x))))

Every call is an *ordered* callback (`jax.experimental.io_callback`): inside one jitted function, and from one to the
next, calls run in the order of the program, in forward and in backward, and none is left out because nobody uses its
result. The call itself runs on a thread of JAX. The adjoints are those of pycollective.torch.functional; those of
collectives can be differentiated again.

JAX refuses ordered callbacks under vmap (ValueError), jax.checkpoint (NotImplementedError), jvp and jacfwd (TypeError,
as for every custom_vjp), and on more than one device of this process. JAX 0.5 refuses gradients of calls in scan,
while_loop and cond as well (NotImplementedError); newer ones take them.

JAX does not wait for what it runs: before a call of pycollective itself and before shutdown() say
`jax.effects_barrier()`. An error comes out of whatever waits, as jax.errors.JaxRuntimeError with ours in its text.
What was jitted is for the groups it was traced with, the world included: when that has ended, `jax.clear_caches()`.
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

if not TYPE_CHECKING:  # to which every name would seem to be there

    def __getattr__(name: str) -> object:
        raise missing(__name__, name, __all__)
