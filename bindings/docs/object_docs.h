// Docstrings of the calls on objects, as group_docs.h has them for arrays. Every example runs in a world of one.
#pragma once

namespace pc::docs {

inline constexpr const char* kBroadcastObject =
    R"(broadcast_object(obj, root=0, *, allow_pickle=False, max_nbytes=None, timeout=None)
--

Give every rank the object of rank `root`.

For configurations, file names, small states: the object is encoded and copied. Large arrays go faster with broadcast().

Parameters:
    obj: the root's object; any on other ranks, None for example. None, bool, int, float, complex, str, bytes, bytearray,
        datetime, date, timedelta, NumPy arrays and scalars (of any shape, also ml_dtypes', not of objects), torch CPU
        tensors, and lists, tuples, sets, frozensets and dicts of these, 64 deep at most.
    root: the rank whose object it is.
    allow_pickle: on the root: pickle what cannot be encoded. On the others: unpickle it, which runs whatever code its
        sender wants. Without it nothing is ever unpickled.
    max_nbytes: the most bytes that this rank encodes, and takes, in this call; default 1 GiB.
    timeout: seconds for the whole call, default that of init() for each of its messages.

Returns:
    `obj` itself on the root, a copy elsewhere. The arrays and tensors of one copy are views of one block of memory.

Raises:
    InvalidArgument: on the root: `obj` cannot be encoded; the message says which part.
    Aborted: on the others: the root could not encode it.
    CollectiveMismatch: what came is a pickle and this rank does not allow it, or larger than its max_nbytes, or no
        object; or the ranks made different calls.
    Unsupported: an array came whose library cannot be imported here.
    CollectiveTimeout, PeerFailure, NotInitialized: as broadcast().

After the first four all ranks are in step and the group goes on.

Source: broadcast() of a header that holds a small object whole, and of what is larger in a second one.

Example:
    >>> import pycollective as pc
    >>> _ = pc.init()
    >>> pc.broadcast_object({"lr": 0.1, "layers": (3, 4)}, root=0)
    {'lr': 0.1, 'layers': (3, 4)}
    >>> pc.shutdown()
)";

inline constexpr const char* kAllgatherObject =
    R"(allgather_object(obj, *, allow_pickle=False, max_nbytes=None, timeout=None)
--

Give every rank the objects of all ranks.

Parameters:
    obj: as in broadcast_object(). Objects may differ in type and size from rank to rank.
    allow_pickle: pickle what cannot be encoded, and unpickle what comes so, which runs whatever code its sender wants.
    max_nbytes: the most bytes of this rank's object, and of all others' together; default 1 GiB.
    timeout: seconds for the whole call, default that of init() for each of its messages.

Returns:
    A list in the order of ranks: `obj` itself at this rank's place, copies at the others'.

Raises:
    As broadcast_object(): if one rank cannot encode its object it raises InvalidArgument, and all others Aborted, which
    names it.

Source: allgather() of all headers; a broadcast() for each object that is larger than a header.

Example:
    >>> import pycollective as pc
    >>> _ = pc.init()
    >>> pc.allgather_object({"rank": pc.rank()})
    [{'rank': 0}]
    >>> pc.shutdown()
)";

inline constexpr const char* kGatherObject =
    R"(gather_object(obj, root=0, *, allow_pickle=False, max_nbytes=None, timeout=None)
--

Give rank `root` the objects of all ranks.

Parameters:
    obj: as in broadcast_object(). Objects may differ in type and size from rank to rank.
    root: the rank that gets them.
    allow_pickle: pickle what cannot be encoded; on the root, unpickle what comes so, which runs whatever code its sender
        wants.
    max_nbytes: the most bytes of this rank's object, and on the root of all others' together; default 1 GiB.
    timeout: seconds for the whole call, default that of init() for each of its messages.

Returns:
    On the root a list in the order of ranks, `obj` itself at its own place; None elsewhere.

