// Docstrings of Work. The first line of a method's is the signature that inspect.signature() reads.
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

}  // namespace pc::docs
