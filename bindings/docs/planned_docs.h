// Docstrings of planned calls, in the form that group_docs.h describes.
#pragma once

namespace pc::docs {

inline constexpr const char* kPlanAllreduce =
    R"(Prepare an allreduce() that is made repeatedly: its arguments are checked once, now.

Makes no call and sends nothing. Write `call = plan_allreduce(x)`, then `call()` in place of
allreduce(x). For the other ranks it is that call: they may plan theirs or not, and call() raises
what allreduce() raises. It saves most for lists and dicts, because Python checks their arrays once
instead of at every call.

Parameters:
    x: as in allreduce(): an array, a number, or a list, tuple or dict of arrays, also nested. The
        plan keeps it and its memory alive; each call() reads and writes its current values.
    op, out, reproducible: as in allreduce(); `out` is kept alive as well.
    timeout: seconds for each call(), from its beginning; default that of init().

Returns:
    A PlannedCall. Its call() returns what allreduce() would: `x`, `out`, or a new array.

The arrays must keep their memory, shapes and dtypes, and the lists and dicts must hold the same
arrays. This is checked before each call, and a change is refused before anything is sent. An
exporter of the buffer protocol, such as a bytearray, cannot be resized while a plan holds it.
Arrays that allreduce() must copy (with gaps, or that cannot be written), arrays on a GPU, numbers,
and reproducible="world" can be planned as well, and cost at each call() what they cost in
allreduce(). The garbage collector does not find an object that exports its memory by __dlpack__ and
holds its own plan: drop the plan.

Raises:
    InvalidArgument: as allreduce(); from call() also if an argument has changed since it was
        planned.
    Unsupported: calls cannot take an array in that memory (docs/gpu.md), or this build cannot
        handle its dtype or op.
    NotInitialized: there is no world; from call(): its world was shut down.

Source: persistent collective operations, MPI: A Message-Passing Interface Standard, version 4.0
(2021), section 6.13. Unlike MPI_Allreduce_init() this is local, and the ranks need not agree on
which of them plan.

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> gradients = [np.ones(3), np.ones((2, 2))]
    >>> average = pc.plan_allreduce(gradients, "avg")
    >>> for step in range(3):
    ...     gradients[0][:] = step
    ...     _ = average()
    >>> gradients[0]
    array([2., 2., 2.])
    >>> pc.shutdown()
)";

inline constexpr const char* kPlannedCall =
    R"(A call with checked arguments: `planned()` makes it, any number of times.

plan_allreduce() returns it. It keeps its arrays alive. It belongs to a group, and cannot be used
after that group's world was shut down. Calls of one plan run one after the other, like all calls on
a group; call() blocks until its result is available.

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> x = np.ones(2)
    >>> total = pc.plan_allreduce(x)
    >>> total() is x
    True
    >>> pc.shutdown()
)";

inline constexpr const char* kPlannedMake = "__call__()\n--\n\nMakes the call and returns its result.";
inline constexpr const char* kPlannedClassGetItem = "PlannedCall[A]: a PlannedCall that returns an A.";

// Not public; used by pycollective/calls/packing.py.
inline constexpr const char* kPlanLists =
    "_plan_lists(calls, x, words, /)\n--\n\n"
    "A PlannedCall of _run_list() for each tuple of arguments, which returns `x`.";
inline constexpr const char* kPlanStaged =
    "_plan_staged(call, x, /)\n--\n\nA PlannedCall that calls `call` if `x` still holds the same objects.";

}  // namespace pc::docs
