// Docstrings of scan, exscan and the calls on arrays of which every rank has a part; see
// group_docs.h.
#pragma once

namespace pc::docs {

inline constexpr const char* kAllgather =
    R"(Join the arrays of all ranks, in rank order; every rank gets the result.

Parameters:
    x: array of the same shape and dtype on every rank; with `counts` the length along `axis` may
        differ. Only read.
    out: None: a new array of x's library. Else an array for the result, which `x` must not overlap,
        unless it is this rank's own part of it.
    counts: None: all parts have the same size; different sizes are a CollectiveMismatch. A list:
        the length of each rank's part along `axis`, the same list on every rank. "auto": the ranks
        exchange the lengths first (an additional small message).
    axis: the axis along which the parts are joined.
    timeout: seconds, default that of init().

Returns:
    An array of x's shape, but along `axis` as long as all parts together. For numbers and 0-d
    arrays a vector.

Raises:
    As allreduce().

Source: Bruck's algorithm for small parts, a ring for large ones (Bruck et al., 1997; Patarasuk and
Yuan, 2009). The semantics are those of torch.distributed.all_gather_into_tensor, and with counts
those of MPI_Allgatherv.

Example:
    >>> import numpy as np, pycollective as pc
    >>> group = pc.init()
    >>> pc.allgather(np.array([[1, 2]])).shape == (group.size, 2)
    True
    >>> pc.shutdown()
)";

inline constexpr const char* kReduceScatter =
    R"(Combine `x` of all ranks element by element; every rank gets its own part of the result.

Parameters:
    x: array of the same shape and dtype on every rank. Only read.
    op: "sum", "prod", "min", "max" or "avg", as in allreduce().
    out: None: a new array of x's library. Else an array for this rank's part, which must not
        overlap `x`, unless it is this rank's own part of it.
    counts: None: `x` is divided into equal parts along `axis`. A list: the length of each rank's
        part, the same list on every rank. "auto": parts that are as equal as possible, the first
        ones longer by one.
    axis: the axis along which `x` is divided.
    timeout: seconds, default that of init().
    reproducible: None or "shape", as in allreduce(), with the same bits as there.

Returns:
    This rank's part.

Raises:
    As allreduce(). InvalidArgument also if `x` cannot be divided into equal parts and counts is
    None.

Source: pairwise exchange (Thakur, Rabenseifner and Gropp, 2005), over many hosts a ring (Patarasuk
and Yuan, 2009). The semantics are those of torch.distributed.reduce_scatter_tensor, and with counts
those of MPI_Reduce_scatter.

Example:
    >>> import numpy as np, pycollective as pc
    >>> group = pc.init()
    >>> pc.reduce_scatter(np.ones((2 * group.size, 3))).shape
    (2, 3)
    >>> pc.shutdown()
)";

inline constexpr const char* kAlltoall =
    R"(Send the j-th part of `x` to rank j, and join what comes from all ranks, in rank order.

Parameters:
    x: array of the same shape and dtype on every rank; with `counts` the length along `axis` may
        differ. Only read.
    out: None: a new array of x's library. Else an array for the result; if it is `x` itself, a copy
        of x is sent.
    counts: None: `x` is divided into equal parts along `axis`. A list: the length of the part for
        each rank.
    recv_counts: the length of the part from each rank, if it is known. None: if counts are given,
        the ranks exchange the lengths first (an additional small message).
    axis: the axis along which `x` is divided and the result is joined.
    timeout: seconds, default that of init().

Returns:
    An array of x's shape, but along `axis` as long as all received parts together.

Raises:
    As allreduce(). CollectiveMismatch also if a rank sends another length than its peer expects.

Source: pairwise exchange, for small parts on many ranks Bruck's algorithm (Thakur, Rabenseifner and
Gropp, 2005; Bruck et al., 1997). The semantics are those of torch.distributed.all_to_all_single,
and with counts those of MPI_Alltoallv.

Example:
    >>> import numpy as np, pycollective as pc
    >>> group = pc.init()
    >>> x = np.full(group.size, group.rank)
    >>> pc.alltoall(x).tolist() == list(range(group.size))
    True
    >>> pc.shutdown()
)";

