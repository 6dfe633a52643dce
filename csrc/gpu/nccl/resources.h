// What a communicator of NCCL is made of, and the states that it goes through.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/status.h"
#include "base/types.h"
#include "gpu/nccl/api.h"
#include "gpu/nccl/clock.h"

namespace pc::nccl {

// What a communicator works with. The clock outlives it.
struct Resources {
  std::shared_ptr<const Api> api;
  Clock* clock = nullptr;
  Logger log = Logger();
  double abort_wait_limit_s = 10;  // how long an abort may take before it is given up
  // Makes the GPU's context current in a thread of the communicator's own, for as long as that lives; NCCL puts back whatever is
  // current when it is called, which would open another context on the first GPU. May be empty, for tests.
  std::function<Result<std::shared_ptr<void>>()> enter_thread = {};
};

struct Options {
  std::string name = {};                             // in NCCL's own log, from 2.27.3 on
  int min_ctas = kUndefined, max_ctas = kUndefined;  // how many of the GPU's multiprocessors it may keep busy
};

struct Membership {
  UniqueId id = {};  // of make_unique_id() at one rank, told to all
  Rank rank = 0, size = 1;
};

enum class State : uint8_t { kInit, kReady, kFailed, kFinalizing, kAborting, kDead, kLeaked };
std::string_view name_of(State state);

}  // namespace pc::nccl
