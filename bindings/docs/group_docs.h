// Docstrings of the calls, shared by the functions of the module and the methods of Group. The
// first line is the signature that inspect.signature() reads. For messages and calls on arrays, it
// is generated from call_table.h. A test runs every example in a world of one rank.
#pragma once

namespace pc::docs {

inline constexpr const char* kGroup = R"(A group of processes that call collectives together.

init() makes the world, and `world()` returns the current one. group() and split() make groups of
some of its ranks. Several threads may use a group; the program must then order their calls. Every
rank of the group makes the same calls in the same order. Rank numbers, also in errors, are numbers
in the group; `ranks` maps them to ranks of the world.

Example:
    >>> import pycollective as pc
    >>> group = pc.init()
    >>> group.rank, group.size
    (0, 1)
    >>> pc.shutdown()
)";

inline constexpr const char* kAllreduce =
    R"(Combine `x` of all ranks element by element; every rank gets the result.

Numbers, lists and dicts of numbers, and JAX arrays cannot be written. They stay unchanged and the
result is returned, so write `loss = pc.allreduce(loss, "avg")`. Other arrays are written in place.

Parameters:
    x: array of the same element count and dtype on every rank, in CPU memory or on a GPU
        (docs/gpu.md): NumPy, PyTorch, CuPy, JAX, Paddle, or anything with the buffer protocol or
        DLPack. Any shape, also 0-d or without elements.
    op: "sum" (also "add"), "prod", "min", "max", "avg" (also "mean"), bitwise "band", "bor",
        "bxor", logical "land", "lor", "lxor", "minloc" and "maxloc" of pairs (value, location)
        along a last axis of length 2, or scaled("sum", factor). docs/dtypes.md lists the operations
        of each dtype and their meaning. "avg" is for floating point and does not overflow; float16,
        bfloat16 and float8 are computed in float32; "min" and "max" propagate NaN.
    out: None: the result replaces `x`. An array of the same shape and dtype: it receives the result
        and `x` stays unchanged. It may be `x` itself; otherwise it must not overlap `x`.
    timeout: seconds, default that of init(). The error names what the call waited for.
    reproducible: None, "shape" or "world". "shape": the bits of an element depend only on the
        ranks' values for it, not on the array's size or the element's position. "world": `x` holds
        leaves x[0], x[1], ..., and the result is a new array of shape x.shape[1:] that combines all
        leaves; its bits do not depend on how the leaves are divided among the ranks (op sum, prod,
        min or max; no out).

Returns:
    `x`, or `out` if it was given. All ranks get the same bits.

A PyTorch tensor that is written counts as modified in place: its version counter is incremented. A
leaf that requires grad is written as under torch.no_grad(); any other tensor that requires grad is
refused.

Raises:
    InvalidArgument: `x` or `out` is invalid (layout, dtype, read-only, overlap); nothing was sent.
    CollectiveMismatch: the ranks made different calls.
    CollectiveTimeout, PeerFailure, Aborted: the call could not finish; the contents of the written
        array are unspecified.
    Unsupported: the array is in memory that cannot be accessed from here, or this build cannot
        handle its dtype or op.
    NotInitialized: there is no world.

Source: recursive doubling for small arrays, a ring of reduce-scatter and allgather for large ones
(Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH",
2005; Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009). `explain("allreduce",
nbytes=...)` shows which one is used.

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> pc.allreduce(np.array([1.0, 2.0]), "avg")
    array([1., 2.])
    >>> x = np.array([3, 4])
    >>> y = pc.allreduce(x, "max", out=np.empty_like(x))
    >>> y
    array([3, 4])
    >>> pc.shutdown()
)";

inline constexpr const char* kBroadcast = R"(Copy `x` of rank `root` to all ranks, in place.

Numbers, lists and dicts of numbers, and JAX arrays cannot be written. They stay unchanged and the
result is returned, so write `seed = pc.broadcast(seed)`. Other arrays are written in place.

Parameters:
    x: array of the same element count and dtype on every rank, in CPU memory or on a GPU. Written
        on every rank except the root, where it may be read-only.
    root: the rank with the array to copy.
    timeout: seconds, default that of init().

