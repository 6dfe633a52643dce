"""A rank, which is a process, of a world in which the second rank hides its GPU.

The GPUs are FAKES.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import numpy as np
from fake_cupy import fake_cupy
from fake_gpus import Array, Driver, Gpu

import pycollective as pc

Make = Callable[..., "Array | np.ndarray"]


def allreduce(make: Make) -> None:
    x = make([1.0 + pc.rank()])
    assert pc.allreduce(x) is x
    assert values(x) == [6.0]


def broadcast(make: Make) -> None:
    for root in (1, 2):
        x = make(np.full(5, pc.rank()))
        pc.broadcast(x, root=root)
        assert values(x) == [root] * 5


def allreduce_of_a_list(make: Make) -> None:
    parts = [make([1.0]), make(np.full((2, 2), pc.rank()))]
    pc.allreduce(parts)
    assert [values(part) for part in parts] == [[3.0], [[3, 3], [3, 3]]]


def allgather(make: Make) -> None:
    whole = make(np.zeros(6, np.int64))
    pc.allgather(make(np.full(2, pc.rank())), out=whole)
    assert values(whole) == [0, 0, 1, 1, 2, 2]


def reducer_of_gradients(make: Make) -> None:
    x, y = make([1.0 + pc.rank()]), make(np.full(3, 3.0 * pc.rank()))
    gradients = {"x": x, "y": y}
    reduced = pc.GradientReducer(gradients).reduce(gradients)
    assert (values(reduced["x"]), values(reduced["y"])) == ([2.0], [3.0] * 3)


def messages(make: Make) -> None:
    x = make(np.full(4, pc.rank()))
    if pc.rank() != 2:
        pc.send(x, 2)
        return
    for source in (0, 1):
        pc.recv(x, source)
        assert values(x) == [source] * 4


def values(x: Array | np.ndarray) -> object:
    if isinstance(x, np.ndarray):
        return x.tolist()
    fake_cupy.here.gpu.drain(x.stream)
    return x.host.tolist()


def main() -> None:
    if os.environ["RANK"] == "1":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        make: Make = np.array
    else:
        sys.modules["cupy"] = fake_cupy
        gpu = fake_cupy.here.gpu = Gpu(Driver(1), 0)

        def make(values: object) -> Array:
            return fake_cupy.ndarray(gpu, values)

    pc.init()
    globals()[sys.argv[1]](make)
    pc.shutdown()


if __name__ == "__main__":
    main()
