"""The scaling of training with the number of ranks: measured here, simulated for clusters, drawn.

    python benchmarks/scaling.py --rounds 12 --plot benchmarks/scaling.svg

ResNet-18 for images of 32 x 32 (11.2 million float32 parameters), pc.torch.DataParallel, a fixed
batch per rank (weak scaling), one thread per rank.

Measured. Efficiency is the images per second of all ranks together, divided by those of as many
processes that make the same steps and do not communicate (no_sync). So there may be more ranks than
cores: both figures include the sharing of cores and memory, and only communication and waiting make
the difference. Each round runs a few steps of each kind, in random order. A process that finishes
early leaves its core to the others, which favours those that do not communicate.

Simulated. A step of one process is divided into forward, the time at which backward has completed
each bucket of gradients, the end of backward, and the update. Then, for n ranks on n hosts,

    a rank begins with a broadcast of the buffers; forward and backward take as long as here;
    the allreduce of a bucket begins when the bucket is complete and the one before has ended;
    its time is the prediction of pc.explain: the plan that would run, on a model of the link
    (docs/plans.md);
    the update begins when backward and the last allreduce have ended.

Efficiency is the step without communication divided by this one. The model omits the following:
communication takes no time of the cores, all ranks are equally fast, links are idle, and no switch
is a bottleneck. With "10 times faster" the measured times are divided by 10: the faster the ranks,
the more the link matters. "None hidden" is the same with all allreduces after backward, as if cores
could not do both.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

import pycollective as pc

STEPS = 3  # steps of each kind per round
SIZES = (2, 4, 8, 16, 32)
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
CLUSTERS = {  # link, speed of the ranks relative to a core of this machine, colour
    "100 Gbit/s": ("ethernet_100g", 1.0, "#1b7837"),
    "10 Gbit/s": ("ethernet_10g", 1.0, "#2166ac"),
    "100 Gbit/s, ranks 10 times faster": ("ethernet_100g", 10.0, "#b35806"),
    "10 Gbit/s, ranks 10 times faster": ("ethernet_10g", 10.0, "#762a83"),
}
MEASURED_COLOUR, TARGET, GREY = "#b2182b", 0.8, "#999999"


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = convolution(inputs, outputs, 3, stride)
        self.second = convolution(outputs, outputs, 3, 1)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else convolution(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Computes the block as in He et al., 2016 (ResNet)."""
        return (self.second(self.first(x).relu()) + self.shortcut(x)).relu()


def convolution(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Module:
    """Returns a convolution with its batch normalization."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)
    )


def resnet18() -> nn.Module:
    """Returns ResNet-18 as trained on CIFAR: without stride and pooling at the beginning."""
    widths = (64, 128, 256, 512)
    blocks = [
        Block(64 if width == 64 else width // 2, width, 1 if width == 64 else 2)
        if first
        else Block(width, width, 1)
        for width in widths
        for first in (True, False)
    ]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100))
    return nn.Sequential(convolution(3, 64, 3, 1), nn.ReLU(), *blocks, *head)


def step_of(model: nn.Module, batch: int) -> Callable[[], None]:
    """Returns a function that makes a whole training step on constant images."""
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
    x, y = torch.randn(batch, 3, 32, 32), torch.arange(batch) % 100

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def measure(batch: int, rounds: int) -> list[tuple[float, float]]:
    """Returns this rank's images per second for each round: without and with communication."""
    pc.seed(0, per_rank=False)
    model = pc.torch.DataParallel(resnet18())
    step = step_of(model, batch)

    def alone() -> None:
        with model.no_sync():
            step()

    done = []
    for number in range(rounds + 1):
        rates = {}
        for kind in random.Random(number).sample((alone, step), 2):
            pc.barrier()
            began = time.perf_counter()
            for _ in range(STEPS):
                kind()
            rates[kind] = STEPS * batch / (time.perf_counter() - began)
        done.append((rates[alone], rates[step]))
    return done[1:]


class Anatomy(NamedTuple):
    """The parts of a step of one process, in seconds."""

    forward: float
    buckets: tuple[tuple[int, float], ...]  # bytes, and seconds from the beginning of backward to completion
    backward: float
    update: float
    buffers_nbytes: int

    @property
    def alone(self) -> float:
        """The whole step, without communication."""
        return self.forward + self.backward + self.update


def anatomy(batch: int, rounds: int) -> Anatomy:
    """Returns the parts of the fastest of `rounds` steps."""
    torch.set_num_threads(1)
    model = resnet18()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
    x, y = torch.randn(batch, 3, 32, 32), torch.arange(batch) % 100
    named = {name: parameter.detach() for name, parameter in model.named_parameters()}
    buckets = pc.GradientReducer(named).buckets
    complete: dict[str, float] = {}
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda _, name=name: complete.update({name: time.perf_counter()})
        )
    steps = []
    for _ in range(rounds):
        optimizer.zero_grad()
        began = time.perf_counter()
        loss = nn.functional.cross_entropy(model(x), y)
        forward = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        optimizer.step()
        updated = time.perf_counter()
        times = [max(complete[name] for name in bucket) - forward for bucket in buckets]
        sizes = [sum(named[name].nbytes for name in bucket) for bucket in buckets]
        buffers = sum(buffer.nbytes for buffer in model.buffers())
        ready = tuple(zip(sizes, times, strict=True))
        steps.append(Anatomy(forward - began, ready, backward - forward, updated - backward, buffers))
    return min(steps, key=lambda each: each.alone)


