#include "gpu/nccl/resources.h"

namespace pc::nccl {

std::string_view name_of(State state) {
  switch (state) {
    case State::kInit: return "init";
    case State::kReady: return "ready";
    case State::kFailed: return "failed";
    case State::kFinalizing: return "finalizing";
    case State::kAborting: return "aborting";
    case State::kDead: return "dead";
    case State::kLeaked: return "leaked";
  }
  return "unknown";
}

}  // namespace pc::nccl
