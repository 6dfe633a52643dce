// Docstrings of Work and of the calls that return one. The first line is the signature that inspect.signature() reads.
// Every example runs in a world of one; a test runs them all.
#pragma once

namespace pc::docs {

inline constexpr const char* kWork = R"(A call that goes on in the background.

The calls with `_async` in their name return it. A thread of the core drives the call, and whoever waits for it does so
himself. It holds its arrays until the call has ended: until then do not touch what is written, nor change what is read.

Calls on one group begin in the order in which they are made, blocking or not, and end in that order; send and recv
only in the order of their (peer, tag). Dropping a Work does not stop the call. If it fails and nobody has asked how it
ended, the next call on the group raises that error, or shutdown() does.

Of arrays on a GPU, wait() is for the GPU and wait(host=True) for this thread: docs/gpu.md.

In asyncio, `await work` is wait() without blocking the loop. Work can be used from several threads.

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> work = pc.allreduce_async(np.array([1.0, 2.0]))
    >>> work.wait()
    array([1., 2.])
    >>> pc.shutdown()
)";

inline constexpr const char* kDone = R"(done()
--

Whether wait() would return or raise without waiting for other ranks.

Raises:
    ForkedProcess: this process is a child of the one that made the call.

Example:
    >>> import pycollective as pc
    >>> _ = pc.init()
    >>> pc.barrier_async().done()
    True
    >>> pc.shutdown()
)";

inline constexpr const char* kWait = R"(wait(timeout=None, *, host=False)
--

Wait until the call has ended, and return what the blocking call would.

May be called again, and by several threads.

Of arrays on a GPU it is the GPU that waits: what their library queues there from now on, in this thread, comes after the
call, and wait() itself returns at once; of a call that goes through the host, when the other ranks have done their parts. What
goes wrong later is raised by the next call, or by wait(host=True).

Parameters:
    timeout: seconds to wait here. None: until the call has ended, which its own timeout bounds.
    host: wait in this thread also where the arrays lie on a GPU.

Returns:
    The same object as the blocking call: the array that was written, or that was given.

Raises:
    CollectiveTimeout: `timeout` has passed. The call goes on and can be waited for again; done() is False. Or the
        call's own timeout has passed, and it has ended; done() is True.
    KeyboardInterrupt: Ctrl-C while waiting. The call goes on.
    CollectiveError: any error that the blocking call raises.
    ForkedProcess: this process is a child of the one that made the call.

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> pc.allreduce_async(np.array([3, 4])).wait(timeout=5)
    array([3, 4])
    >>> pc.shutdown()
)";

inline constexpr const char* kResult = R"(result()
--

The same as wait() without a timeout.

Raises:
    As wait().

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> pc.broadcast_async(np.arange(3)).result()
    array([0, 1, 2])
    >>> pc.shutdown()
)";

inline constexpr const char* kException = R"(exception(timeout=None)
--

Wait until the call has ended, and return its error, or None if it has none.

Parameters:
    timeout: seconds to wait here, as in wait().

Returns:
    The exception that wait() raises, or None.

Raises:
    CollectiveTimeout, KeyboardInterrupt: the call has not ended and goes on, as in wait().
    ForkedProcess: this process is a child of the one that made the call.

Example:
    >>> import pycollective as pc
    >>> _ = pc.init()
    >>> print(pc.barrier_async().exception())
    None
    >>> pc.shutdown()
)";

inline constexpr const char* kInfo = R"(info()
--

What is known about the call now.

Returns:
    A dict: "operation" (text), "state" ("running", "done" or "failed"), "rank" and "size" (of this process in the
    group, and of the group), "sequence" (the number among the group's collectives, from 1; None for send, recv and in a
    world of one), "nbytes" (of this rank's array), "elapsed_s" (seconds from its beginning to its end, or until now).

Raises:
    ForkedProcess: this process is a child of the one that made the call.

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> info = pc.allreduce_async(np.zeros(4)).info()
    >>> info["operation"], info["state"], info["nbytes"]
    ('allreduce_async', 'done', 32)
    >>> pc.shutdown()
)";

