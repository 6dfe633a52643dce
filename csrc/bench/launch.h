// Starts the ranks of one world on this host, and waits for all of them.
#pragma once

#include <functional>

#include "bench/role.h"

namespace pc::bench {

// What each rank does.
using Run = std::function<Status(const Role&)>;

// Each rank is a process. Returns the exit code; what went wrong first stands last on standard error. To be called before there
// is any thread: fork copies only the caller.
int launch_processes(Rank count, const Run& run);

// Each rank is a thread: one NCCL and one driver for all of them. Likewise, but for what no thread can do: nothing ends the
// others, which hear of a rank's end by their connections to it.
int launch_threads(Rank count, const Run& run);

// Says on standard error what went wrong, and returns the exit code for that: 77, as test drivers have it, if this cannot be
// measured here. As in Python, so that a launcher of ours that looks for the culprit knows which rank only reports another one's
// end.
int complain(const Status& status);

}  // namespace pc::bench