Returns:
    `x`.

Raises:
    As allreduce().

Source: binomial tree, cut into chunks for large arrays (Thakur, Rabenseifner and Gropp, 2005).

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> pc.broadcast(np.arange(3), root=0)
    array([0, 1, 2])
    >>> pc.shutdown()
)";

inline constexpr const char* kReduce =
    R"(Combine `x` of all ranks element by element; rank `root` gets the result, in place.

Numbers, lists and dicts of numbers, and JAX arrays cannot be written. They stay unchanged and the
result is returned, so write `loss = pc.reduce(loss)`. Other arrays are written in place.

Parameters:
    x: array of the same element count and dtype on every rank, in CPU memory or on a GPU. Written
        on the root only.
    op: as in allreduce().
    root: the rank that gets the result.
    timeout: seconds, default that of init().
    reproducible: None or "shape", as in allreduce().

Returns:
    `x`: the result on the root, untouched on every other rank.

Raises:
    As allreduce().

Source: binomial tree, cut into chunks for large arrays (Thakur, Rabenseifner and Gropp, 2005).

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> pc.reduce(np.array([2.0, 5.0]), "max", root=0)
    array([2., 5.])
    >>> pc.shutdown()
)";

inline constexpr const char* kBarrier = R"(Wait until every rank has called barrier().

Parameters:
    timeout: seconds, default that of init().

Raises:
    CollectiveMismatch, CollectiveTimeout, PeerFailure, Aborted, NotInitialized: as allreduce().

Source: dissemination barrier (Hensgen, Finkel and Manber, "Two algorithms for barrier
synchronization", 1988).

Example:
    >>> import pycollective as pc
    >>> _ = pc.init()
    >>> pc.barrier(timeout=10)
    >>> pc.shutdown()
)";

inline constexpr const char* kResync = R"(resync(*, timeout=None)
--

Bring all ranks back in step after an error that they did not all see in the same call.

Runs barriers until one succeeds. An allreduce or barrier that fails does so on every rank, and
needs no resync(). A rank that had already completed its part of a broadcast or reduce learns of a
mismatch later than the other ranks; resync(), called by all ranks, corrects that. Afterwards no
error of an earlier call is raised. An error that was not yet raised on this rank becomes a warning
on stderr.

Parameters:
    timeout: seconds for all of it, default that of init().

Raises:
    CollectiveTimeout: not all ranks called resync().
    PeerFailure: a rank died: the group cannot be used any more.

Example:
    >>> import pycollective as pc
    >>> _ = pc.init()
    >>> pc.resync(timeout=10)
    >>> pc.shutdown()
)";

inline constexpr const char* kGroupOf = R"(group(ranks, *, timeout=None)
--

Make a group of some of the ranks. Its members call this together.

Other ranks need not call it; they get None if they do.

Parameters:
    ranks: the members, as ranks of the group that this is called on (for pycollective.group: of the
        world), without repetition. Their order is the order in the new group. The same on every
        member.
    timeout: seconds to wait for the other members, default that of init().

Returns:
    The new group, or None on a rank that is not in it. It lives until close(), or until it is no
    longer referenced.

Raises:
    InvalidArgument: `ranks` is empty, repeats a rank, or names a rank that does not exist.
    CollectiveMismatch: members passed different lists.
    CollectiveTimeout, PeerFailure, NotInitialized: as allreduce().

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> first = pc.group([0])
    >>> if first is not None:
    ...     print(first.ranks, first.allreduce(np.array([2.0])))
    (0,) [2.]
    >>> pc.shutdown()
)";

inline constexpr const char* kSplit = R"(split(color, key=0, *, timeout=None)
--

Split the group: ranks with the same `color` form a new group. Every rank of the group calls it.

Parameters:
    color: an integer; None: this rank is in no new group. Or "host": the ranks of each host form a
        group.
    key: the new groups are ordered by this integer; ranks with equal keys keep their order.
    timeout: seconds to wait for the other ranks, default that of init().

Returns:
    This rank's new group, or None for color None. It lives until close(), or until it is no longer
    referenced. If the group is joined by NCCL, the new group is joined as well (docs/gpu.md).

