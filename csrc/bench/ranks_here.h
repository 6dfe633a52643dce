// Starts the ranks of one world on this host, and waits for all of them.
#pragma once

#include <functional>

#include "bench/place.h"

namespace pc::bench {

// `run` is what each rank does, in a process of its own. Returns the exit code; what went wrong first stands last on
// standard error. To be called before there is any thread: fork copies only the caller.
int run_here(Rank count, const std::function<Status(const Place&)>& run);

// Whether a rank that ends with this only reports another one's end.
bool is_consequence(const Status& status);

}  // namespace pc::bench