def predicted(collective: str, nbytes: int, n: int, link: str) -> float:
    """Returns the predicted seconds of a call of n ranks, each on a host of its own.

    For the link shared_memory all ranks are on one host.
    """
    hosts = 1 if link == "shared_memory" else n
    text = pc.explain(collective, nbytes=nbytes, size=n, hosts=hosts, model=link)
    found = re.search(r"^predicted: ([\d.]+) (\w+) ", text, re.MULTILINE)
    assert found, text
    return float(found[1]) * UNITS[found[2]]


def simulated(step: Anatomy, n: int, link: str, *, faster: float = 1.0, hidden: bool = True) -> float:
    """Returns the efficiency of n ranks if computation is `faster` times as fast as here."""
    begin = predicted("broadcast", step.buffers_nbytes, n, link) + step.forward / faster
    computed = begin + step.backward / faster
    free = begin  # when the previous allreduce has ended
    for nbytes, complete in step.buckets:
        ready = begin + complete / faster if hidden else computed
        free = max(free, ready) + predicted("allreduce", nbytes, n, link)
    return step.alone / faster / (max(computed, free) + step.update / faster)


def draw(path: Path, measured: dict[int, list[float]], step: Anatomy, about: str) -> None:
    """Draws efficiency over the number of ranks."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4, 3.8), layout="constrained")
    axes = figure.subplots()
    axes.axhline(TARGET, color=GREY, linewidth=0.9, linestyle=(0, (4, 2)))
    axes.annotate("0.8: Paddle's figure", (11, TARGET - 0.035), fontsize=7, color=GREY)
    ends = []
    for name, (link, faster, colour) in CLUSTERS.items():
        line = [1.0, *(simulated(step, n, link, faster=faster) for n in SIZES)]
        axes.plot((1, *SIZES), line, color=colour, linewidth=1.2, marker="o", markersize=2.5)
        ends.append((name, line[-1], colour))
    below = 2.0
    for name, height, colour in sorted(ends, key=lambda each: -each[1]):
        below = min(height, below - 0.045)  # keeps names from overlapping
        axes.annotate(
            name, (SIZES[-1] * 1.08, below), fontsize=7.5, color=colour, va="center", annotation_clip=False
        )
    for n, rounds in measured.items():
        low, middle, high = statistics.quantiles(rounds, n=4)
        axes.errorbar(
            [n], [middle], [[middle - low], [high - middle]],
            color=MEASURED_COLOUR, marker="s", markersize=5, capsize=3, linewidth=1.2, zorder=4,
        )  # fmt: skip
    axes.annotate(
        "measured, shared memory", (max(measured), min(map(statistics.median, measured.values()))), (0, -42),
        textcoords="offset points", fontsize=7.5, color=MEASURED_COLOUR, fontweight="bold", ha="center",
    )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks((1, *SIZES), [str(n) for n in (1, *SIZES)], fontsize=8)
    axes.set_xlim(0.95, SIZES[-1] * 1.05)
    axes.set_ylim(0, 1.05)
    axes.tick_params(axis="y", labelsize=8)
    axes.set_xlabel("ranks; lines are simulated, a host for each", fontsize=8)
    axes.set_title(f"efficiency: {about}", fontsize=9, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#eeeeee", linewidth=0.6)
    axes.set_axisbelow(True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def tell(measured: dict[int, list[float]], step: Anatomy) -> None:
    """Prints both tables."""
    print("| measured | efficiency: median (quartiles) | simulated, shared memory |\n|---|---|---|")
    for n, rounds in measured.items():
        low, middle, high = statistics.quantiles(rounds, n=4)
        model = simulated(step, n, "shared_memory")
        print(f"| {n} ranks | {middle:.3f} ({low:.3f}, {high:.3f}) | {model:.3f} |")
    sizes = " | ".join(f"{n} ranks" for n in SIZES)
    print(f"\n| simulated | {sizes} | {SIZES[-1]}, none hidden |\n|---|{'---|' * (len(SIZES) + 1)}")
    for name, (link, faster, _) in CLUSTERS.items():
        cells = [simulated(step, n, link, faster=faster) for n in SIZES]
        cells.append(simulated(step, SIZES[-1], link, faster=faster, hidden=False))
        print(f"| {name} | {' | '.join(f'{cell:.2f}' for cell in cells)} |")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, simulates, prints, draws."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=8, help="of each rank")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--plot", type=Path, help=".svg or .png")
    options = parser.parse_args(arguments)
    (step,) = pc.run(
        anatomy, options.batch, 5 * options.rounds, n=1
    )  # many rounds, so that the fastest step is undisturbed
    sizes = ", ".join(f"{nbytes / 1e6:.1f} MB at {complete:.3f}" for nbytes, complete in step.buckets)
    print(
        f"a step alone, s: forward {step.forward:.3f}, backward {step.backward:.3f}, update {step.update:.3f}"
    )
    print(f"buckets complete, s from the beginning of backward: {sizes}\n")
    measured = {}
    for n in options.ranks:
        by_rank = pc.run(measure, options.batch, options.rounds, n=n)
        measured[n] = [
            sum(together for _, together in ranks) / sum(alone for alone, _ in ranks)
            for ranks in zip(*by_rank, strict=True)
        ]
    tell(measured, step)
    if options.plot:
        draw(options.plot, measured, step, f"ResNet-18, {options.batch} images of 32 x 32 per rank and step")


if __name__ == "__main__":
    main()
