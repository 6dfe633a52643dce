"""A substitute for torch.nn.DataParallel, which has no CPU devices: a thread per batch slice."""

import contextlib
import copy
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn


class ThreadedDataParallel(nn.Module):
    """Each step replicates the module, cuts the batch, and runs forward and backward in threads."""

    def __init__(self, module: nn.Module, threads: int) -> None:
        super().__init__()
        self.module, self.threads = module, threads
        self.pool = ThreadPoolExecutor(threads)
        self.anchor = torch.zeros((), requires_grad=True)  # makes autograd call backward below

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        slices = [part for part in x.tensor_split(self.threads) if len(part)]
        # A replica has its own buffers, so that threads do not write the same running means.
        # Parameters are shared: autograd adds to their gradients from several threads, one at a
        # time.
        shared = {id(p): p for p in self.module.parameters()}
        replicas = [copy.deepcopy(self.module, dict(shared)) for _ in slices[1:]]
        return InThreads.apply(self.anchor, self.pool, [self.module, *replicas], slices)

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()  # nothing is sent in any case


class InThreads(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        anchor: torch.Tensor,
        pool: ThreadPoolExecutor,
        replicas: list[nn.Module],
        slices: list[torch.Tensor],
    ) -> torch.Tensor:
        # this state is local to each thread
        amp, low = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

        def run(replica: nn.Module, part: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad(), torch.autocast("cpu", low, enabled=amp):
                return replica(part)

        ctx.pool, ctx.outputs = pool, list(pool.map(run, replicas, slices))
        return torch.cat([output.detach() for output in ctx.outputs])

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> tuple[None, ...]:
        slices = gradient.split([len(output) for output in ctx.outputs])
        list(ctx.pool.map(torch.autograd.backward, ctx.outputs, slices))
        return None, None, None, None
