"""A torch optimizer that steps with the gradients of all ranks, in the shape that Horovod gave it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

import torch
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from pycollective._core import Group
from pycollective.base.advice import advised
from pycollective.errors import InvalidArgument, Unsupported
from pycollective.torch.foreign_models import check_of_torch
from pycollective.torch.gradient_hooks import GradientHooks
from pycollective.torch.groups import group_of
from pycollective.torch.uneven_inputs import Joined, join

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from pycollective._core import Op

__all__ = ["DistributedOptimizer"]

O = TypeVar("O", bound=Optimizer)  # noqa: E741
ANY_NBYTES = 1 << 62  # an optimizer's state is as large as it is


@dataclass
class _Arrangement:
    """How the gradients of an optimizer are reduced, whatever parameters it has."""

    group: Group
    names: WeakIdKeyDictionary  # of all parameters that were named, in the optimizer or not
    settings: dict[str, Any]  # of GradientHooks

    def hooks(self, optimizer: Optimizer) -> GradientHooks:
        return GradientHooks(self._named(optimizer), group=self.group, **self.settings)

    def again(self, optimizer: Optimizer, before: GradientHooks) -> GradientHooks:
        """For an optimizer that has got a group of parameters more; `before` ends if nothing goes wrong."""
        new = optimizer.param_groups[-1]
        options = {key: value for key, value in new.items() if key not in ("params", "param_names")}
        timeout_s = self.settings["timeout"]
        with before.replaced():
            hooks = self.hooks(optimizer)
            try:
                self.group.broadcast([each.detach() for each in new["params"]], timeout=timeout_s)
                new.update(self.group.broadcast_object(options, max_nbytes=ANY_NBYTES, timeout=timeout_s))
            except BaseException:
                hooks.close()
                raise
        return hooks

    def _named(self, optimizer: Optimizer) -> list[tuple[str, Parameter]]:
        all_of_them = [each for part in optimizer.param_groups for each in part["params"]]
        return [
            (self.names.get(each) or f"parameter {place}", each) for place, each in enumerate(all_of_them)
        ]


class _Distributed(Optimizer):
    """What the class of an optimizer gets in front of it."""

    _gradients: GradientHooks
    _arrangement: _Arrangement
    _skip = False  # whether step() takes gradients as they are

    if not TYPE_CHECKING:  # to which every attribute would seem to be there

        def __getattr__(self, name: str) -> object:
            if (of_its_own := getattr(super(), "__getattr__", None)) is not None:
                return of_its_own(name)
            if name == "backward":  # of Jittor's optimizers
                from pycollective.base.foreign_words import missing_in

                raise missing_in(type(self), "DistributedOptimizer", name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One step with the gradients of all ranks. A closure is run once, before it."""
        loss = None
        if closure is not None:
            if not callable(closure):
                raise InvalidArgument(
                    f"DistributedOptimizer: step() takes nothing, or a function that returns the loss, not a "
                    f"{type(closure).__name__}: write loss.backward() and then optimizer.step()"
                )
            with torch.enable_grad():
                loss = closure()
        if self._gradients.recover():
            raise InvalidArgument(
                "DistributedOptimizer: the last backward raised, so there are no gradients to step with: call "
                "zero_grad() and run it again"
            )
        if not self._skip:
            self.synchronize()
        self._gradients.restart()
        super().step()
        return loss

    def synchronize(self) -> None:
        """Reduces the gradients if that was not done since they changed; backward has done it as a rule."""
        self._gradients.check()
        if not self._gradients.reduced:
            self._gradients.step()

    def join(self) -> contextlib.AbstractContextManager[None]:
        """A block in which ranks may train on differently many batches: see pycollective.torch.join()."""
        return join(self)

    def _joined(self) -> Joined:
        parameters = [each for part in self.param_groups for each in part["params"]]
        return Joined(self._gradients, lambda _: None, lambda: parameters)

    def reset(self) -> None:
        """Gives a step up, after an exception in it that this rank survives: see DataParallel.reset()."""
        self._gradients.reset()

    def close(self) -> None:
        """Makes it the optimizer that it was: gradients are reduced no more."""
        self._gradients.close()
        del self._gradients, self._arrangement
        self.__class__ = type(self).__bases__[1]

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """step() in this block takes the gradients as they are."""
        self._skip = True
        try:
            yield
        finally:
            self._skip = False

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As of every optimizer; backward passes are counted anew."""
        self._gradients.check()
        self._gradients.restart()
        super().zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As of every optimizer; all ranks call it, between steps, with the same parameters.

        Rank 0's parameters and settings of the group are given to the other ranks. Parameters that were frozen and
        require grad now are reduced from here on, too.
        """
        self._gradients.check_between_steps()
        super().add_param_group(param_group)
        try:
            self._gradients = self._arrangement.again(self, self._gradients)
        except BaseException:
            self.param_groups.pop()
            raise

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise InvalidArgument(
            "DistributedOptimizer cannot be copied or pickled, as its ranks cannot: take its state_dict()"
        )


_Distributed.step.hooked = True  # type: ignore[attr-defined]  # torch's hooks of step() run in the class beneath


