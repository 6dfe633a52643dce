"""Calls on arguments that the core cannot use in place. The core makes all other calls itself.

Such arguments are arrays that are not contiguous or cannot be written, numbers, lists of arrays,
parts of different sizes, and axes other than the first. Elements are copied into one block if
necessary, and results are copied back. The user documentation of these calls and their parameters
is in bindings/docs/group_docs.h and part_docs.h.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pycollective.arrays.exact_ints import WORDS, array_of, from_words, is_exact, to_words
from pycollective.arrays.gpu_arrays import is_on_gpu
from pycollective.arrays.libraries import by_name, on_the_host
from pycollective.arrays.library import Library
from pycollective.base.clock import Clock
from pycollective.calls.blocks import (
    block_of,
    check_block,
    check_pairs,
    copy_of,
    library_for,
    unfilled,
    writable_for,
)
from pycollective.calls.coalesced_lists import is_list_of_arrays, plan_coalesced, run_coalesced
from pycollective.calls.elementwise import Elementwise
from pycollective.calls.int_results import int_target, mismatches_explained, write_ints
from pycollective.calls.messages import Incoming
from pycollective.calls.parts import Counts, Parts, cut, row_of, whole_of
from pycollective.calls.reproducible import OPS, sum_of_leaves
from pycollective.calls.scratch import Scratch
from pycollective.errors import InvalidArgument, Unsupported

if TYPE_CHECKING:
    from pycollective._core import Group, PlannedCall, Work

__all__ = [
    "allgather",
    "allreduce",
    "allreduce_async",
    "alltoall",
    "broadcast",
    "broadcast_async",
    "exscan",
    "exscan_async",
    "gather",
    "plan_allreduce",
    "recv",
    "reduce",
    "reduce_async",
    "reduce_scatter",
    "scan",
    "scan_async",
    "scatter",
    "send",
    "sendrecv",
]


# ---- elementwise calls: the arrays of all ranks have the same shape


def allreduce(
    group: Group, *, x: Any, op: Any, out: Any, timeout: float | None, reproducible: str | None
) -> Any:
    """Every rank gets the combination of all ranks' arrays."""
    if reproducible == "world":
        if out is not None:
            raise InvalidArgument('allreduce: reproducible="world" gives a new array: copy it into yours')
        return sum_of_leaves(group, x, op, timeout)
    return Elementwise(group, "allreduce", op, timeout, fixed_order=reproducible is not None).make(x, out)


def plan_allreduce(
    group: Group, *, x: Any, op: Any, out: Any, timeout: float | None, reproducible: str | None
) -> PlannedCall[Any]:
    """Plan an allreduce(). If no array of a list needs a copy, later calls do not use Python."""
    if reproducible == "world":
        _check_leaves("plan_allreduce", x, op, out)
    elif is_list_of_arrays(x):
        if out is not None:
            raise InvalidArgument(
                "plan_allreduce: out= is for one array, not for a list: copy the arrays first"
            )
        if (planned := plan_coalesced("plan_allreduce", x, op)) is not None:
            fixed_order = reproducible is not None
            calls = [
                ("allreduce", blocks, True, op, 0, planned.digest, timeout, fixed_order)
                for blocks in planned.blocks
            ]
            return group._plan_lists(calls, x, planned.words)
    elif not is_exact(x, op):
        check_block("plan_allreduce", "x", library_for("plan_allreduce", "x", x), x, op)
    call = functools.partial(
        allreduce, group, x=x, op=op, out=out, timeout=timeout, reproducible=reproducible
    )
    return group._plan_staged(call, x)


def _check_leaves(function: str, x: Any, op: Any, out: Any) -> None:
    """Refuse what sum_of_leaves() would refuse, as far as one rank can detect it."""
    why = f'{function}: reproducible="world"'
    if out is not None:
        raise InvalidArgument(f"{why} gives a new array: copy it into yours")
    if op not in OPS:
        raise Unsupported(f"{why} takes op {', '.join(OPS)}, not {op!r}")
    if is_list_of_arrays(x):
        raise InvalidArgument(f"{why} takes an array of leaves, x[0], x[1], ..., not a {type(x).__name__}")
    if is_exact(x, op) and isinstance(x, (list, tuple)):
        return
    library = library_for(function, "x", x)
    if not library.shape(x):
        raise InvalidArgument(f"{why} takes an array of leaves, x[0], x[1], ...: x is 0-d")
    check_block(function, "x", library, x, op)


