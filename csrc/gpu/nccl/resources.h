// The resources of an NCCL communicator, and its states.
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

// What a communicator needs. The clock must outlive the communicator.
struct Resources {
  std::shared_ptr<const Api> api;
  Clock* clock = nullptr;
  Logger log = Logger();
  double abort_wait_limit_s = 10;  // seconds after which an abort is given up
  // Makes the GPU's context current in a thread that the communicator starts, for the lifetime of
  // the result. NCCL restores the context that was current when it was called; without a current
  // context it would open another context on the first GPU. May be empty, for tests.
  std::function<Result<std::shared_ptr<void>>()> enter_thread = {};
};

struct Options {
  std::string name = {};  // for NCCL's log, from 2.27.3 on
  // bounds on the number of multiprocessors that the communicator occupies
  int min_ctas = kUndefined, max_ctas = kUndefined;
};

struct Membership {
  UniqueId id = {};  // made by make_unique_id() on one rank and sent to all
  Rank rank = 0, size = 1;
};

enum class State : uint8_t { kInit, kReady, kFailed, kFinalizing, kAborting, kDead, kLeaked };
std::string_view name_of(State state);

}  // namespace pc::nccl
