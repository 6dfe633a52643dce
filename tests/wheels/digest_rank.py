"""One rank of a world: makes every call that computes, and prints a digest of all results.

Every rank has the same digest.

usage: digest_rank.py address rank size
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
from typing import Literal

import numpy as np

import pycollective as pc

DTYPES = ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "uint64")
OPS: tuple[Literal["sum", "avg", "min", "max", "prod"], ...] = ("sum", "avg", "min", "max", "prod")
COUNTS = (1, 7, 1000, 100_003)  # small, and cut into pieces that are not equal


def values(dtype: str, rank: int, count: int) -> np.ndarray:
    """The same bits on every processor: whole numbers, and one division."""
    whole = np.random.default_rng([rank, count]).integers(1, 120, count)
    return (whole / 37 if dtype.startswith("float") else whole).astype(dtype)


def digest_of_all() -> str:
    digest = hashlib.sha256()
    for dtype, op, count in itertools.product(DTYPES, OPS, COUNTS):
        if op == "avg" and not dtype.startswith("float"):
            continue
        mine = values(dtype, pc.rank(), count * pc.size())
        digest.update(pc.allreduce(mine.copy(), op).tobytes())
        digest.update(pc.allgather(pc.reduce_scatter(mine, op)).tobytes())
    return digest.hexdigest()


def main(address: str, rank: str, size: str) -> None:
    pc.init(address, rank=int(rank), size=int(size), timeout=300)
    print(json.dumps({"machine": os.uname().machine, "digest": digest_of_all()}))
    pc.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
