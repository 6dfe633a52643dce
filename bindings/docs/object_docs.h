// Docstrings of the calls on objects, in the form that group_docs.h describes. A test runs every
// example in a world of one rank.
#pragma once

namespace pc::docs {

inline constexpr const char* kBroadcastObject =
    R"(broadcast_object(obj, root=0, *, allow_pickle=False, max_nbytes=None, timeout=None)
--

Give every rank the object of rank `root`.

For configurations, file names and small states: the object is encoded and copied. broadcast() is
faster for large arrays.

Parameters:
    obj: the root's object; ignored on other ranks, which may pass None. None, bool, int, float,
        complex, str, bytes, bytearray, datetime, date, timedelta, NumPy arrays and scalars (of any
        shape, also ml_dtypes', not of objects), torch CPU tensors, and lists, tuples, sets,
        frozensets and dicts of these, 64 deep at most.
    root: the rank with the object to copy.
    allow_pickle: on the root: pickle what cannot be encoded. On other ranks: unpickle it, which can
        run arbitrary code of the sender. Without it nothing is ever unpickled.
    max_nbytes: the most bytes that this rank encodes or accepts in this call; default 1 GiB.
    timeout: seconds for the whole call, default that of init() for each of its messages.

Returns:
    `obj` itself on the root, a copy elsewhere. The arrays and tensors of one copy are views of one
    block of memory.

Raises:
    InvalidArgument: on the root: `obj` cannot be encoded; the message names the part.
    Aborted: on other ranks: the root could not encode it.
    CollectiveMismatch: the received data is a pickle and this rank does not allow it, or is larger
        than its max_nbytes, or is no object; or the ranks made different calls.
    Unsupported: the library of an array in the object cannot be imported here.
    CollectiveTimeout, PeerFailure, NotInitialized: as broadcast().

After the first four all ranks are in step and the group can still be used.

Source: broadcast() of a header that contains a small object, and a second broadcast() for a larger
one.

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
    allow_pickle: pickle what cannot be encoded, and unpickle received pickles, which can run
        arbitrary code of the sender.
    max_nbytes: the most bytes of this rank's object, and of all other objects together; default 1
        GiB.
    timeout: seconds for the whole call, default that of init() for each of its messages.

Returns:
    A list in the order of ranks: `obj` itself at this rank's place, copies at all other places.

Raises:
    As broadcast_object(): if a rank cannot encode its object it raises InvalidArgument, and all
    other ranks raise Aborted, which names that rank.

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
    allow_pickle: pickle what cannot be encoded; on the root, unpickle received pickles, which can
        run arbitrary code of the sender.
    max_nbytes: the most bytes of this rank's object, and on the root of all other objects together;
        default 1 GiB.
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
    objs: on the root a list or tuple with one object for each rank, each as in broadcast_object().
        Ignored on other ranks, which may pass None.
    root: the rank with the objects.
    allow_pickle: as in broadcast_object().
    max_nbytes: the most bytes of one object; default 1 GiB.
    timeout: seconds for the whole call, default that of init() for each of its messages.

Returns:
    This rank's object: on the root `objs[root]` itself, on other ranks a copy.

Raises:
    As broadcast_object(). InvalidArgument on the root, and Aborted on other ranks, also if the
    length of `objs` is not the group's size.

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
    peer: a rank. For this rank itself an object of up to 64 KiB is kept until recv_object() takes
        it; a larger one waits for a recv_object() in another thread.
    tag: 0 to 4294967295; recv_object() with the same tag receives the object.
    allow_pickle: pickle what cannot be encoded. The receiver must allow it too.
    max_nbytes: the most bytes that are sent; default 1 GiB.
    timeout: seconds for the whole call, default that of init() for each of its messages.

Raises:
    InvalidArgument: `obj` cannot be encoded, or there is no such rank; nothing was sent.
    CollectiveMismatch, CollectiveTimeout, PeerFailure, NotInitialized: as send().

Source: send() of a header that contains a small object, and a second send() for a larger one.

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
    peer: a rank, also this one.
    tag: 0 to 4294967295.
    allow_pickle: unpickle a received pickle, which can run arbitrary code of the sender.
    max_nbytes: the most bytes that are accepted; default 1 GiB. A larger object is received and
        discarded.
    timeout: seconds for the whole call, default that of init() for each of its messages.

Returns:
    A copy. Its arrays and tensors are views of one block of memory.

Raises:
    CollectiveMismatch: the received data is a pickle and this call does not allow it, or is larger
        than max_nbytes, or is no object.
    Aborted: the sender was interrupted after it had announced the object, and has sent another
        object since.
    Unsupported: the library of an array in the object cannot be imported here.
    InvalidArgument, CollectiveTimeout, PeerFailure, NotInitialized: as recv().

Example:
    >>> import pycollective as pc
    >>> world = pc.init()
    >>> if world.size > 1 and world.rank == 1:
    ...     state = pc.recv_object(0, tag=7)
    >>> pc.shutdown()
)";

}  // namespace pc::docs