inline constexpr const char* kLookOn = R"(_look_on()
--

Wait for the end asleep, while the progress thread drives the call.)";

inline constexpr const char* kIsQueued = R"(_is_queued()
--

Whether wait() returns at once: the call has ended, or it is on the GPU, where what comes next can be queued behind it.)";

inline constexpr const char* kWatch = R"(_watch(fd, /)
--

Have the eventfd `fd` written to when the call has ended. False: it has, and nothing will be written.)";

inline constexpr const char* kUnwatch = R"(_unwatch(fd, /)
--

Undo _watch(): nothing is written to `fd` any more.)";

inline constexpr const char* kClassGetItem = "Work[A]: of a call that returns an A.";

inline constexpr const char* kAllreduceAsync =
    R"(allreduce_async(x, op="sum", *, out=None, timeout=None, reproducible=None)
--

Begin allreduce(x, op, out=out) and return its Work at once.

Parameters:
    As allreduce(). The timeout counts from here. Arrays are held, and must not be touched, until the call has ended.

Returns:
    The Work, whose wait() returns what allreduce() does.

Raises:
    InvalidArgument, Unsupported, NotInitialized, ForkedProcess: as allreduce(), at once. All else is raised by wait().
    CollectiveMismatch and others: of an earlier call that went wrong and of which nobody has been told yet.

Source: allreduce().

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> work = pc.allreduce_async(np.array([1.0, 2.0]), "avg")
    >>> work.wait()
    array([1., 2.])
    >>> pc.shutdown()
)";

inline constexpr const char* kBroadcastAsync = R"(broadcast_async(x, root=0, *, timeout=None)
--

Begin broadcast(x, root) and return its Work at once.

Parameters:
    As broadcast(). The timeout counts from here. Arrays are held, and must not be touched, until the call has ended.

Returns:
    The Work, whose wait() returns what broadcast() does.

Raises:
    InvalidArgument, Unsupported, NotInitialized, ForkedProcess: as broadcast(), at once. All else is raised by wait().
    CollectiveMismatch and others: of an earlier call that went wrong and of which nobody has been told yet.

Source: broadcast().

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> work = pc.broadcast_async(np.arange(3))
    >>> work.wait()
    array([0, 1, 2])
    >>> pc.shutdown()
)";

inline constexpr const char* kReduceAsync =
    R"(reduce_async(x, op="sum", *, root=0, timeout=None, reproducible=None)
--

Begin reduce(x, op, root=root) and return its Work at once.

Parameters:
    As reduce(). The timeout counts from here. Arrays are held, and must not be touched, until the call has ended.

Returns:
    The Work, whose wait() returns what reduce() does.

Raises:
    InvalidArgument, Unsupported, NotInitialized, ForkedProcess: as reduce(), at once. All else is raised by wait().
    CollectiveMismatch and others: of an earlier call that went wrong and of which nobody has been told yet.

Source: reduce().

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> work = pc.reduce_async(np.array([1, 2]), "max")
    >>> work.wait()
    array([1, 2])
    >>> pc.shutdown()
)";

inline constexpr const char* kBarrierAsync = R"(barrier_async(*, timeout=None)
--

Begin barrier() and return its Work at once.

Parameters:
    As barrier(). The timeout counts from here. Other calls may be made meanwhile; they come after it.

Returns:
    The Work, whose wait() returns what barrier() does.

Raises:
    InvalidArgument, Unsupported, NotInitialized, ForkedProcess: as barrier(), at once. All else is raised by wait().
    CollectiveMismatch and others: of an earlier call that went wrong and of which nobody has been told yet.

Source: barrier().

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> work = pc.barrier_async()
    >>> work.wait()
    >>> pc.shutdown()
)";

