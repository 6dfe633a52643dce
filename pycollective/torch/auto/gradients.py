"""Backward averages the gradients of all optimizers; losses become those of the whole batch.

The weight of a rank's samples is applied to the gradients with which backward begins, so that it
affects everything in the backward, including batch normalization. At the end of each backward the
gradients are those of all ranks. So operations before the step (clipping, unscaling, accumulating)
need no change.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, Literal

import torch
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from pycollective._core import Group
from pycollective.errors import InvalidArgument, Unsupported
from pycollective.torch.auto import losses
from pycollective.torch.auto.batches import NAME, Batches
from pycollective.torch.auto.lockstep import Lockstep
from pycollective.torch.auto.replaced import replace
from pycollective.torch.gradient_hooks import GradientHooks

__all__ = ["install"]


def install(
    undone: contextlib.ExitStack, batches: Batches, group: Group, reduction: Literal["mean", "sum"]
) -> None:
    """Hooks every optimizer and every backward. `undone` removes the hooks."""
    reduced = Reduced(group)
    lockstep = Lockstep(group)
    make, add, plain = Optimizer.__init__, Optimizer.add_param_group, torch.autograd.backward
    making: set[int] = set()
    # losses that still have this rank's value, each with the value of the whole batch
    late: list[tuple[torch.Tensor, float]] = []

    def __init__(self: Optimizer, params: Any, defaults: dict[str, Any]) -> None:  # noqa: ANN401
        making.add(id(self))
        try:
            make(self, params, defaults)
        finally:
            making.discard(id(self))
        reduced.adopt(self)

    def add_param_group(self: Optimizer, param_group: dict[str, Any]) -> None:
        add(self, param_group)
        if id(self) not in making:
            reduced.adopt(self)

    def backward(
        tensors: Any,  # noqa: ANN401
        grad_tensors: Any = None,  # noqa: ANN401
        retain_graph: bool | None = None,
        *args: Any,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> None:
        # the backward of a checkpoint inside another backward
        nested = torch._C._current_graph_task_id() != -1
        if nested or not reduced.any:
            plain(tensors, grad_tensors, retain_graph, *args, **named)
            return
        share = batches.spend()
        roots = (tensors,) if not isinstance(tensors, (tuple, list)) else tuple(tensors)
        if reduction == "mean":
            losses.refuse_sums(roots, grad_tensors, share.parts)
        elif share.mixed:
            raise InvalidArgument(
                f"{NAME}: parts of batches and whole ones are in one sum, and only the parts are to be added up over "
                "the ranks: take batches of at least as many samples as there are ranks"
            )
        weight = float(group.size) if share.cut and reduction == "sum" else share.weight
        scalars = [each.detach() for each in roots if losses.is_own_scalar(each)] if share.cut else []
        values = lockstep.compare(share.digest, [float(each) * weight / group.size for each in scalars])
        reduced.begin()
        plain(roots, losses.weighted(roots, grad_tensors, weight), retain_graph, *args, **named)
        late.extend(zip(scalars, values, strict=True))
        if not retain_graph:
            send_flags()

    def send_flags() -> None:
        """Writes the values of the whole batch into the losses.

        It is called only after backward, because backward may read the losses.
        """
        for scalar, value in late:
            scalar.fill_(value)
        late.clear()

    def before(stepping: Optimizer, args: Any, named: Any) -> None:  # noqa: ANN401
        reduced.check(stepping)

    def after(stepping: Optimizer, args: Any, named: Any) -> None:  # noqa: ANN401
        send_flags()
        batches.stepped()
        lockstep.stepped(stepping)

    replace(undone, Optimizer, "__init__", __init__)
    replace(undone, Optimizer, "add_param_group", add_param_group)
    replace(undone, torch.autograd, "backward", backward)
    undone.callback(register_optimizer_step_pre_hook(before).remove)
    undone.callback(register_optimizer_step_post_hook(after).remove)
    undone.callback(reduced.close)


class Reduced:
    """The parameters with reduced gradients. Each is reduced while an optimizer has it."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._hooks: weakref.WeakKeyDictionary[Optimizer, list[GradientHooks]] = weakref.WeakKeyDictionary()
        # by id() of the parameter
        self._of: weakref.WeakValueDictionary[int, GradientHooks] = weakref.WeakValueDictionary()
        self._frozen: weakref.WeakKeyDictionary[Optimizer, list[Parameter]] = weakref.WeakKeyDictionary()

    @property
    def any(self) -> bool:
        """Whether an optimizer exists."""
        return bool(self._hooks)

    def adopt(self, made: Optimizer) -> None:
        """Broadcasts rank 0's values of the optimizer's parameters, and reduces their gradients.

        A parameter that several optimizers have is reduced once.
        """
        if isinstance(made, torch.optim.LBFGS):
            raise Unsupported(f"{NAME}: LBFGS looks at losses as it goes, which differ over the ranks")
        new = [
            each
            for part in made.param_groups
            for each in part["params"]
            if not any(each is known for known in self._frozen.get(made, ()))
        ]
        strangers = [each for each in new if id(each) not in self._of]
        if strangers:
            self._group.broadcast([each.detach() for each in strangers])
        self._reduce(made, [each for each in new if each.requires_grad])
        self._frozen.setdefault(made, []).extend(each for each in new if not each.requires_grad)

    def begin(self) -> None:
        """Before a backward: adds the parameters that were unfrozen since the previous one."""
        for made, frozen in list(self._frozen.items()):
            thawed = [each for each in frozen if each.requires_grad]
            if thawed:
                self._frozen[made] = [each for each in frozen if not each.requires_grad]
                self._reduce(made, thawed)

    def check(self, stepping: Optimizer) -> None:
        """Raises InvalidArgument if a gradient has not been reduced over the ranks."""
        for place, parameter in enumerate(each for part in stepping.param_groups for each in part["params"]):
            if parameter.grad is None or not parameter.requires_grad:
                continue
            hooks = self._of.get(id(parameter))
            if hooks is None or not hooks.reduced:
                raise InvalidArgument(
                    f"{NAME}: parameter {place} of a {type(stepping).__name__} has a gradient that is not of all "
                    "ranks: it comes from no backward(), or from one that raised, or the optimizer is a copy of another"
                )

    def close(self) -> None:
        """Ends all reductions."""
        for hooks in self._hooks.values():
            for each in hooks:
                each.close()

    def _reduce(self, made: Optimizer, parameters: list[Parameter]) -> None:
        mine = self._hooks.setdefault(made, [])
        strangers = [each for each in parameters if id(each) not in self._of]
        for each in parameters:
            known = self._of.get(id(each))
            if known is not None and all(known is not other for other in mine):
                mine.append(known)
        if not strangers:
            return
        names = {
            id(each): place for place, each in enumerate(p for g in made.param_groups for p in g["params"])
        }
        named = [(f"parameter {names[id(each)]} of {type(made).__name__}", each) for each in strangers]
        hooks = GradientHooks(
            named,
            op="avg",
            group=self._group,
            bucket_nbytes=25 << 20,
            first_bucket_nbytes=1 << 20,
            compression=None,
            timeout=None,
        )
        mine.append(hooks)
        self._of.update({id(each): hooks for each in strangers})
