// Reports ranks that ended before they joined a world. The launcher detects these ranks and informs
// the ranks that wait for them.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/types.h"
#include "store/store.h"
#include "wire/credentials.h"

namespace pc {

// For each of `ranks`, writes a report to `store` for the first worlds of the job, except the
// worlds that the rank has joined. `why` follows the rank's name in the text. Best effort: without
// a report the other ranks wait until their deadlines.
void report_ended(Store& store, const Credentials& credentials, const std::vector<Rank>& ranks,
                  const std::string& why, Deadline deadline);

}  // namespace pc
