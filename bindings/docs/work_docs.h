// Docstrings of Work. The first line for a method is the signature that inspect.signature() reads.
// A test runs every example in a world of one rank.
#pragma once

namespace pc::docs {

inline constexpr const char* kWork = R"(A call that goes on in the background.

The calls with `_async` in their name return it. A thread of the core makes progress on the call,
and so does a thread that waits for it. The Work keeps its arrays until the call has ended. Until
then do not access an array that the call writes, nor change an array that it reads.

Calls on one group begin in the order in which they are made, blocking or not, and end in that
order; send and recv are ordered only within their (peer, tag). Dropping a Work does not stop
the call. If the call fails and its error was not retrieved, the next call on the group raises that
error, or shutdown() does.

For arrays on a GPU, wait() makes the GPU wait and wait(host=True) makes this thread wait:
docs/gpu.md.

In asyncio, `await work` is wait() without blocking the loop. Several threads can use a Work.

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

Return whether wait() would return or raise without waiting for other ranks.

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

Wait until the call has ended, and return what the blocking call would return.

It may be called again, and by several threads.

For arrays on a GPU the GPU waits: work that their library queues there from now on, in this thread,
runs after the call. wait() itself returns at once, or, for a call that is staged through the host,
when the other ranks have done their parts. A later error is raised by the next call, or by
wait(host=True).

Parameters:
    timeout: seconds to wait here. None: until the call has ended, which its own timeout bounds.
    host: wait in this thread even if the arrays are on a GPU.

Returns:
    The same object as the blocking call: the array that was written, or the argument.

Raises:
    CollectiveTimeout: `timeout` has passed. The call goes on and can be waited for again; done() is
        False. Or the call's own timeout has passed and the call has ended; done() is True.
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

Return what wait() without a timeout returns.

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

Return what is known about the call now.

Returns:
    A dict: "operation" (text), "state" ("running", "done" or "failed"), "rank" and "size" (of this
    process in the group, and of the group), "sequence" (the number among the group's collectives,
    from 1; None for send, recv and in a world of one), "nbytes" (of this rank's array), "elapsed_s"
    (seconds from its beginning to its end, or until now).

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

inline constexpr const char* kWaitOnly = R"(_wait_only()
--

Sleep until the call has ended, while the progress thread makes progress on it.)";

inline constexpr const char* kIsQueued = R"(_is_queued()
--

Return whether wait() returns at once.

It does if the call has ended, or is queued on the GPU, where later work can be queued after it.)";

inline constexpr const char* kWatch = R"(_watch(fd, /)
--

Write to the eventfd `fd` when the call has ended.

Returns False if it has already ended; then nothing is written.)";

inline constexpr const char* kUnwatch = R"(_unwatch(fd, /)
--

Undo _watch(): nothing is written to `fd` any more.)";

inline constexpr const char* kClassGetItem = "Work[A]: the Work of a call that returns an A.";

}  // namespace pc::docs