@advised
def DistributedOptimizer(
    optimizer: O,
    named_parameters: Iterable[tuple[str, Parameter]] | None = None,
    *,
    op: Op = "avg",
    backward_passes_per_step: int = 1,
    group: Group | ProcessGroup | None = None,
    bucket_nbytes: int = 25 << 20,
    first_bucket_nbytes: int = 1 << 20,
    compression: Literal["bf16", "f16"] | None = None,
    timeout: float | None = None,
) -> O:
    """Make an optimizer step with the gradients of all ranks.

        optimizer = torch.optim.AdamW(model.parameters())
        optimizer = pc.torch.DistributedOptimizer(optimizer, model.named_parameters())
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss_function(model(inputs), targets).backward()
            optimizer.step()

    Gradients are reduced while backward computes the rest, and are those of all ranks when it returns: they may be
    clipped, unscaled and looked at as in one process. (Sergeev and Del Balso, Horovod, arXiv:1802.05799, with whose
    synchronize() and skip_synchronize() programs run as well.)

    The optimizer is changed in place and returned, as an object of a subclass of its class. Rank 0's parameters and
    its optimizer state, with learning rates and all, are given to the other ranks here. Make learning rate schedulers
    afterwards.

    Parameters:
        optimizer: any torch.optim.Optimizer but LBFGS.
        named_parameters: the model's; what is not in the optimizer is left alone. Default: names by place.
        op: how gradients are combined. With others than "avg", gradients that were reduced must be set to zero before
            the next backward. With others than "avg", "sum" and "max", unused parameters get gradients of zeros.
        backward_passes_per_step: backward accumulates so often, and reduces the sum of these passes in the last one;
            step() and zero_grad() begin to count anew. Scale the loss yourself, as in one process. After fewer passes,
            as at the end of an epoch, call synchronize() before anything looks at gradients (clipping, unscale_()) or
            steps: they are this rank's own until then.
        group: whose ranks take part: a Group, a process group of our torch backend, default the world. Non-members hold
            None, which is the world: they must not call.
        bucket_nbytes, first_bucket_nbytes, compression, timeout: see GradientReducer.

    Besides what the optimizer had it has:
        synchronize(): reduces gradients that are not reduced yet.
        skip_synchronize(): a context in which step() reduces nothing.
        step(): reduces what backward has not, for example on a rank where no parameter got a gradient.
        reset(): gives a step up, after an exception that this rank survives, as DataParallel.reset().
        join(): a block in which ranks have differently many batches: see pycollective.torch.join().
        close(): makes it the optimizer that it was.

    What DataParallel says about unused parameters, uneven batches and hooks of yours holds here. Sparse gradients, as
    of nn.Embedding(sparse=True), are averaged with op "avg": they travel as dense ones, and come back sparse.
    DataParallel, which sees the nn.Embedding, sends their indices and values alone.

    Raises:
        InvalidArgument: a parameter of the optimizer has no name, or a scheduler was made before.
        CollectiveMismatch: the ranks' parameters differ.

    Example:
        >>> import pycollective as pc, torch
        >>> _ = pc.init()
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = pc.torch.DistributedOptimizer(optimizer, model.named_parameters())
        >>> model(torch.ones(3, 2)).sum().backward()
        >>> optimizer.step()
        >>> isinstance(optimizer, torch.optim.SGD)
        True
        >>> pc.shutdown()
    """
    check_of_torch("DistributedOptimizer", optimizer, Optimizer)
    if isinstance(optimizer, _Distributed):
        raise InvalidArgument("DistributedOptimizer: the optimizer is one already")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise Unsupported("DistributedOptimizer: LBFGS looks at losses, which differ over the ranks")
    if "step" in vars(optimizer):
        raise InvalidArgument(
            "DistributedOptimizer: step() of this optimizer has been replaced, as learning rate schedulers do: "
            "make those after the DistributedOptimizer"
        )
    if backward_passes_per_step < 1:
        raise InvalidArgument("DistributedOptimizer: backward_passes_per_step is at least 1")
    ranks = group_of(group)
    settings = {
        "op": op,
        "bucket_nbytes": bucket_nbytes,
        "first_bucket_nbytes": first_bucket_nbytes,
        "compression": compression,
        "timeout": timeout,
        "passes": backward_passes_per_step,
    }
    arrangement = _Arrangement(ranks, _names(optimizer, named_parameters), settings)
    gradients = arrangement.hooks(optimizer)
    ranks.broadcast(
        [each.detach() for part in optimizer.param_groups for each in part["params"]], timeout=timeout
    )
    state = ranks.broadcast_object(optimizer.state_dict(), max_nbytes=ANY_NBYTES, timeout=timeout)
    if ranks.rank != 0:
        optimizer.load_state_dict(state)
    kind = type(optimizer)
    optimizer.__class__ = type(kind.__name__, (_Distributed, kind), {"__module__": kind.__module__})
    optimizer._gradients = gradients
    optimizer._arrangement = arrangement
    return optimizer


def _names(
    optimizer: Optimizer, named_parameters: Iterable[tuple[str, Parameter]] | None
) -> WeakIdKeyDictionary:
    """The names of parameters, those of the optimizer among them unless none are given."""
    names = WeakIdKeyDictionary()
    if named_parameters is None:
        return names
    for name, each in named_parameters:
        names.setdefault(each, name)
    mine = {id(each) for part in optimizer.param_groups for each in part["params"]}
    nameless = mine - {id(each) for each in names}
    if nameless:
        raise InvalidArgument(
            f"DistributedOptimizer: {len(nameless)} of {len(mine)} parameters of the optimizer are not in "
            "named_parameters: pass those of the whole model"
        )
    return names