inline constexpr const char* kGather = R"(Join the arrays of all ranks, in rank order, on rank `root`.

Parameters:
    x: array of the same shape and dtype on every rank; with `counts` the length along `axis` may
        differ. Only read.
    root: the rank that gets the result.
    out: used on the root only. None: a new array of x's library. Else an array for the result, as
        in allgather().
    counts: as in allgather().
    axis: the axis along which the parts are joined.
    timeout: seconds, default that of init().

Returns:
    The joined array on the root, None on every other rank.

Raises:
    As allreduce().

Source: for small parts on many ranks a binomial tree (Thakur, Rabenseifner and Gropp, 2005). The
semantics are those of MPI_Gather, and with counts those of MPI_Gatherv.

Example:
    >>> import numpy as np, pycollective as pc
    >>> group = pc.init()
    >>> joined = pc.gather(np.array([group.rank]), root=0)
    >>> joined is None or joined.tolist() == list(range(group.size))
    True
    >>> pc.shutdown()
)";

inline constexpr const char* kScatter = R"(Cut `x` of rank `root` into parts; every rank gets its own.

Parameters:
    x: array, on the root; ignored on other ranks, which may pass None. Only read.
    root: the rank with the array to divide.
    out: an array for this rank's part. Give it on every rank or on none. Without it dtype and shape
        are sent first in a separate message, and the result is a new array of the library of the
        root's x.
    counts: None: `x` is divided into equal parts along `axis`. A list: the length of each rank's
        part. "auto": parts that are as equal as possible, the first ones longer by one. The list is
        needed on every rank with out=, otherwise only on the root.
    axis: the axis along which `x` is divided.
    timeout: seconds, default that of init().

Returns:
    This rank's part.

Raises:
    As allreduce(). CollectiveMismatch also if only some ranks give out=.

Source: for small parts on many ranks a binomial tree (Thakur, Rabenseifner and Gropp, 2005). The
semantics are those of MPI_Scatter, and with counts those of MPI_Scatterv.

Example:
    >>> import numpy as np, pycollective as pc
    >>> group = pc.init()
    >>> x = np.arange(3 * group.size) if group.rank == 0 else None
    >>> pc.scatter(x, root=0).shape
    (3,)
    >>> pc.shutdown()
)";

inline constexpr const char* kScan =
    R"(Combine `x` of the ranks up to this one, itself included, element by element.

A number, a list of numbers and a JAX array cannot be written. They stay unchanged and the result is
returned, so write `count = pc.scan(count)`. Other arrays are written in place.

Parameters:
    x: array of the same element count and dtype on every rank.
    op: "sum", "prod", "min" or "max", as in allreduce(). There is no "avg".
    out: as in allreduce().
    timeout: seconds, default that of init().
    reproducible: None or "shape", as in allreduce().

Returns:
    `x`, or `out` if it was given: on rank r the combination of ranks 0 to r.

Raises:
    As allreduce().

Source: recursive doubling for small arrays (Hillis and Steele, 1986), a pipelined chain for large
ones. The semantics are those of MPI_Scan.

Example:
    >>> import numpy as np, pycollective as pc
    >>> group = pc.init()
    >>> pc.scan(np.array([1])).item() == group.rank + 1
    True
    >>> pc.shutdown()
)";

inline constexpr const char* kExscan = R"(Combine `x` of the ranks before this one, element by element.

A number, a list of numbers and a JAX array cannot be written. They stay unchanged and the result is
returned, so write `start = pc.exscan(count)`. Other arrays are written in place.

Parameters:
    x, op, out, timeout, reproducible: as in scan().

Returns:
    `x`, or `out` if it was given: on rank r the combination of ranks 0 to r - 1. On rank 0, which
    has no rank before it, it is unchanged.

Raises:
    As allreduce().

Source: as scan(). The semantics are those of MPI_Exscan, which leaves the result on rank 0
undefined.

Example:
    >>> import numpy as np, pycollective as pc
    >>> group = pc.init()
    >>> offset = pc.exscan(np.array([10]), out=np.zeros(1, int))  # where this rank's ten elements begin
    >>> offset.item() == 10 * group.rank
    True
    >>> pc.shutdown()
)";

}  // namespace pc::docs
