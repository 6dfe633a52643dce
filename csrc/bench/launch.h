// Starts the ranks of one world on this host and waits for all of them.
#pragma once

#include <functional>

#include "bench/role.h"

namespace pc::bench {

// What each rank does.
using Run = std::function<Status(const Role&)>;

// Each rank is a process. Returns the exit code; the first failure is printed last on standard
// error. Call it before there is any other thread, because fork copies only the calling thread.
int launch_processes(Rank count, const Run& run);

// Each rank is a thread, so that all ranks share one NCCL and one driver. Works as
// launch_processes(), except that threads cannot be killed: the other ranks notice a rank's end by
// their connections to it.
int launch_threads(Rank count, const Run& run);

// Prints the error on standard error and returns its exit code: 77, the convention of test drivers,
// if this cannot be measured here. The format is that of the Python package, so that pycollective's
// launchers can find the cause: they recognize a rank that only reports another rank's end.
int complain(const Status& status);

}  // namespace pc::bench
