"""Batch normalization in training uses the statistics of the whole batch if its input is a part."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from pycollective._core import Group
from pycollective.errors import Unsupported
from pycollective.torch.auto.batches import NAME, Batches
from pycollective.torch.auto.replaced import replace
from pycollective.torch.sync_batch_norm import _SyncBatchNorm

__all__ = ["install"]


def install(undone: contextlib.ExitStack, batches: Batches, group: Group) -> None:
    """Replaces the function that all of torch's layers call. `undone` restores it."""
    plain = functional.batch_norm

    @torch.compiler.disable
    def batch_norm(
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if not training or not batches.cut():
            return cast(
                Tensor, plain(input, running_mean, running_var, weight, bias, training, momentum, eps)
            )
        normal, count, mean, variance = _SyncBatchNorm.apply(input, weight, bias, eps, group)
        for running, new in ((running_mean, mean), (running_var, variance)):
            if running is not None and count > 0:
                running.lerp_(new.to(running.dtype), momentum)
        return cast(Tensor, normal)

    def refusing(compile: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(compile)
        def compiled(what: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401  as torch has it
            layers = what.modules() if isinstance(what, nn.Module) else ()
            if any(isinstance(each, _BatchNorm) and each.training for each in layers):
                raise Unsupported(
                    f"{NAME}: batch normalization of a part of a batch cannot be compiled by torch.jit: train the "
                    "model as it is, and compile it in eval()"
                )
            # torch.jit also reads the source of batch_norm(), so the original is restored meanwhile
            with contextlib.ExitStack() as meanwhile:
                replace(meanwhile, functional, "batch_norm", plain)
                return compile(what, *args, **named)

        return compiled

    replace(undone, functional, "batch_norm", batch_norm)
    replace(undone, torch.jit, "script", refusing(torch.jit.script))
    replace(undone, torch.jit, "trace", refusing(torch.jit.trace))
