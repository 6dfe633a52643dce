"""Collectives and messages that autograd differentiates and torch.compile keeps in its graph.

    from pycollective.torch import functional as F

    total = F.allreduce(x)               # a new tensor; x is unchanged
    total.square().sum().backward()      # x.grad comes from the adjoint, which is a collective too

| Call | Its adjoint |
|---|---|
| allreduce sum, avg | itself |
| allreduce min, max | the summed gradient, on the rank that has the element |
| reduce sum, avg | broadcast, divided by the size for avg |
| broadcast | reduce sum, zeros on the other ranks |
| allgather | reduce_scatter sum |
| reduce_scatter sum, avg | allgather, divided by the size for avg |
| gather | scatter |
| scatter | gather, zeros on the other ranks |
| alltoall | alltoall, with the counts exchanged |
| send | recv of the gradient |
| recv | send of the gradient |

So a gradient is that of the sum of all ranks' losses. Other ops (prod, ..., and min and max outside
allreduce) have no gradient here. They are refused where a gradient would be needed, as is forward
mode (jvp). Adjoints can be differentiated again, except those of send and recv.

**Order.** As always, all ranks must make the same calls in the same order. Their adjoints in
backward() are then in the same order too, if a tensor requires grad on all ranks or on none, and
results are used on all ranks or on none: a call that does not contribute to the loss has no
adjoint. In a compiled graph the calls keep the order of the program, and stay even if their results
are unused: they have an ordered effect. A torch without CustomOpDef.register_effect guarantees
neither.

**Groups.** A compiled graph is bound to the groups with which it was traced, including the world.
After the world of these groups has ended, calls of the graph raise NotInitialized until
torch.compiler.reset().
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pycollective.base.foreign_words import missing
from pycollective.torch.functional.messages import recv, send
from pycollective.torch.functional.parts import allgather, alltoall, gather, reduce_scatter, scatter
from pycollective.torch.functional.reductions import allreduce, broadcast, reduce

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "broadcast",
    "gather",
    "recv",
    "reduce",
    "reduce_scatter",
    "scatter",
    "send",
]

if not TYPE_CHECKING:  # with a __getattr__, type checkers would accept every name

    def __getattr__(name: str) -> object:
        raise missing(__name__, name, __all__)