inline constexpr const char* kSendAsync = R"(send_async(x, peer, *, tag=0, timeout=None)
--

Begin send(x, peer, tag=tag) and return its Work at once.

Messages are ordered only among those with the same peer, tag and direction: a send that was begun keeps nothing else
waiting, so `send_async(x, next); recv(y, previous)` on every rank of a ring is right.

Parameters:
    As send(). The timeout counts from here. `x` is held, and must not be written, until the call has ended.

Returns:
    The Work, whose wait() returns `x`.

Raises:
    InvalidArgument, Unsupported, NotInitialized, ForkedProcess: as send(), at once. All else is raised by wait().
    CollectiveMismatch and others: of an earlier call that went wrong and of which nobody has been told yet.

Source: send().

Example:
    >>> import numpy as np, pycollective as pc
    >>> world = pc.init()
    >>> if world.size > 1 and world.rank == 0:
    ...     _ = pc.send_async(np.arange(4), 1, tag=7).wait()
    >>> pc.shutdown()
)";

inline constexpr const char* kRecvAsync = R"(recv_async(x, peer, *, tag=0, timeout=None)
--

Begin recv(x, peer, tag=tag) and return its Work at once.

Messages are ordered only among those with the same peer, tag and direction: a send that was begun keeps nothing else
waiting, so `send_async(x, next); recv(y, previous)` on every rank of a ring is right.

Parameters:
    As recv(). The timeout counts from here. `x` is held, and must not be touched, until the call has ended.

Returns:
    The Work, whose wait() returns `x`.

Raises:
    InvalidArgument, Unsupported, NotInitialized, ForkedProcess: as recv(), at once. All else is raised by wait().
    CollectiveMismatch and others: of an earlier call that went wrong and of which nobody has been told yet.

Source: recv().

Example:
    >>> import numpy as np, pycollective as pc
    >>> world = pc.init()
    >>> if world.size > 1 and world.rank == 1:
    ...     _ = pc.recv_async(np.arange(4), 0, tag=7).wait()
    >>> pc.shutdown()
)";

inline constexpr const char* kAllgatherAsync =
    R"(allgather_async(x, *, out=None, counts=None, axis=0, timeout=None)
--

Begin allgather(x) and return its Work at once.

Parameters:
    As allgather(). The timeout counts from here. Arrays are held, and must not be touched, until the call has ended.
    Equal parts along axis 0 of arrays that lie in one block; Unsupported for others.

Returns:
    The Work, whose wait() returns what allgather() does.

Raises:
    InvalidArgument, Unsupported, NotInitialized, ForkedProcess: as allgather(), at once. All else is raised by wait().
    CollectiveMismatch and others: of an earlier call that went wrong and of which nobody has been told yet.

Source: allgather().

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> pc.allgather_async(np.ones(2)).wait().shape == (2 * pc.size(),)
    True
    >>> pc.shutdown()
)";

inline constexpr const char* kReduceScatterAsync =
    R"(reduce_scatter_async(x, op="sum", *, out=None, counts=None, axis=0, timeout=None, reproducible=None)
--

Begin reduce_scatter(x, op) and return its Work at once.

Parameters:
    As reduce_scatter(). The timeout counts from here. Arrays are held, and must not be touched, until the call has ended.
    Equal parts along axis 0 of arrays that lie in one block; Unsupported for others.

Returns:
    The Work, whose wait() returns what reduce_scatter() does.

Raises:
    InvalidArgument, Unsupported, NotInitialized, ForkedProcess: as reduce_scatter(), at once. All else is raised by wait().
    CollectiveMismatch and others: of an earlier call that went wrong and of which nobody has been told yet.

Source: reduce_scatter().

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> pc.reduce_scatter_async(np.ones(2 * pc.size())).wait().shape
    (2,)
    >>> pc.shutdown()
)";

inline constexpr const char* kAlltoallAsync =
    R"(alltoall_async(x, *, out=None, counts=None, recv_counts=None, axis=0, timeout=None)
