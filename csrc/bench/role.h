// The rank of this process or thread, and how it reaches the other ranks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/options.h"
#include "comm/runtime.h"
#include "wire/credentials.h"

namespace pc::bench {

struct Role {
  Rank rank = 0, size = 1;
  std::vector<std::string> stores;  // addresses "ip:port", one of which reaches the store
  std::vector<std::string> listen;  // empty: the local address of the connection to the store
  Credentials credentials = {};
};

// Reads the role that pycollective/tools/bench_binary.py has put into the environment. Returns
// nullopt if bench_binary.py did not start this process.
Result<std::optional<Role>> role_from_environment();

// Joins the world as one of its ranks. Settings without a flag come from the environment.
// Collective.
Result<std::unique_ptr<Runtime>> join(const Options& options, const Role& role);

}  // namespace pc::bench