Raises:
    As allreduce().

Source: MPI_Comm_split and MPI_Comm_split_type (MPI 4.1, section 7.4.2).

Example:
    >>> import pycollective as pc
    >>> world = pc.init()
    >>> even_or_odd = world.split(world.rank % 2)
    >>> even_or_odd.ranks[0] == world.rank % 2
    True
    >>> pc.shutdown()
)";

inline constexpr const char* kClose = R"(close()
--

Release this group's memory, connection state and place (one of 1,024) on this rank.

Each member closes the group separately, when it makes no more calls on it; nothing is sent, and no
rank waits. Other ranks may still be in calls that have ended here. Running calls of this rank, also
in the background, end with NotInitialized (on GPUs they continue), and so does every later call. A
second close() does nothing. A group is closed automatically when it is no longer referenced and
its calls have ended. A group that is joined on GPUs keeps its resources there until shutdown().

Raises:
    InvalidArgument: this is the world, which shutdown() ends.

Example:
    >>> import pycollective as pc
    >>> world = pc.init()
    >>> pair = world.split(0)
    >>> pair.barrier()
    >>> pair.close()
    >>> pair
    <pycollective.Group rank 0 of 1, closed>
    >>> pc.shutdown()
)";

// Not public; used by pycollective/runtime/groups.py and pycollective/calls.
inline constexpr const char* kJoinGpus =
    "_join_gpus(device, /)\n--\n\nJoins the ranks on their GPUs, as their first call on GPU arrays would.";
inline constexpr const char* kCanSplitGpus = "_can_split_gpus()\n--\n\nSee Devices::can_split().";
inline constexpr const char* kSplitGpus = "_split_gpus(child, timeout, /)\n--\n\nSee Devices::split().";
inline constexpr const char* kMake = "_make(id, world_ranks, /)\n--\n\nSee Runtime::make_group().";
inline constexpr const char* kReserveGroupIds =
    "_reserve_group_ids(count, /)\n--\n\nSee Runtime::reserve_group_ids().";
inline constexpr const char* kQuit = "_quit()\n--\n\nSee Communicator::quit().";
inline constexpr const char* kRun =
    "_run(collective, x, out, op, root, counts, recv_counts, timeout, fixed_order, /)\n--\n\n"
    "One call of the core, without packing.";
inline constexpr const char* kBegin =
    "_begin(collective, x, out, op, root, counts, recv_counts, timeout, fixed_order, /)\n--\n\n"
    "_run() in the background. Returns a Work.";
inline constexpr const char* kRunList =
    "_run_list(collective, blocks, writes, op, root, bundle, timeout, fixed_order, /)\n--\n\n"
    "One call of the core on a list of arrays, in place.";
inline constexpr const char* kBeginList =
    "_begin_list(collective, blocks, writes, op, root, bundle, timeout, fixed_order, result, /)\n--\n\n"
    "_run_list() in the background. Returns a Work with that result.";

inline constexpr const char* kExplain =
    R"(explain(collective, *, nbytes=0, root=0, rank=-1, model="", device="cpu")
--

Describe in words how a call of this group would run. pycollective.explain() documents the text.

Parameters:
    collective: "allreduce", "broadcast", "reduce", "barrier" or another method's name.
    nbytes: size of the whole array in bytes: allgather's result, reduce_scatter's argument.
    root: for broadcast, reduce, gather and scatter.
    rank: the rank with the steps to show; -1: this rank.
    model: the link that times are predicted for; "": "loopback" on one host, "ethernet_10g" between
        several.
    device: "cuda": describes the path of arrays on GPUs and why other paths are not used; all other
        parameters except collective are ignored.

Returns:
    Several lines of text for humans. The text may change with a release.

Raises:
    InvalidArgument: there is no such collective, root, rank, model or device.
    NotInitialized: there is no world.

Example:
    >>> import pycollective as pc
    >>> group = pc.init()
    >>> print(group.explain("allreduce", nbytes=1 << 20).splitlines()[0])
    allreduce of 1048576 bytes, 1 rank on 1 host
    >>> pc.shutdown()
)";

}  // namespace pc::docs