--

Begin alltoall(x) and return its Work at once.

Parameters:
    As alltoall(). The timeout counts from here. Arrays are held, and must not be touched, until the call has ended.
    Equal parts along axis 0 of arrays that lie in one block; Unsupported for others.

Returns:
    The Work, whose wait() returns what alltoall() does.

Raises:
    InvalidArgument, Unsupported, NotInitialized, ForkedProcess: as alltoall(), at once. All else is raised by wait().
    CollectiveMismatch and others: of an earlier call that went wrong and of which nobody has been told yet.

Source: alltoall().

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> pc.alltoall_async(np.ones(pc.size())).wait().shape == (pc.size(),)
    True
    >>> pc.shutdown()
)";

inline constexpr const char* kGatherAsync =
    R"(gather_async(x, root=0, *, out=None, counts=None, axis=0, timeout=None)
--

Begin gather(x, root) and return its Work at once.

Parameters:
    As gather(). The timeout counts from here. Arrays are held, and must not be touched, until the call has ended.
    Equal parts along axis 0 of arrays that lie in one block; Unsupported for others.

Returns:
    The Work, whose wait() returns what gather() does.

Raises:
    InvalidArgument, Unsupported, NotInitialized, ForkedProcess: as gather(), at once. All else is raised by wait().
    CollectiveMismatch and others: of an earlier call that went wrong and of which nobody has been told yet.

Source: gather().

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> joined = pc.gather_async(np.ones(2)).wait()
    >>> pc.shutdown()
)";

inline constexpr const char* kScatterAsync =
    R"(scatter_async(x, root=0, *, out=None, counts=None, axis=0, timeout=None)
--

Begin scatter(x, root, out=out) and return its Work at once.

Parameters:
    As scatter(). The timeout counts from here. Arrays are held, and must not be touched, until the call has ended.
    Equal parts along axis 0 of arrays that lie in one block; Unsupported for others. out= must be given.

Returns:
    The Work, whose wait() returns what scatter() does.

Raises:
    InvalidArgument, Unsupported, NotInitialized, ForkedProcess: as scatter(), at once. All else is raised by wait().
    CollectiveMismatch and others: of an earlier call that went wrong and of which nobody has been told yet.

Source: scatter().

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> pc.scatter_async(np.ones(2 * pc.size()), out=np.zeros(2)).wait()
    array([1., 1.])
    >>> pc.shutdown()
)";

inline constexpr const char* kScanAsync =
    R"(scan_async(x, op="sum", *, out=None, timeout=None, reproducible=None)
--

Begin scan(x, op) and return its Work at once.

Parameters:
    As scan(). The timeout counts from here. Arrays are held, and must not be touched, until the call has ended.

Returns:
    The Work, whose wait() returns what scan() does.

Raises:
    InvalidArgument, Unsupported, NotInitialized, ForkedProcess: as scan(), at once. All else is raised by wait().
    CollectiveMismatch and others: of an earlier call that went wrong and of which nobody has been told yet.

Source: scan().

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> pc.scan_async(np.array([1])).wait().item() == pc.rank() + 1
    True
    >>> pc.shutdown()
)";

inline constexpr const char* kExscanAsync =
    R"(exscan_async(x, op="sum", *, out=None, timeout=None, reproducible=None)
--

Begin exscan(x, op) and return its Work at once.

Parameters:
    As exscan(). The timeout counts from here. Arrays are held, and must not be touched, until the call has ended.

Returns:
    The Work, whose wait() returns what exscan() does.

Raises:
    InvalidArgument, Unsupported, NotInitialized, ForkedProcess: as exscan(), at once. All else is raised by wait().
    CollectiveMismatch and others: of an earlier call that went wrong and of which nobody has been told yet.

Source: exscan().

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> ended = pc.exscan_async(np.array([1])).wait()
    >>> pc.shutdown()
)";

}  // namespace pc::docs
