// Docstrings of messages between two ranks. tests/python/project/test_docs.py runs the examples.
#pragma once

namespace pc::docs {

inline constexpr const char* kSend = R"(Send `x` to rank `peer`, which calls recv().

Returns when `x` may be written again. Messages of one (peer, tag) arrive in the order in which they
were sent; other tags do not wait for them. A message includes dtype and shape, so the receiver need
not know them.

Parameters:
    x: array, in CPU memory or on a GPU. Only read. A list, tuple or dict of arrays: one message per
        dtype.
    peer: a rank. A message to this rank itself is kept until recv() takes it if it has up to 64
        KiB; a larger one waits for recv(), as for any other peer.
    tag: 0 to 4294967295; recv() with the same tag receives the message.
    timeout: seconds, default that of init().

Returns:
    `x`.

Raises:
    InvalidArgument: `x` cannot be sent, or there is no such rank; nothing was sent.
    CollectiveMismatch: the receiver expects another count or dtype.
    CollectiveTimeout, PeerFailure, Aborted, Unsupported, NotInitialized: as allreduce().

Example:
    >>> import numpy as np, pycollective as pc
    >>> world = pc.init()
    >>> if world.size > 1 and world.rank == 0:
    ...     _ = pc.send(np.arange(4), 1, tag=7)
    >>> pc.shutdown()
)";

inline constexpr const char* kRecv =
    R"(Receive what rank `peer` sends with the same tag: into `x`, or as a new array.

A number, a list of numbers and a JAX array cannot be written. They stay unchanged and the result is
returned, so write `loss = pc.recv(loss, 0)`. Other arrays are written in place.

Parameters:
    x: writable array of the sender's element count and dtype, in CPU memory or on a GPU; its shape
        may be another. None: any message is received, and a new NumPy array of the sender's dtype
        and shape is returned.
    peer: a rank, also this one. ANY_SOURCE: the rank that sends first; no sender is skipped for
        ever.
    tag: 0 to 4294967295.
    timeout: seconds, default that of init().
    with_source: return (array, rank of the sender).

Returns:
    `x`, or the new array; with `with_source`, a tuple of it and the sender's rank in the group.

Raises:
    Unsupported: `x` is None, and NumPy here has no dtype for the message (ml_dtypes is not
        installed). The message stays available: receive it into an array of another library.
    Else as send(). A message that does not fit `x` is lost, and both sides get an error.

Example:
    >>> import numpy as np, pycollective as pc
    >>> world = pc.init()
    >>> if world.size > 1 and world.rank == 1:
    ...     x = pc.recv(np.empty(4, dtype=int), 0, tag=7)
    ...     y, source = pc.recv(None, pc.ANY_SOURCE, with_source=True)
    >>> pc.shutdown()
)";

inline constexpr const char* kSendrecv =
    R"(Send `x` to `dest` and receive from `source` at the same time, as in a ring.

Parameters:
    x: array, in CPU memory or on a GPU. Only read.
    dest: the rank that receives `x`. It may be this rank only if `source` is this rank as well.
    source: the rank to receive from; default `dest`.
    out: array that is written; it must not share memory with `x`. None: a new array of the shape
        and dtype of `x`.
    tag: 0 to 4294967295, of both messages.
    timeout: seconds, default that of init().

Returns:
    `out`, or the new array.

Raises:
    As send() and recv(): the first error of the two. Both have ended then.

Source: MPI_Sendrecv, MPI 4.1, section 3.10.

Example:
    >>> import numpy as np, pycollective as pc
    >>> world = pc.init()
    >>> left, right = (world.rank - 1) % world.size, (world.rank + 1) % world.size
    >>> pc.sendrecv(np.array([world.rank]), right, left) == left
    array([ True])
    >>> pc.shutdown()
)";

inline constexpr const char* kFind = "_find(peer, tag, timeout, /)\n--\n\n";
inline constexpr const char* kReceive = "_receive(x, token, bundle, /)\n--\n\n";
inline constexpr const char* kSendAsItIs = "_send(x, peer, tag, timeout, bundle, /)\n--\n\n";
inline constexpr const char* kRecvAsItIs = "_recv(x, peer, tag, timeout, bundle, /)\n--\n\n";

}  // namespace pc::docs
