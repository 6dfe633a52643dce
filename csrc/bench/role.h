// Which rank this process, or thread, is, and how it reaches the others.
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
  std::vector<std::string> stores;  // "ip:port" each; one of them is the store
  std::vector<std::string> listen;  // empty: at the address by which the store is reached
  Credentials credentials = {};
};

// As pycollective/tools/bench_binary.py leaves it in the environment; nothing if that did not start this process.
Result<std::optional<Role>> role_from_environment();

// Makes it one of the ranks. What a flag does not say, the environment does. Collective.
Result<std::unique_ptr<Runtime>> join(const Options& options, const Role& role);

}  // namespace pc::bench