def _scan(
    name: str, group: Group, *, x: Any, op: Any, out: Any, timeout: float | None, reproducible: str | None
) -> Any:
    """Every rank gets the combination of all lower ranks' arrays, in a scan including its own."""
    return Elementwise(group, name, op, timeout, fixed_order=_by_shape(name, reproducible)).make(x, out)


scan = functools.partial(_scan, "scan")
exscan = functools.partial(_scan, "exscan")


def reduce(
    group: Group, *, x: Any, op: Any, root: int, timeout: float | None, reproducible: str | None
) -> Any:
    """The root gets the combination of all ranks' arrays."""
    writes = operator.index(root) == group.rank
    fixed_order = _by_shape("reduce", reproducible)
    return Elementwise(group, "reduce", op, timeout, root, writes, fixed_order).make(x)


def _by_shape(function: str, reproducible: str | None) -> bool:
    if reproducible == "world":
        raise Unsupported(f'{function}: reproducible="world" is for allreduce')
    return reproducible is not None


def broadcast(group: Group, *, x: Any, root: int, timeout: float | None) -> Any:
    """Every rank gets the root's array."""
    return Elementwise(group, "broadcast", None, timeout, root, operator.index(root) != group.rank).make(x)


# ---- elementwise calls in the background, for lists of arrays


def _begin(
    name: str,
    group: Group,
    x: Any,
    op: Any = "sum",
    *,
    out: Any = None,
    root: int = 0,
    timeout: float | None = None,
    reproducible: str | None = None,
) -> Work[Any]:
    """Begin a call. The core has already checked its arguments."""
    writes = name != "reduce" or operator.index(root) == group.rank
    fixed_order = _by_shape(f"{name}_async", reproducible)
    return Elementwise(group, name, op, timeout, root, writes, fixed_order).begin(x, out)


allreduce_async = functools.partial(_begin, "allreduce")
scan_async = functools.partial(_begin, "scan")
exscan_async = functools.partial(_begin, "exscan")
reduce_async = functools.partial(_begin, "reduce")


def broadcast_async(group: Group, *, x: Any, root: int, timeout: float | None) -> Work[Any]:
    writes = operator.index(root) != group.rank
    return Elementwise(group, "broadcast", None, timeout, root, writes).begin(x)


# ---- messages


def send(group: Group, *, x: Any, peer: int, tag: int, timeout: float | None) -> Any:
    """Send to another rank."""
    if is_list_of_arrays(x):
        clock = Clock(timeout)
        run_coalesced(
            "send",
            x,
            lambda blocks, digest: group._send(blocks, peer, tag, clock.left_s(), digest),
            writes=False,
        )
        return x
    library = library_for("send", "x", x)
    with Scratch() as scratch:
        group.send(copy_of(library, x, scratch), peer, tag=tag, timeout=timeout)
    return x


def recv(group: Group, *, x: Any, peer: int, tag: int, timeout: float | None, with_source: bool) -> Any:
    """Receive from another rank."""
    message = Incoming(group, operator.index(peer), tag, timeout)
    result = _received(x, message)
    return (result, message.source) if with_source else result


def _received(x: Any, message: Incoming) -> Any:
    if x is None:
        return message.as_it_comes()
    if is_list_of_arrays(x):
        return run_coalesced("recv", x, message.into, writes=True)
    library = library_for("recv", "x", x)
    if not library.mutable:
        block = library.empty(x, library.shape(x))
        message.into(block)
        return library.finished(block, x)
    writable_for("recv", "x", x)
    if library.is_block(x):
        message.into(x)
        return x
    with Scratch() as scratch:
        block = unfilled(library, x, library.shape(x), scratch)
        message.into(block)
        library.assign(x, block)
    return x


