"""The share of the time of gradient buckets that is hidden behind backward, in DataParallel.

    torchrun --nproc-per-node 2 benchmarks/overlap.py --trace overlap.json

The model is that of ddp_step.py. The time of a bucket runs from its launch until its allreduce has
ended. Its hidden part is that before the launch of the last bucket, because backward has nothing
left to compute then. The trace (of rank 0) is for https://ui.perfetto.dev or chrome://tracing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import NamedTuple

import torch
from ddp_step import WIDTH, perceptron

import pycollective as pc
from pycollective.torch import DataParallel
from pycollective.training.gradients.bucket import Bucket


class Span(NamedTuple):
    """The time during which a bucket is reduced, in seconds of time.perf_counter()."""

    name: str
    begin: float
    end: float


def steps(model: DataParallel, x: torch.Tensor, count: int) -> list[tuple[float, float, list[Span]]]:
    """Returns for each step when backward began, when its computation ended, and its buckets."""
    done = []
    for _ in range(count):
        pc.barrier()
        loss = model(x).sum()
        model.zero_grad()
        began = time.perf_counter()
        loss.backward()
        buckets, computed = read_and_forget()
        done.append((began, computed, buckets))
    return done


_launched: list[tuple[Bucket, float]] = []
_ended: list[Span] = []


def watch() -> None:
    """Records when each bucket begins and, at the wait for it, how long it took."""
    launch, error = Bucket.launch, Bucket.error

    def noted_launch(self: Bucket, *arguments: object) -> None:
        _launched.append((self, time.perf_counter()))
        launch(self, *arguments)  # type: ignore[arg-type]

    def noted_error(self: Bucket) -> object:
        outcome = error(self)
        assert self.work is not None
        begin = next(at for bucket, at in _launched if bucket is self)
        name = f"{self.names[0]} ... {self.names[-1]}, {self.memory.nbytes >> 10} KiB"
        _ended.append(Span(name, begin, begin + self.work.info()["elapsed_s"]))
        return outcome

    Bucket.launch, Bucket.error = noted_launch, noted_error  # type: ignore[method-assign,assignment]


def read_and_forget() -> tuple[list[Span], float]:
    """Returns this step's buckets, and when the last one was launched. Clears the records."""
    spans, computed = list(_ended), max(at for _, at in _launched)
    _launched.clear()
    _ended.clear()
    return spans, computed


def main() -> None:
    """Measures, prints the result, writes the trace."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--trace", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    pc.init()
    watch()
    model = DataParallel(perceptron())
    measured = steps(model, torch.randn(arguments.batch, WIDTH), arguments.steps + 3)[3:]
    shares = []
    for _, computed, spans in measured:
        total = sum(span.end - span.begin for span in spans)
        hidden = sum(min(span.end, computed) - min(span.begin, computed) for span in spans)
        shares.append(hidden / total)
    if pc.rank() == 0:
        began, computed, spans = measured[-1]
        print(f"{len(spans)} buckets, {len(measured)} steps, {pc.size()} ranks, batch {arguments.batch}")
        print(
            f"hidden: median {statistics.median(shares):.0%}, least {min(shares):.0%}, most {max(shares):.0%}"
        )
        if arguments.trace:
            write_trace(arguments.trace, began, computed, spans)
    pc.shutdown()


def write_trace(path: Path, began: float, computed: float, spans: list[Span]) -> None:
    """Writes the trace in Chrome's Trace Event Format, with times in us."""
    rows = [("backward", Span("backward computes", began, computed))]
    rows += [(f"bucket {number + 1}", span) for number, span in enumerate(spans)]
    events = [
        {
            "name": span.name,
            "ph": "X",
            "pid": "rank 0",
            "tid": row,
            "ts": 1e6 * (span.begin - began),
            "dur": 1e6 * (span.end - span.begin),
        }
        for row, span in rows
    ]
    path.write_text(json.dumps({"traceEvents": events}, indent=1))


if __name__ == "__main__":
    main()
