// Docstrings of planned calls. group_docs.h says how they are used.
#pragma once

namespace pc::docs {

inline constexpr const char* kPlanAllreduce =
    R"(Prepare an allreduce() that is made again and again: all that can be found out about its arguments is found out now.

Makes no call and tells the other ranks nothing. `call = plan_allreduce(x)`, then `call()` wherever allreduce(x) would stand.
To the other ranks it is that call: they may plan theirs or not, and what allreduce() raises is raised by call(). It is
worth most for lists and dicts, whose every array is looked at in Python once instead of at every call.

Parameters:
    x: as in allreduce(): an array, a number, or a list, tuple or dict of arrays, also nested. The plan keeps it, and
        with it its memory; call() reads and writes the values that are there then.
    op, out, reproducible: as in allreduce(); `out` is kept as well.
    timeout: seconds that each call() may take, from its own beginning; default that of init().

Returns:
    a PlannedCall. Its call() returns what allreduce() would: `x`, `out`, or a new array.

The arrays must stay where they are, with their shapes and dtypes, and the lists and dicts must hold the same ones: this is
looked at before each call, and a change is refused, with nothing sent. An exporter of the buffer protocol, such as a
bytearray, cannot be resized while a plan has it. Arrays that allreduce() must copy (with gaps, or that cannot be written),
arrays on a GPU, numbers, and reproducible="world" are planned as well, and cost at each call() what they cost in
allreduce(). An object whose memory comes by __dlpack__, and which holds its own plan, is not found by the garbage
collector: drop the plan.

Raises:
    InvalidArgument: as allreduce(); from call() also that an argument has changed since it was planned.
    Unsupported: the array lies where calls cannot take it (docs/gpu.md), or its dtype or op cannot be handled by this build.
    NotInitialized: there is no world; from call() that its world was shut down.

Source: persistent collective operations, MPI: A Message-Passing Interface Standard, version 4.0 (2021), section 6.13. Unlike
MPI_Allreduce_init() this is local, and the ranks need not agree on who plans.

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
    R"(A call whose arguments have been looked at: `planned()` makes it, as often as it is called.

plan_allreduce() returns it. It keeps its arrays alive, and belongs to a group: when that group's world is shut down, so is
it. Calls of one plan come one after the other, like all calls on a group; call() blocks until its result is there.

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> x = np.ones(2)
    >>> total = pc.plan_allreduce(x)
    >>> total() is x
    True
    >>> pc.shutdown()
)";

inline constexpr const char* kPlannedMake = "__call__()\n--\n\nMakes the call, and returns what it returns.";
inline constexpr const char* kPlannedClassGetItem = "PlannedCall[A]: of a call that returns an A.";

// Not public: what pycollective/calls/packing.py uses.
inline constexpr const char* kPlanLists =
    "_plan_lists(calls, x, words, /)\n--\n\n"
    "A PlannedCall of _run_list() for each tuple of arguments, which returns `x`.";
inline constexpr const char* kPlanStaged =
    "_plan_staged(call, x, /)\n--\n\nA PlannedCall that calls `call`, if `x` holds what it held.";

}  // namespace pc::docs
