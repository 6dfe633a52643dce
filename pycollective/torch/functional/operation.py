"""Makes a call an operation of torch, with an adjoint for autograd and shapes for torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from pycollective.errors import Unsupported

__all__ = ["Operation"]


class Operation:
    """The torch operation `pycollective::<name>`.

    It takes one tensor operand and then plain parameters, and returns one new tensor.

    Args:
        schema: name, parameters and result in torch's notation.
        run: makes the call.
        fake: takes the arguments of `run`, and returns an empty tensor of the result's shape.
        adjoint: takes the gradient of the result and the parameters, and returns that of the
            operand, or None if there is none.
    """

    def __init__(
        self,
        schema: str,
        *,
        run: Callable[..., Tensor],
        fake: Callable[..., Tensor],
        adjoint: Callable[..., Tensor | None],
    ) -> None:
        self._name, _, signature = schema.partition("(")
        self._op = torch.library.custom_op(
            f"pycollective::{self._name}", run, mutates_args=(), schema=f"({signature}"
        )
        self._op.register_fake(fake)
        self._op.register_autograd(_backward(adjoint), setup_context=_keep_parameters)
        if hasattr(self._op, "register_effect"):  # missing in older versions of torch
            from torch._library.effects import EffectType

            self._op.register_effect(EffectType.ORDERED)

    def __call__(self, x: Tensor, *parameters: object) -> Tensor:
        """Makes the call, or records it in the graph that is being traced."""
        if not torch.compiler.is_compiling():
            self._refuse_forward_mode(x)
        result: Tensor = self._op(x, *parameters)
        return result

    def _refuse_forward_mode(self, x: Tensor) -> None:
        """Raises for forward mode, in which torch would take a custom derivative as zero."""
        if forward_ad.unpack_dual(x).tangent is not None:
            raise Unsupported(
                f"{self._name}: no forward-mode derivative (jvp, jacfwd, dual tensors) goes through it: take backward()"
            )


def _keep_parameters(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401  torch's context
    ctx.parameters = inputs[1:]


def _backward(adjoint: Callable[..., Tensor | None]) -> Callable[..., tuple[Tensor | None, ...]]:
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        return adjoint(gradient, *ctx.parameters), *[None] * len(ctx.parameters)

    return backward
