// A store on another host or process, over TCP.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/store.h"
#include "wire/frame.h"

namespace pc {

// Tries the addresses in turn, again and again, until one answers as the store of this job or the deadline passes. The
// error says what was tried, how often, and what came of it. `interrupted` (Ctrl-C) is asked about every 50 ms, in this
// and in every later wait. Calls of several threads do not wait for each other: each uses a connection of its own.
Result<std::unique_ptr<Store>> connect_tcp_store(const std::vector<std::string>& addresses, const JobId& job,
                                                 Deadline deadline, std::function<bool()> interrupted = {});

}  // namespace pc
