"""A torch optimizer that steps with the gradients of all ranks, with the interface of Horovod."""

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
ANY_NBYTES = 1 << 62  # no limit for the size of an optimizer's state


@dataclass
class _Arrangement:
    """How the gradients of an optimizer are reduced, for any set of parameters."""

    group: Group
    names: WeakIdKeyDictionary  # names of the parameters, including those that are not in the optimizer
    settings: dict[str, Any]  # arguments of GradientHooks

    def hooks(self, optimizer: Optimizer) -> GradientHooks:
        return GradientHooks(self._named(optimizer), group=self.group, **self.settings)

    def again(self, optimizer: Optimizer, before: GradientHooks) -> GradientHooks:
        """Returns hooks for the optimizer with its new parameter group.

        Closes `before` on success. If this raises, `before` keeps its hooks.
        """
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
    """The methods that a DistributedOptimizer has in addition to those of the optimizer's class."""

    _gradients: GradientHooks
    _arrangement: _Arrangement
    _skip = False  # whether step() uses the gradients without reducing them

    if not TYPE_CHECKING:  # with a __getattr__, type checkers would accept every attribute

        def __getattr__(self, name: str) -> object:
            if (of_its_own := getattr(super(), "__getattr__", None)) is not None:
                return of_its_own(name)
            if name == "backward":  # a method of Jittor's optimizers
                from pycollective.base.foreign_words import missing_in

                raise missing_in(type(self), "DistributedOptimizer", name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Steps with the gradients of all ranks. A closure is run once, before the step."""
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
        """Reduces the gradients, unless backward has reduced them already."""
        self._gradients.check()
        if not self._gradients.reduced:
            self._gradients.step()

    def join(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context for different numbers of batches: see pycollective.torch.join."""
        return join(self)

    def _joined(self) -> Joined:
        parameters = [each for part in self.param_groups for each in part["params"]]
        return Joined(self._gradients, lambda _: None, lambda: parameters)

    def reset(self) -> None:
        """Abandons a step after an exception that this rank survives: see DataParallel.reset()."""
        self._gradients.reset()

    def close(self) -> None:
        """Restores the original optimizer: its gradients are no longer reduced."""
        self._gradients.close()
        del self._gradients, self._arrangement
        self.__class__ = type(self).__bases__[1]

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Inside this block, step() uses the gradients without reducing them."""
        self._skip = True
        try:
            yield
        finally:
            self._skip = False

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Resets the gradients and restarts the count of backward passes."""
        self._gradients.check()
        self._gradients.restart()
        super().zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a parameter group on all ranks, with the same parameters, between steps.

        The parameters and settings of rank 0's group are broadcast to the other ranks. Parameters
        that were frozen and require grad now are reduced from here on, too.
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


_Distributed.step.hooked = True  # type: ignore[attr-defined]  # super().step() already runs torch's hooks of step()


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
    """Makes an optimizer step with the gradients of all ranks.

        optimizer = torch.optim.AdamW(model.parameters())
        optimizer = pc.torch.DistributedOptimizer(optimizer, model.named_parameters())
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss_function(model(inputs), targets).backward()
            optimizer.step()

    Gradients are reduced while backward computes the rest, and backward returns with the reduced
    gradients. They can be clipped, unscaled and inspected as in one process. (Sergeev and Del
    Balso, Horovod, arXiv:1802.05799. Programs that use Horovod's synchronize() and
    skip_synchronize() run as well.)

    The optimizer is changed in place and returned, as an object of a subclass of its class. The
    parameters and the optimizer state of rank 0, including learning rates, are broadcast to the
    other ranks in this call. Make learning rate schedulers afterwards.

    Parameters:
        optimizer: any torch.optim.Optimizer except LBFGS.
        named_parameters: those of the model. Parameters that are not in the optimizer are
            ignored. By default, names are derived from positions.
        op: how gradients are combined. With an operation other than "avg", reduced gradients
            must be set to zero before the next backward. With an operation other than "avg",
            "sum" and "max", unused parameters get gradients of zeros.
        backward_passes_per_step: the number of backward passes that accumulate; the last one
            reduces their sum. step() and zero_grad() restart the count. Scale the loss
            yourself, as in one process. After fewer passes, as at the end of an epoch, call
            synchronize() before any use of the gradients (clipping, unscale_()) and before
            step(): until then they are those of this rank alone.
        group: the ranks that take part: a Group or a process group of our torch backend. The
            default is the world. Ranks outside a subgroup hold None for it, and None means the
            world, so they must not call this.
        bucket_nbytes, first_bucket_nbytes, compression, timeout: see GradientReducer.

    The optimizer has these additional or changed methods:
        synchronize(): reduces gradients that are not reduced yet.
        skip_synchronize(): a context in which step() reduces nothing.
        step(): reduces what backward has not reduced, for example on a rank where no parameter
            got a gradient.
        reset(): gives up a step after an exception that this rank survives, as
            DataParallel.reset().
        join(): a context in which ranks have different numbers of batches: see
            pycollective.torch.join().
        close(): restores the original optimizer.

    The notes of DataParallel on unused parameters, uneven batches and your own hooks apply here.
    Sparse gradients, as of nn.Embedding(sparse=True), are averaged with op "avg": they are sent as
    dense ones and become sparse again. DataParallel detects the nn.Embedding, and sends only the
    indices and values of its gradient.

    Raises:
        InvalidArgument: a parameter of the optimizer has no name, or a scheduler was made
            before.
        CollectiveMismatch: the parameters of the ranks differ.

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
    """Returns the names of the parameters.

    If names are given, every parameter of the optimizer must have one.
    """
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