def sendrecv(
    group: Group, *, x: Any, dest: int, source: int | None, out: Any, tag: int, timeout: float | None
) -> Any:
    """Send one array to rank `dest`, and receive another from rank `source`."""
    if is_list_of_arrays(x):
        raise Unsupported("sendrecv: x is a list or dict of arrays: send_async() and recv() take those")
    library = library_for("sendrecv", "x", x, out)
    target = library if out is None else writable_for("sendrecv", "out", out)
    with Scratch() as scratch:
        block = block_of(library, x, scratch)
        if out is None:
            coming = library.empty(x, library.shape(x))
        else:
            coming = out if target.is_block(out) else unfilled(target, out, target.shape(out), scratch)
        group.sendrecv(block, dest, source, out=coming, tag=tag, timeout=timeout)
        if out is None:
            return library.finished(coming, x)
        if coming is not out:
            target.assign(out, coming)
    return out


# ---- calls on parts: every rank has a part of one array


def allgather(group: Group, *, x: Any, out: Any, counts: Counts, axis: int, timeout: float | None) -> Any:
    """Every rank gets the parts of all ranks."""
    return _gathered("allgather", group, x, 0, out, counts, axis, timeout)


def gather(
    group: Group, *, x: Any, root: int, out: Any, counts: Counts, axis: int, timeout: float | None
) -> Any:
    """The root gets the parts of all ranks."""
    return _gathered("gather", group, x, root, out, counts, axis, timeout)


def _gathered(
    name: str, group: Group, x: Any, root: int, out: Any, counts: Counts, axis: int, timeout: float | None
) -> Any:
    call = Parts(name, group, axis, timeout)
    library = library_for(name, "x", x, out)
    check_block(name, "x", library, x)
    part = call.front(library, x)
    shape = library.shape(part) or (1,)
    lengths = None
    if counts is not None:
        lengths = call.lengths_of_all(shape[0]) if counts == "auto" else call.listed(counts)
        call.own(lengths, shape[0])
    whole = whole_of(shape, sum(lengths) if lengths is not None else shape[0] * group.size)
    gets = name == "allgather" or operator.index(root) == group.rank
    return call.run(
        (library, part),
        (library, x, whole) if gets else None,
        out,
        root=root,
        counts=lengths,
        row=row_of(shape),
    )


def reduce_scatter(
    group: Group,
    *,
    x: Any,
    op: Any,
    out: Any,
    counts: Counts,
    axis: int,
    timeout: float | None,
    reproducible: str | None,
) -> Any:
    """Every rank gets its part of the combination of all ranks' arrays."""
    fixed_order = _by_shape("reduce_scatter", reproducible)
    call = Parts("reduce_scatter", group, axis, timeout)
    if is_exact(x, op):
        return _scatter_ints(call, x, op, out, counts, fixed_order)
    library = library_for("reduce_scatter", "x", x, out)
    check_pairs("reduce_scatter", "x", library.shape(x), op)
    whole = call.front(library, x)
    if op in ("minloc", "maxloc") and call.axis == len(library.shape(x)) - 1:
        raise call.refuse(f'axis {call.axis} holds the pairs of "{op}", which cannot be cut')
    shape = library.shape(whole)
    lengths = cut(call, shape, counts)
    mine = whole_of(shape, lengths[group.rank])
    given_lengths = None if counts is None else lengths
    return call.run(
        (library, whole),
        (library, x, mine),
        out,
        op=op,
        counts=given_lengths,
        row=row_of(shape),
        fixed_order=fixed_order,
    )


def _scatter_ints(call: Parts, x: Any, op: str, out: Any, counts: Counts, fixed_order: bool) -> Any:
    """Do reduce_scatter() for a vector of ints."""
    words, library = to_words(x, op), by_name("numpy")
    call.front(library, words[..., 0])
    lengths = cut(call, words.shape[:-1], counts)
    mine = lengths[call.group.rank]
    target = None if out is None else int_target(call.name, out, (mine,))
    with mismatches_explained():
        part = call.run(
            (library, words),
            (library, words, (mine, WORDS)),
            None,
            op=op,
            counts=None if counts is None else lengths,
            row=WORDS,
            fixed_order=fixed_order,
        )
    values = [from_words(call.name, each, 0, op) for each in part]
    if target is None:
        return array_of(call.name, values, op)
    write_ints(call.name, values, op, target, out)
    return out


