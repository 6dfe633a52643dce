// Ranks that have ended without having joined a world: the launcher sees their ends and reports them to those that wait.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/types.h"
#include "store/store.h"
#include "wire/credentials.h"

namespace pc {

// In `store`, for the first worlds of the job of `credentials`; `why` follows the rank's name. Nothing about a world that the
// rank has joined. Best effort: without it the others wait until their deadlines.
void report_ended(Store& store, const Credentials& credentials, const std::vector<Rank>& ranks,
                  const std::string& why, Deadline deadline);

}  // namespace pc
