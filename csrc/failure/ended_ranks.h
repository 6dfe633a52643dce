// Ranks that ended without having joined a world: the launcher detects this and reports it to the
// waiting ranks.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/types.h"
#include "store/store.h"
#include "wire/credentials.h"

namespace pc {

// Writes reports to `store` for the first worlds of the job of `credentials`; `why` follows the
// rank's name. Skips worlds that the rank has joined. Best effort: without a report the other ranks
// wait until their deadlines.
void report_ended(Store& store, const Credentials& credentials, const std::vector<Rank>& ranks,
                  const std::string& why, Deadline deadline);

}  // namespace pc