def alltoall(
    group: Group,
    *,
    x: Any,
    out: Any,
    counts: Sequence[int] | None,
    recv_counts: Sequence[int] | None,
    axis: int,
    timeout: float | None,
) -> Any:
    """Every rank gets a part of every other rank's array."""
    call = Parts("alltoall", group, axis, timeout)
    library = library_for("alltoall", "x", x, out)
    check_block("alltoall", "x", library, x)
    whole = call.front(library, x)
    shape = library.shape(whole)
    if isinstance(counts, str):
        raise call.refuse("counts is the length of what goes to each rank; only this rank knows it")
    if counts is None and recv_counts is not None:
        raise call.refuse("recv_counts needs counts: the length of what goes to each rank")
    lengths = cut(call, shape, counts)
    if counts is None:
        return call.run((library, whole), (library, x, shape), out)
    if recv_counts is not None:
        coming = call.listed(recv_counts, "recv_counts")
    else:
        gathered = group.alltoall(np.array(lengths), timeout=call.clock.left_s())
        coming = [int(length) for length in gathered]
    return call.run(
        (library, whole),
        (library, x, whole_of(shape, sum(coming))),
        out,
        counts=lengths,
        recv_counts=coming,
        row=row_of(shape),
    )


def scatter(
    group: Group, *, x: Any, root: int, out: Any, counts: Counts, axis: int, timeout: float | None
) -> Any:
    """Every rank gets its part of the root's array."""
    call = Parts("scatter", group, axis, timeout)
    if out is not None:
        return _scatter_into(call, x, root, out, counts)
    if operator.index(root) != group.rank:
        header = group.broadcast_object(None, root, timeout=call.clock.left_s())
        if isinstance(header, str):
            raise Unsupported(f"rank {operator.index(root)}: {header}")
        name, lengths, rest, call.axis, element, even = header
        library = by_name(name)
        like = _like(library, element)
    else:
        library = library_for("scatter", "x", x)
        if library is not (host := on_the_host(library)):
            library = host  # use host memory, because the other ranks may not handle GPU arrays
        elif library.name != "jax" and is_on_gpu(x):
            refused = "x lies on a GPU, and the others do not know where their parts would lie: pass out= on all ranks"
            group.broadcast_object(refused, root, timeout=call.clock.left_s())
            raise Unsupported(f"scatter: {refused}")
        check_block("scatter", "x", library, x)
        whole = call.front(library, x)
        shape = library.shape(whole)
        lengths, rest, even, like = cut(call, shape, counts), shape[1:], counts is None, x
        header = (library.name, lengths, rest, call.axis, _element(library, x), even)
        group.broadcast_object(header, root, timeout=call.clock.left_s())
    source = (library, whole) if operator.index(root) == group.rank else None
    mine = (lengths[group.rank], *rest)
    given_lengths = None if even else lengths
    return call.run(source, (library, like, mine), None, root=root, counts=given_lengths, row=row_of(mine))


def _element(library: Library, x: Any) -> Any:
    """Encode the element type for other ranks: an empty array, or a list of fields."""
    empty = library.empty(x, (0,))
    return np.lib.format.dtype_to_descr(empty.dtype) if getattr(empty.dtype, "names", None) else empty


def _like(library: Library, element: Any) -> Any:
    empty = np.empty(0, np.lib.format.descr_to_dtype(element)) if isinstance(element, list) else element
    return library.finished(empty, empty)


def _scatter_into(call: Parts, x: Any, root: int, out: Any, counts: Counts) -> Any:
    target = writable_for("scatter", "out", out)
    mine = target.shape(call.front(target, out)) or (1,)
    lengths = None
    if counts == "auto":
        raise call.refuse('counts="auto" is for calls without out=: only the root knows how long x is')
    if counts is not None:
        lengths = call.listed(counts)
        call.own(lengths, mine[0])
    source = None
    if operator.index(root) == call.group.rank:
        library = library_for("scatter", "x", x, out)
        whole = call.front(library, x)
        shape = library.shape(whole)
        if shape[1:] != mine[1:] or cut(call, shape, lengths)[call.group.rank] != mine[0]:
            raise call.refuse(
                f"out has shape {target.shape(out)}, which is no part of x of shape {library.shape(x)}"
            )
        source = (library, whole)
    return call.run(source, (target, out, mine), out, root=root, counts=lengths, row=row_of(mine))
