"""A training step of torch's DDP over this backend and over gloo, and of pc.torch.DataParallel.

    torchrun --nproc-per-node 2 benchmarks/ddp_step.py

A multilayer perceptron with 25 million float32 parameters, on the CPU, one thread per rank. Rounds
are interleaved: each makes a step of every kind. "alone" is the step without communication
(no_sync). The communication time of a kind is the median of its steps minus the median of "alone".
Units: ms.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pycollective as pc

WIDTH, LAYERS = 1768, 8  # 25.0 million parameters


def perceptron() -> nn.Module:
    """Returns the model, with equal parameters on every rank."""
    torch.manual_seed(0)
    layers = [module for _ in range(LAYERS) for module in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*layers)


def step_of(model: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    """Returns a function that makes a step: forward and backward. It drops the gradients."""

    def step() -> None:
        model(x).sum().backward()
        for parameter in model.parameters():
            parameter.grad = None

    return step


def alone(model: DistributedDataParallel, x: torch.Tensor) -> Callable[[], None]:
    """Returns a function that makes a step without communication."""
    step = step_of(model, x)

    def without() -> None:
        with model.no_sync():
            step()

    return without


def main() -> None:
    """Measures all kinds in each round, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("pycollective")
    gloo = dist.new_group(backend="gloo")
    x = torch.randn(arguments.batch, WIDTH)
    ours = DistributedDataParallel(perceptron(), gradient_as_bucket_view=True)
    kinds = {
        "alone": alone(ours, x),
        "DDP, pycollective": step_of(ours, x),
        "DDP, gloo": step_of(
            DistributedDataParallel(perceptron(), process_group=gloo, gradient_as_bucket_view=True), x
        ),
        "pc.torch.DataParallel": step_of(pc.torch.DataParallel(perceptron()), x),
    }
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(arguments.rounds + 3):
        order = list(kinds)
        random.Random(number).shuffle(order)  # so that no kind always follows the same other kind
        for kind in order:
            pc.barrier()
            began = time.perf_counter()
            kinds[kind]()
            pc.barrier()
            if number >= 3:
                times[kind].append(1e3 * (time.perf_counter() - began))
    if dist.get_rank() == 0:
        report(times)
    dist.destroy_process_group()


def report(times: dict[str, list[float]]) -> None:
    """Prints the table."""
    alone_ms = statistics.median(times["alone"])
    gloo_ms = statistics.median(times["DDP, gloo"]) - alone_ms
    print(f"{'':24}{'median':>9}{'p99':>9}{'communication':>15}{'of gloo':>9}")
    for kind, each in times.items():
        median, p99 = statistics.median(each), sorted(each)[int(0.99 * len(each))]
        communication = median - alone_ms
        print(f"{kind:24}{median:9.1f}{p99:9.1f}{communication:15.1f}{communication / gloo_ms:9.2f}")


if __name__ == "__main__":
    main()
