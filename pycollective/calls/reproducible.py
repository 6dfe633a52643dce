"""Sums with the same bits on any number of ranks: allreduce(leaves, reproducible="world").

Idea     The leaves of all ranks, in rank order, are the leaves of one binary tree. Node i of
         level l is the combination of nodes 2i and 2i + 1 of the level below; if the last node
         2i has no node 2i + 1, it becomes node i alone. The result does not depend on which
         rank computes a node.
Steps    1. Every rank combines its leaves into the largest nodes inside its range: at most
            2 log2(leaves) of them.
         2. alltoall: every rank gets all ranks' nodes for its slice of the elements, and
            combines them up to the root.
         3. allgather of the slices.
n = 4    leaves 0 1 | 2 3 4 | 5 | 6 7, with bars between ranks:
         rank 0 has node (0 1), rank 1 has (2 3) and 4, rank 2 has 5, rank 3 has (6 7)
         then     ((0 1) (2 3))   ((4 5) (6 7))
Source   C. Stelz, Core-count independent reproducible reduce, Karlsruhe Institute of Technology,
         2022 (in KaMPIng).
Limits   The leaves and their order must be the same; only their division among ranks is free.
         A rank with an unaligned range sends several nodes where an allreduce sends one
         array.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pycollective import _core
from pycollective.arrays.exact_ints import array_of, from_words, is_exact, to_words
from pycollective.arrays.libraries import library_of, on_the_host
from pycollective.base.clock import Clock
from pycollective.calls.blocks import check_block
from pycollective.errors import InvalidArgument, Unsupported

if TYPE_CHECKING:
    from pycollective._core import Group

__all__ = ["OPS", "Node", "nodes_of", "sum_of_leaves"]

OPS = ("sum", "add", "prod", "min", "max")


class Node(NamedTuple):
    """A tree node: the combination of the leaves from place << level to (place + 1) << level."""

    level: int
    place: int


def nodes_of(begin: int, end: int) -> list[Node]:
    """Return the largest nodes that together cover leaves `begin` to `end`, in order."""
    nodes = []
    while begin < end:
        level = (end - begin).bit_length() - 1
        if begin:
            level = min(level, (begin & -begin).bit_length() - 1)
        nodes.append(Node(level, begin >> level))
        begin += 1 << level
    return nodes


def _to_the_root(rows: dict[Node, Any], leaves: int, op: Any) -> Any:
    """Combine nodes that cover all leaves into the root.

    `rows` has the elements of each node. They may be overwritten.
    """
    level = 0
    while leaves > 1 << level:
        for node in sorted(node for node in rows if node.level == level):
            row = rows.pop(node, None)
            if row is None:
                continue  # it was combined with the first node of its pair
            other = rows.pop(Node(level, node.place + 1), None)
            if other is not None:
                _core._combine(row, row, other, op)
            rows[Node(level + 1, node.place // 2)] = row
        level += 1
    (root,) = rows.values()
    return root


def sum_of_leaves(group: Group, x: Any, op: Any, timeout: float | None) -> Any:
    """Return the combination of all ranks' leaves, a new array that is equal on all ranks.

    The leaves of a rank are x[0], x[1], ...
    """
    if op not in OPS:
        raise Unsupported(f'allreduce: reproducible="world" takes op {", ".join(OPS)}, not {op!r}')
    if isinstance(x, (list, tuple)) and is_exact(x, op):
        words = _of_arrays(group, to_words(x, op), op, timeout)
        return array_of("allreduce", from_words("allreduce", words, 0, op), op)
    return _of_arrays(group, x, op, timeout)


def _of_arrays(group: Group, x: Any, op: Any, timeout: float | None) -> Any:
    library = on_the_host(library_of(x))
    shape = library.shape(x)
    check_block("allreduce", "x", library, x, op)
    if not shape:
        raise InvalidArgument(
            'allreduce: reproducible="world" takes an array of leaves, x[0], x[1], ...: x is 0-d'
        )
    clock = Clock(timeout)
    counts = [int(count) for count in group.allgather(np.array([shape[0]]), timeout=clock.left_s())]
    begins = [sum(counts[:rank]) for rank in range(group.size)]
    leaves = sum(counts)
    if leaves == 0:
        raise InvalidArgument('allreduce: reproducible="world": there is no leaf on any rank')
    nodes = [nodes_of(begin, begin + count) for begin, count in zip(begins, counts, strict=True)]
    elements = int(np.prod(shape[1:], dtype=np.int64))

    flat = library.empty(x, shape)
    library.assign(flat, x)
    flat = flat.reshape((shape[0], elements))
    first = begins[group.rank]
    mine = []
    for node in nodes[group.rank]:
        begin = (node.place << node.level) - first
        block = flat[begin : begin + (1 << node.level)]
        rows = {Node(0, i): block[i] for i in range(len(block))}
        mine.append(_to_the_root(rows, len(block), op))

    cuts = [elements * rank // group.size for rank in range(group.size + 1)]
    widths = [end - begin for begin, end in itertools.pairwise(cuts)]
    width = widths[group.rank]
    sent = library.empty(x, (len(mine) * elements,))
    place = 0
    for begin, end in itertools.pairwise(cuts):
        for row in mine:
            library.assign(sent[place : place + end - begin], row[begin:end])
            place += end - begin
    came = group.alltoall(
        sent,
        counts=[len(mine) * each for each in widths],
        recv_counts=[len(theirs) * width for theirs in nodes],
        timeout=clock.left_s(),
    )
    every = [node for theirs in nodes for node in theirs]
    rows = {node: came[i * width : (i + 1) * width] for i, node in enumerate(every)}
    slices = group.allgather(_to_the_root(rows, leaves, op), counts=widths, timeout=clock.left_s())
    return library.finished(slices.reshape(shape[1:]), slices)
