"""Calls mean what those of the same name elsewhere mean: torch.distributed and the MPI standard.

torch.distributed runs beside them, and the rules of the standard are executed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arrays import torch

import pycollective as pc
from pycollective import testing

N = 3  # not a power of two

# ---- torch.distributed: the same inputs in the same processes, through its gloo and through ours

needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")


@contextlib.contextmanager
def gloo(rendezvous: str) -> Iterator[Any]:
    """torch.distributed with a group of the same ranks."""
    import torch.distributed as dist

    store = dist.FileStore(rendezvous, pc.size())
    dist.init_process_group("gloo", store=store, rank=pc.rank(), world_size=pc.size())
    yield dist
    dist.destroy_process_group()


class Comparison:
    """Collects the differences."""

    def __init__(self) -> None:
        self.made, self.wrong = 0, list[str]()

    def same(self, what: str, ours: Any, theirs: Any) -> None:
        self.made += 1
        if ours.dtype != theirs.dtype or not torch.equal(ours, theirs):
            self.wrong.append(f"rank {pc.rank()}: {what}: {ours} instead of {theirs}")


def found(comparison: Comparison, least: int) -> None:
    assert not comparison.wrong, "\n".join(comparison.wrong[:5])
    assert comparison.made >= least, f"only {comparison.made} comparisons"


FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("uint8", "int8", "int32", "int64")
OPS = {"sum": "SUM", "prod": "PRODUCT", "min": "MIN", "max": "MAX", "avg": "AVG"}
BITS = {"band": "BAND", "bor": "BOR", "bxor": "BXOR"}


def number(count: int, dtype: str, op: str) -> Any:
    """Exact in every type: sums and products of int8 wrap, and means of three need no rounding."""
    x = torch.arange(count) * 5 % 11 + pc.rank() * 3
    if op == "avg":
        x = x - x % 3
    if dtype in INTEGERS and op in ("sum", "prod"):
        x = x + 90
    return x.to(getattr(torch, dtype))


def reductions(rendezvous: str) -> None:
    seen = Comparison()
    with gloo(rendezvous) as dist:
        for dtype in FLOATS + INTEGERS:
            ops = {**OPS, **BITS} if dtype in INTEGERS else OPS
            for op, name in ops.items():
                if op == "avg" and dtype in INTEGERS:
                    continue
                theirs_op, x = getattr(dist.ReduceOp, name), number(6 * N, dtype, op)
                what = f"{op} {dtype}"

                theirs = x.clone()
                dist.all_reduce(theirs, theirs_op)
                seen.same(f"allreduce {what}", pc.allreduce(x.clone(), op), theirs)

                for root in range(N):
                    ours, theirs = x.clone(), x.clone()
                    dist.reduce(theirs, root, theirs_op)
                    assert pc.reduce(ours, op, root=root) is ours
                    # gloo leaves partial sums outside of the root; our call promises to leave the
                    # input there.
                    seen.same(f"reduce {what} to {root}", ours, theirs if root == pc.rank() else x)

                theirs = torch.empty(6, dtype=x.dtype)
                dist.reduce_scatter_tensor(theirs, x.clone(), theirs_op)
                seen.same(f"reduce_scatter {what}", pc.reduce_scatter(x, op), theirs)
    found(seen, 5 * (4 * 5 + 4 * 7))


@needs_torch
def test_reductions_are_those_of_torch_distributed(tmp_path: Path) -> None:
    testing.run(reductions, N, str(tmp_path / "rendezvous"))


def moves(rendezvous: str) -> None:
    seen, rank = Comparison(), pc.rank()
    with gloo(rendezvous) as dist:
        for dtype in (*FLOATS, *INTEGERS, "bool"):
            kind = getattr(torch, dtype)
            x = (torch.arange(4 * N).reshape(2 * N, 2) + 100 * rank).to(kind)

            theirs = torch.empty(2 * N * N, 2, dtype=kind)
            dist.all_gather_into_tensor(theirs, x)
            seen.same(f"allgather {dtype}", pc.allgather(x), theirs)
            pieces = [torch.empty_like(x) for _ in range(N)]
            dist.all_gather(pieces, x)
            seen.same(f"allgather {dtype}, a list", pc.allgather(x), torch.cat(pieces))

            for root in range(N):
                ours, theirs = x.clone(), x.clone()
                dist.broadcast(theirs, root)
                seen.same(f"broadcast {dtype} from {root}", pc.broadcast(ours, root), theirs)

                pieces = [torch.empty_like(x) for _ in range(N)]
                dist.gather(x, pieces if rank == root else None, dst=root)
                joined = pc.gather(x, root)
                assert (joined is None) == (rank != root)
                if rank == root:
                    seen.same(f"gather {dtype} to {root}", joined, torch.cat(pieces))

                theirs = torch.empty(2, 2, dtype=kind)
                dist.scatter(theirs, list(x.chunk(N)) if rank == root else None, src=root)
                part = pc.scatter(x if rank == root else None, root)
                seen.same(f"scatter {dtype} from {root}", part, theirs)

            theirs = torch.empty_like(x)
            dist.all_to_all_single(theirs, x)
            seen.same(f"alltoall {dtype}", pc.alltoall(x), theirs)
    found(seen, 9 * (3 + 2 * N))


@needs_torch
def test_moves_are_those_of_torch_distributed(tmp_path: Path) -> None:
    testing.run(moves, N, str(tmp_path / "rendezvous"))


def rows_between(source: int, target: int) -> int:
    return (2 * source + target) % 4  # zero between some ranks


def uneven(rendezvous: str) -> None:
    seen, rank, ranks = Comparison(), pc.rank(), range(pc.size())
    with gloo(rendezvous) as dist:
        to = [rows_between(rank, peer) for peer in ranks]
        coming = [rows_between(peer, rank) for peer in ranks]
        for dtype in ("float32", "int64", "bool"):
            kind = getattr(torch, dtype)
            x = (torch.arange(2 * sum(to)).reshape(sum(to), 2) + 100 * rank).to(kind)
            theirs = torch.empty(sum(coming), 2, dtype=kind)
            dist.all_to_all_single(theirs, x, output_split_sizes=coming, input_split_sizes=to)
            seen.same(f"{dtype}, both given", pc.alltoall(x, counts=to, recv_counts=coming), theirs)
            seen.same(f"{dtype}, found out", pc.alltoall(x, counts=to), theirs)
    found(seen, 6)


@needs_torch
def test_uneven_alltoall_is_all_to_all_single_with_splits(tmp_path: Path) -> None:
    testing.run(uneven, N, str(tmp_path / "rendezvous"))


def ring_of_messages(rendezvous: str) -> None:
    seen, rank, size = Comparison(), pc.rank(), pc.size()
    with gloo(rendezvous) as dist:
        x, ours, theirs = torch.arange(5) + rank, torch.zeros(5).long(), torch.zeros(5).long()
        begun = dist.isend(x, (rank + 1) % size)
        dist.recv(theirs, (rank - 1) % size)
        begun.wait()
        work = pc.send_async(x, (rank + 1) % size)
        pc.recv(ours, (rank - 1) % size)
        work.wait()
        seen.same("recv", ours, theirs)
    found(seen, 1)


@needs_torch
def test_messages_are_those_of_torch_distributed(tmp_path: Path) -> None:
    testing.run(ring_of_messages, N, str(tmp_path / "rendezvous"))


# ---- MPI 4.1, chapter 6: the standard defines most collectives by other calls; these tests do, too


def mine(count: int) -> Any:
    return np.arange(count) * 7 + 1000 * pc.rank()


def gatherv_and_scatterv() -> None:
    """6.5, 6.6: "as if" each process sent its part to the root, which received them in order.

    And the reverse.
    """
    rank, size = pc.rank(), pc.size()
    counts = [(2 * r + 1) % 4 for r in range(size)]  # 1, 3, 1
    places = np.cumsum([0, *counts])
    for root in range(size):
        x = mine(counts[rank])
        gathered = pc.gather(x, root, counts=counts)
        if rank != root:
            pc.send(x, root)
            assert gathered is None
        else:
            wanted = np.zeros(places[-1], np.int64)
            for peer in range(size):
                into = wanted[places[peer] : places[peer + 1]]
                into[:] = x if peer == rank else pc.recv(np.zeros(counts[peer], np.int64), peer)
            assert gathered.tolist() == wanted.tolist()
            for peer in range(size):
                if peer != rank:
                    pc.send(wanted[places[peer] : places[peer + 1]], peer)
        part = pc.scatter(gathered, root, counts=counts if rank == root else None)
        assert part.tolist() == x.tolist(), "what was gathered is scattered back"
        if rank != root:
            assert pc.recv(np.zeros_like(x), root).tolist() == part.tolist()


def test_gather_and_scatter_with_counts_are_mpis_gatherv_and_scatterv() -> None:
    testing.run(gatherv_and_scatterv, N)


def allgatherv() -> None:
    """6.7: "as if all processes executed n calls to MPI_Gatherv" with each root."""
    counts = [4, 0, 3]
    x = mine(counts[pc.rank()])
    at_each_root = [pc.gather(x, root, counts=counts) for root in range(pc.size())]
    assert pc.allgather(x, counts=counts).tolist() == at_each_root[pc.rank()].tolist()


def test_allgather_with_counts_is_mpis_allgatherv() -> None:
    testing.run(allgatherv, N)


def alltoallv() -> None:
    """6.8: "as if each process sent a message to every other process" and received one from it."""
    rank, ranks = pc.rank(), range(pc.size())
    to = [rows_between(rank, peer) for peer in ranks]
    coming = [rows_between(peer, rank) for peer in ranks]
    x = mine(sum(to))
    sent = np.split(x, np.cumsum(to)[:-1])
    got = [np.zeros(count, np.int64) for count in coming]
    works = [pc.recv_async(got[peer], peer) for peer in ranks if peer != rank]
    works += [pc.send_async(sent[peer], peer) for peer in ranks if peer != rank]
    for work in works:
        work.wait()
    got[rank] = sent[rank]
    assert pc.alltoall(x, counts=to, recv_counts=coming).tolist() == np.concatenate(got).tolist()


def test_alltoall_with_counts_is_mpis_alltoallv() -> None:
    testing.run(alltoallv, N)


def reduced_and_scattered() -> None:
    """6.10: MPI_Reduce_scatter is MPI_Reduce and MPI_Scatterv; 6.9.6: all get its result."""
    counts = [2, 0, 5]
    for op in ("sum", "prod", "min", "max", "band", "bor", "bxor", "land", "lor", "lxor"):
        total = pc.reduce(mine(7), op, root=1)
        wanted = pc.scatter(total if pc.rank() == 1 else None, 1, counts=counts if pc.rank() == 1 else None)
        assert pc.reduce_scatter(mine(7), op, counts=counts).tolist() == wanted.tolist(), op
        everywhere = pc.broadcast(total if pc.rank() == 1 else np.zeros(7, np.int64), 1)
        assert pc.allreduce(mine(7), op).tolist() == everywhere.tolist(), op


def test_reduce_scatter_and_allreduce_are_mpis_reduce_and_then_a_move() -> None:
    testing.run(reduced_and_scattered, N)


def scans() -> None:
    """6.11: rank i gets the reduction of ranks 0 to i; exclusive: 0 to i - 1, rank 0 nothing."""
    rank = pc.rank()
    every = np.array([[3, 1, 2], [5, 5, 0], [2, 9, 4]])
    for op, of in {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}.items():
        assert pc.scan(every[rank].copy(), op).tolist() == of.reduce(every[: rank + 1]).tolist()
        x = every[rank].copy()
        wanted = x if rank == 0 else of.reduce(every[:rank])
        assert pc.exscan(x, op).tolist() == wanted.tolist()

    x = every[rank] * 0.5
    halves = np.add.accumulate(every * 0.25)
    assert pc.scan(x.copy(), pc.scaled("sum", 0.5)).tolist() == halves[rank].tolist()
    before = pc.exscan(x.copy(), pc.scaled("sum", 0.5))
    assert before.tolist() == (halves[rank - 1] if rank > 0 else x).tolist()
    true = pc.exscan(every[rank].copy(), "lor")
    assert true.tolist() == ([1, 1, 1] if rank > 0 else every[0].tolist()), "1 for true, of one rank too"
    assert pc.scan(every[rank].copy(), "lor").tolist() == [1, 1, 1]


def test_scans_are_mpis() -> None:
    testing.run(scans, N)


def locations() -> None:
    """6.9.4: the value, and its location; of equal values the lower location."""
    pairs = np.array([[[4, 7], [1, 5]], [[2, 9], [1, 3]], [[2, 8], [6, 1]]])
    assert pc.allreduce(pairs[pc.rank()].copy(), "minloc").tolist() == [[2, 8], [1, 3]]
    assert pc.allreduce(pairs[pc.rank()].copy(), "maxloc").tolist() == [[4, 7], [6, 1]]


def test_minloc_and_maxloc_are_mpis() -> None:
    testing.run(locations, N)
