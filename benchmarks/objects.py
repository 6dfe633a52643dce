"""The cost of calls on objects and of the same calls on arrays: medians, two ranks on this host.

Usage: python benchmarks/objects.py
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable

import numpy as np

import pycollective as pc
from pycollective import testing
from pycollective.objects import object_codec

SMALL = {"step": 3, "lr": 0.1, "name": "run"}
MOST_NBYTES = 1 << 30


def median_us(call: Callable[[], object], count: int = 2000) -> float:  # noqa: D103
    times = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return sorted(times)[count // 2] * 1e6


def pings() -> dict[str, float]:
    """Returns one-way times in us."""
    x, peer = np.zeros(256, np.uint8), 1 - pc.rank()
    send: tuple[Callable[[], object], Callable[[], object]] = (
        lambda: pc.send(x, peer),
        lambda: pc.recv(x, peer),
    )
    send_object: tuple[Callable[[], object], Callable[[], object]] = (
        lambda: pc.send_object(SMALL, peer),
        lambda: pc.recv_object(peer),
    )
    found = {}
    for name, pair in (("send 256 B", send), ("send_object small", send_object)):
        first, second = pair if pc.rank() == 0 else pair[::-1]
        found[name] = median_us(lambda first=first, second=second: (first(), second())) / 2
    return found


def collectives() -> dict[str, float]:
    """Returns times in us. A barrier prevents the root from running ahead."""
    x, large = np.zeros(256, np.uint8), np.zeros(1 << 27, np.uint8)
    return {
        "barrier": median_us(pc.barrier),
        "broadcast 256 B + barrier": median_us(lambda: (pc.broadcast(x), pc.barrier())),
        "broadcast_object small + barrier": median_us(lambda: (pc.broadcast_object(SMALL), pc.barrier())),
        "allgather_object small": median_us(lambda: pc.allgather_object(SMALL)),
        "gather_object small + barrier": median_us(lambda: (pc.gather_object(SMALL), pc.barrier())),
        "broadcast 128 MiB": median_us(lambda: (pc.broadcast(large), pc.barrier()), 7),
        "broadcast_object 128 MiB": median_us(lambda: (pc.broadcast_object(large), pc.barrier()), 7),
    }


def everything() -> dict[str, float]:  # noqa: D103
    return {**pings(), **collectives()}


def codec() -> dict[str, float]:
    """Returns times in us of encoding and decoding, without communication."""
    records = [{"a": number, "b": str(number), "c": [1, 2]} for number in range(10_000)]
    found = {}
    for name, value, count in (("small", SMALL, 2000), ("10,000 dicts", records, 7)):
        data = object_codec.encode(value, most_nbytes=MOST_NBYTES)
        found |= {
            f"encode {name}": median_us(
                lambda value=value: object_codec.encode(value, most_nbytes=MOST_NBYTES),
                count,
            ),
            f"decode {name}": median_us(lambda data=data: object_codec.decode(data), count),
            f"pickle.dumps {name}": median_us(lambda value=value: pickle.dumps(value), count),
        }
    return found


if __name__ == "__main__":
    for name, us in {**testing.run(everything, 2, timeout_s=200)[0], **codec()}.items():
        print(f"{name:36}{us:12.1f} us")
