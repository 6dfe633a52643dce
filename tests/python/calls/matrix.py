"""The conformance matrix: every operation with every element type, count, placement and root.

NumPy computes what is expected. These worlds use tcp. The transport between threads, inproc, exists
in C++ only: tests/cpp/comm/collectives_test.cc runs tests/cpp/conformance/executor_suite.h over
both, with several tables of algorithms. There allreduce, reduce, scans and reduce_scatter are
tested with every type and operation. Calls that only move data are tested with one type of each
width (broadcast with all), with every root, in place and not. Only these tests cover what Python
adds: arrays with gaps, counts="auto", out=, NumPy's other types.

A case is a row of a table. The oracle computes what every rank must get from what all ranks
contribute, and run_case() makes the call on one rank and compares. Values are small whole numbers,
so that every result is exact in every type.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from arrays import numpy_dtype

import pycollective as pc

RANKS = (1, 2, 3, 4, 5, 8)
LARGE = 70_001  # above the eager limit and a segment
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
COMPLEX = ("complex64", "complex128")
MOVED = ("bool", *INTEGERS, *FLOATS, *FLOAT8, *COMPLEX, "datetime64[s]", "S5", "f4,i2")
REDUCED = {  # docs/dtypes.md has the whole table, which test_dtypes.py tests
    "sum": ("bool", *INTEGERS, *FLOATS, *FLOAT8, *COMPLEX),
    "prod": ("bool", *INTEGERS, *FLOATS, *FLOAT8, *COMPLEX),
    "min": ("bool", *INTEGERS, *FLOATS, *FLOAT8),
    "max": ("bool", *INTEGERS, *FLOATS, *FLOAT8),
    "avg": (*FLOATS, *COMPLEX),
    "band": ("bool", *INTEGERS),
    "bor": ("bool", *INTEGERS),
    "bxor": ("bool", *INTEGERS),
    "land": ("bool", "uint8", "int64", "float32"),
    "lor": ("bool", "uint8", "int64", "float32"),
    "lxor": ("bool", "uint8", "int64", "float32"),
}
COMBINE: dict[str, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "avg": np.add,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
    "land": np.logical_and,
    "lor": np.logical_or,
    "lxor": np.logical_xor,
}
ELEMENTWISE = ("allreduce", "reduce", "broadcast", "scan", "exscan")
PARTED = ("allgather", "reduce_scatter", "alltoall", "gather", "scatter")
ROOTED = ("reduce", "broadcast", "gather", "scatter")
REDUCING = ("allreduce", "reduce", "reduce_scatter", "scan", "exscan")


@dataclass(frozen=True)
class Case:
    operation: str
    dtype: str
    op: str  # "" for calls that do not reduce
    # elements of the array, or of all parts together where `parts` is uneven, or of each part where
    # even
    count: int
    parts: str  # "", "even", "uneven", "auto"
    placement: str  # "new", "in place", "out", "strided"
    root: int


def counts(size: int) -> tuple[int, ...]:
    return tuple(sorted({0, 1, size - 1, size, size + 1, 1000, LARGE}))


def roots(operation: str, size: int) -> tuple[int, ...]:
    return tuple(range(size)) if operation in ROOTED else (0,)


def placements(operation: str) -> tuple[str, ...]:
    if operation in ("broadcast", "reduce"):
        return ("in place", "strided")
    if operation in ("allreduce", "scan", "exscan"):
        return ("in place", "out", "strided")
    return ("new", "out", "strided")


def cases(size: int) -> Iterator[Case]:
    """Yields all cases of a world of that size."""
    for operation in ELEMENTWISE + PARTED:
        ops = (
            [op for op in REDUCED if op != "avg" or "scan" not in operation]
            if operation in REDUCING
            else [""]
        )
        kinds = ("even", "uneven", "auto") if operation in PARTED else ("",)
        for op, parts in itertools.product(ops, kinds):
            if parts == "auto" and operation == "alltoall":
                continue
            for dtype, count in itertools.product(REDUCED[op] if op else MOVED, counts(size)):
                if count == LARGE and (
                    dtype not in ("float32", "bfloat16", "uint8") or op in ("land", "lor", "lxor")
                ):
                    continue
                for placement, root in itertools.product(placements(operation), roots(operation, size)):
                    if operation == "scatter" and parts == "auto" and placement != "new":
                        continue
                    yield Case(operation, dtype, op, count, parts, placement, root)


def sample(size: int, share: float, seed: int) -> list[Case]:
    """Returns that share of the cases, the same on every rank."""
    chosen = random.Random(seed * 1000 + size)
    return [case for case in cases(size) if chosen.random() < share]


class Oracle:
    """What the ranks of a world contribute to a call, and what each must get."""

    def __init__(self, case: Case, size: int) -> None:
        self.case, self.size = case, size
        self.dtype = numpy_dtype(case.dtype)
        self.lengths = self._lengths()

    def _lengths(self) -> list[int]:
        """Returns the lengths of the parts."""
        count, size = self.case.count, self.size
        if self.case.parts == "even":
            return [count // 8 if count == LARGE else count] * size
        if self.case.parts == "auto" and self.case.operation in ("reduce_scatter", "scatter"):
            return [count // size + (r < count % size) for r in range(size)]
        cuts = sorted((count * (3 * r + 1)) // (3 * size + 2) for r in range(1, size))
        return [b - a for a, b in itertools.pairwise([0, *cuts, count])]

    def between(self, source: int, target: int) -> int:
        """Returns how many elements one rank sends to another in an alltoall."""
        return (
            self.lengths[0] if self.case.parts == "even" else self.lengths[(source + 2 * target) % self.size]
        )

    def values(self, rank: int, count: int) -> Any:
        if self.case.dtype == "bool" or self.case.op in ("land", "lor", "lxor"):
            return ((np.arange(count) + rank) % 3).astype(self.dtype)  # 2 is true as well, and becomes 1
        numbers = (np.arange(count) * 7 + rank * 3) % 2 + (
            self.case.dtype not in FLOAT8
        )  # few numbers fit into 8 bits
        if self.dtype.names:
            return np.array([(n, rank) for n in numbers], self.dtype).reshape(count)
        return numbers.astype(self.dtype)

    def put_in(self, rank: int) -> Any:
        operation = self.case.operation
        if operation in ("allgather", "gather"):
            return self.values(rank, self.lengths[rank])
        if operation == "alltoall":
            return self.values(rank, sum(self.between(rank, peer) for peer in range(self.size)))
        return self.values(rank, sum(self.lengths) if operation in PARTED else self.case.count)

    def reduced(self, ranks: range) -> Any:
        columns = [self.put_in(rank) for rank in ranks]
        if self.case.dtype == "bool":
            return {"sum": np.logical_or, "prod": np.logical_and}.get(
                self.case.op, COMBINE[self.case.op]
            ).reduce(columns)
        wide = np.int64 if self.case.dtype in INTEGERS else complex if self.case.dtype in COMPLEX else float
        total = COMBINE[self.case.op].reduce([column.astype(wide) for column in columns])
        if self.case.op == "avg":  # a complex number is divided by its two parts
            total = (total.view(float) / self.size).view(total.dtype)
        return total.astype(self.dtype)  # integers wrap

    def part(self, whole: Any, rank: int) -> Any:
        begin = sum(self.lengths[:rank])
        return whole[begin : begin + self.lengths[rank]]

    def wanted(self, rank: int) -> Any:
        """Returns what the call returns to that rank, or None if it returns nothing."""
        case, ranks = self.case, range(self.size)
        match case.operation:
            case "allreduce":
                return self.reduced(ranks)
            case "reduce":
                return self.reduced(ranks) if rank == case.root else self.put_in(rank)
            case "broadcast":
                return self.put_in(case.root)
            case "scan":
                return self.reduced(range(rank + 1))
            case "exscan":
                return self.reduced(range(rank)) if rank > 0 else None
            case "reduce_scatter":
                return self.part(self.reduced(ranks), rank)
            case "scatter":
                return self.part(self.put_in(case.root), rank)
            case "gather" if rank != case.root:
                return None
            case "alltoall":
                return np.concatenate([self._sent(peer, rank) for peer in ranks])
        return np.concatenate([self.put_in(peer) for peer in ranks])

    def _sent(self, source: int, target: int) -> Any:
        begin = sum(self.between(source, peer) for peer in range(target))
        return self.put_in(source)[begin : begin + self.between(source, target)]

    def parts_arguments(self, rank: int) -> dict[str, Any]:
        case, ranks = self.case, range(self.size)
        if case.parts in ("", "even"):
            return {}
        if case.operation == "alltoall":
            arguments = {"counts": [self.between(rank, peer) for peer in ranks]}
            if case.count % 2:
                arguments["recv_counts"] = [self.between(peer, rank) for peer in ranks]
            return arguments
        return {"counts": "auto" if case.parts == "auto" else self.lengths}


def laid(x: Any, placement: str) -> Any:
    """Returns `x` in the memory layout of the case."""
    if placement != "strided":
        return x
    loose = np.zeros((x.size, 2), x.dtype)[:, 1]
    loose[:] = x
    return loose


def run_case(case: Case) -> str:
    """Makes the call on this rank. Returns what is wrong, or ""."""
    rank, oracle = pc.rank(), Oracle(case, pc.size())
    before = oracle.put_in(rank)
    x = laid(before.copy(), case.placement)
    wanted = oracle.wanted(rank)
    result, out = _call(case, oracle, x, wanted)
    if case.operation == "exscan" and rank == 0:
        wanted = before if out is None else np.zeros_like(before)
    if wanted is None:
        return "" if result is None else "gives a rank something that shall get nothing"
    if out is not None and result is not out:
        return "does not return out"
    if wanted.dtype != result.dtype or wanted.shape != result.shape:
        return f"gives {result.dtype}{result.shape} instead of {wanted.dtype}{wanted.shape}"
    if case.placement != "in place" and result is not x and x.tobytes() != before.tobytes():
        return "touches its input"
    exact = case.op != "avg" or case.dtype in ("float32", "float64", "complex64", "complex128")
    same = result.tobytes() == wanted.tobytes() if exact else _close(result, wanted)
    return "" if same else f"gives {result[:9]}... instead of {wanted[:9]}..."


def _close(a: Any, b: Any) -> bool:
    return np.allclose(a.astype(float), b.astype(float), rtol=1e-2)  # a running mean is rounded at every step


def _call(case: Case, oracle: Oracle, x: Any, wanted: Any) -> tuple[Any, Any]:
    rank = pc.rank()
    arguments: dict[str, Any] = oracle.parts_arguments(rank)
    if case.op:
        arguments["op"] = case.op
    if case.operation in ROOTED:
        arguments["root"] = case.root
    out = None
    if case.placement == "out" or (case.placement == "strided" and case.operation == "allgather"):
        shape = x.shape if wanted is None else wanted.shape
        out = laid(np.zeros(shape, x.dtype), case.placement)
        arguments["out"] = out
    if case.operation == "gather" and rank != case.root:
        out = None
    return getattr(pc, case.operation)(x, **arguments), out


def run(share: float, seed: int, part: int, parts: int) -> tuple[int, list[str]]:
    """Runs one slice of the sample on a rank.

    Returns the number of cases, and what is wrong with some.
    """
    size = pc.size()
    chosen = sample(size, share, seed)[part::parts]
    wrong = []
    for case in chosen:
        said = run_case(case)
        if said:
            wrong.append(f"rank {pc.rank()} of {size}, {case}: {said}")
        if len(wrong) >= 5:
            break
    return len(chosen), wrong