Raises:
    As allgather_object().

Source: allgather() of all headers; a message to the root for each object that is larger.

Example:
    >>> import pycollective as pc
    >>> _ = pc.init()
    >>> pc.gather_object(("loss", 0.5), root=0)
    [('loss', 0.5)]
    >>> pc.shutdown()
)";

inline constexpr const char* kScatterObject =
    R"(scatter_object(objs, root=0, *, allow_pickle=False, max_nbytes=None, timeout=None)
--

Give every rank its own of the objects of rank `root`.

Parameters:
    objs: on the root a list or tuple with one object for each rank, each as in broadcast_object(). Not looked at
        elsewhere: None, for example.
    root: the rank whose objects they are.
    allow_pickle: as in broadcast_object().
    max_nbytes: the most bytes of one object; default 1 GiB.
    timeout: seconds for the whole call, default that of init() for each of its messages.

Returns:
    This rank's object: on the root `objs[root]` itself, a copy elsewhere.

Raises:
    As broadcast_object(). InvalidArgument on the root, and Aborted elsewhere, also if `objs` is not as long as the
    group is large.

Source: scatter() of all headers; a message to its rank for each object that is larger.

Example:
    >>> import pycollective as pc
    >>> _ = pc.init()
    >>> pc.scatter_object([{"shard": n} for n in range(pc.size())], root=0)
    {'shard': 0}
    >>> pc.shutdown()
)";

inline constexpr const char* kSendObject =
    R"(send_object(obj, peer, *, tag=0, allow_pickle=False, max_nbytes=None, timeout=None)
--

Send an object to rank `peer`, which calls recv_object().

Parameters:
    obj: as in broadcast_object().
    peer: a rank. For this rank itself an object of up to 64 KiB is kept until recv_object() takes it; a larger one waits
        for a recv_object() in another thread.
    tag: 0 to 4294967295; recv_object() with the same tag gets it.
    allow_pickle: pickle what cannot be encoded. The receiver must allow it too.
    max_nbytes: the most bytes that are sent; default 1 GiB.
    timeout: seconds for the whole call, default that of init() for each of its messages.

Raises:
    InvalidArgument: `obj` cannot be encoded, or there is no such rank; nothing was sent.
    CollectiveMismatch, CollectiveTimeout, PeerFailure, NotInitialized: as send().

Source: send() of a header that holds a small object whole, and of what is larger in a second one.

Example:
    >>> import pycollective as pc
    >>> world = pc.init()
    >>> if world.size > 1 and world.rank == 0:
    ...     pc.send_object({"step": 3}, 1, tag=7)
    >>> pc.shutdown()
)";

inline constexpr const char* kRecvObject =
    R"(recv_object(peer, *, tag=0, allow_pickle=False, max_nbytes=None, timeout=None)
--

Receive the object that rank `peer` sends with send_object() and the same tag.

Parameters:
    peer: a rank, this one too.
    tag: 0 to 4294967295.
    allow_pickle: unpickle what comes as a pickle, which runs whatever code its sender wants.
    max_nbytes: the most bytes that are taken; default 1 GiB. What is larger is received and thrown away.
    timeout: seconds for the whole call, default that of init() for each of its messages.

Returns:
    A copy. Its arrays and tensors are views of one block of memory.

Raises:
    CollectiveMismatch: what came is a pickle and this call does not allow it, or larger than max_nbytes, or no object.
    Aborted: the sender was interrupted after it had announced the object, and has sent another one since.
    Unsupported: an array came whose library cannot be imported here.
    InvalidArgument, CollectiveTimeout, PeerFailure, NotInitialized: as recv().

Example:
    >>> import pycollective as pc
    >>> world = pc.init()
    >>> if world.size > 1 and world.rank == 1:
    ...     state = pc.recv_object(0, tag=7)
    >>> pc.shutdown()
)";

}  // namespace pc::docs
