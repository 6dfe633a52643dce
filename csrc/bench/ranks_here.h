// Starts the ranks of one world on this host, and waits for all of them.
#pragma once

#include <functional>

#include "bench/place.h"

namespace pc::bench {

// `run` is what each rank does, in a process of its own. Returns the exit code; what went wrong first stands last on
// standard error. To be called before there is any thread: fork copies only the caller.
int run_here(Rank count, const std::function<Status(const Place&)>& run);

// What the ranks of a world of this program's own prove themselves by.
Result<Credentials> new_job();

// Says on standard error what went wrong, and returns the exit code for that. As in Python, so that a launcher of ours that looks
// for the culprit knows who only reports another one's end.
int complain(const Status& status);
int exit_code(const Status& status);  // 77, as test drivers have it: this cannot be measured here

// Whether a rank that ends with this only reports another one's end.
bool is_consequence(const Status& status);

// Of two ends that are not well: a failure comes before what cannot be measured here, and that before a consequence.
bool is_rather_the_cause(const Status& status, const Status& other);

}  // namespace pc::bench
