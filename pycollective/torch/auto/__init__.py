"""Runs an unmodified single-process script data parallel.

The command is `python -m pycollective.torch.auto train.py`, see docs/auto.md. While applied() is
active, torch in this process behaves as if the script had been written for several ranks. The
modules are independent of each other, except that all use `batches`, which follows the loaders:

    batches       which batch the script uses, whether it trains with it, and this rank's part
    loader        DataLoader draws the same batches on all ranks and loads this rank's part
    gradients     backward averages gradients, weighted by samples; losses are of the whole batch
    lockstep      detects ranks that no longer do the same
    batch_norm    statistics of the whole batch
    files         torch.save() writes on rank 0
    randomness    random numbers are the same on all ranks
    losses        the losses and gradients with which backward begins
    sizes         whether the script weighs by the size of a batch
    script        the command line
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from pycollective import _core
from pycollective.errors import InvalidArgument

if TYPE_CHECKING:
    from pycollective.torch.auto.batches import Batches

__all__ = ["applied"]

REDUCTIONS = ("mean", "sum")


@contextlib.contextmanager
def applied(*, reduction: Literal["mean", "sum"] = "mean") -> Iterator[None]:
    """Makes training inside the block data parallel, as `python -m pycollective.torch.auto` does.

    Loaders, models and optimizers are made inside the block, on all ranks alike. In a world of one
    rank nothing changes. docs/auto.md lists what is made parallel and what is refused.

    Parameters:
        reduction: the kind of the losses: "mean" over the samples of a batch, or "sum".

    Raises:
        InvalidArgument: `reduction` is neither of them.
        NotInitialized: there is no world.
        Unsupported: this version of torch lacks a function that would be replaced.

    Example:
        >>> import pycollective as pc, torch
        >>> from pycollective.torch.auto import applied
        >>> _ = pc.init()
        >>> with applied():
        ...     model = torch.nn.Linear(2, 1)
        ...     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ...     for inputs in torch.utils.data.DataLoader(torch.ones(8, 2), batch_size=4):
        ...         optimizer.zero_grad()
        ...         model(inputs).mean().backward()
        ...         optimizer.step()
        >>> pc.shutdown()
    """
    if reduction not in REDUCTIONS:
        raise InvalidArgument(f"reduction={reduction!r}: losses are means or sums: {', '.join(REDUCTIONS)}")
    world = _core.world()
    if world.size == 1:
        yield
        return
    with contextlib.ExitStack() as undone:
        batches, ours = _replace(undone, world, reduction)
        yield
        batches.report()
        # other ranks may still wait in a call of the block; this informs them that this rank has
        # left it
        ours.barrier()


def _replace(
    undone: contextlib.ExitStack, world: _core.Group, reduction: Literal["mean", "sum"]
) -> tuple[Batches, _core.Group]:
    import torch.distributed

    from pycollective.torch.auto import batch_norm, files, gradients, loader, randomness
    from pycollective.torch.auto.batches import Batches
    from pycollective.torch.auto.replaced import replace

    # a separate group, because the order of these calls relative to the script's own is undefined
    ours = world.split(0)
    assert ours is not None
    batches = Batches(ours.rank, ours.size)
    randomness.synchronize(ours)
    loader.install(undone, batches, ours)
    gradients.install(undone, batches, ours, reduction)
    batch_norm.install(undone, batches, ours)
    files.install(undone, ours)
    replace(undone, torch.distributed, "init_process_group", _refused)
    return batches, ours


def _refused(*_: Any, **__: Any) -> NoReturn:  # noqa: ANN401  whatever the script says
    raise InvalidArgument(
        "pycollective.torch.auto: the script calls torch.distributed.init_process_group(), so it is distributed "
        "already: start it without pycollective.torch.auto"
    )
