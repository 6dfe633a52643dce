// Starts the ranks of one world on this host and waits for all of them.
#pragma once

#include <functional>

#include "bench/role.h"

namespace pc::bench {

// What each rank does.
using Run = std::function<Status(const Role&)>;

// Starts each rank as a process. Returns the exit code; the first failure is printed last on
// standard error. Call it before there is any other thread, because fork copies only the calling
// thread.
int launch_processes(Rank count, const Run& run);

// Starts each rank as a thread, so that all ranks share one NCCL and one driver. Works like
// launch_processes(), except that threads cannot be killed: the other ranks notice a rank's end by
// their connections to that rank.
int launch_threads(Rank count, const Run& run);

// Prints the error on standard error and returns its exit code. The code is 77, by the convention
// of test drivers, if the requested measurement is not possible here. The text has the format of
// the Python package, so that pycollective's launchers recognize a rank that only reports another
// rank's end, and find the cause.
int complain(const Status& status);

}  // namespace pc::bench
