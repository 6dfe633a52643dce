#include "comm/group_ending.h"

namespace pc {
namespace {

double seconds_since(TimePoint began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

std::string name_of_rank(std::size_t rank, std::size_t world_rank, const HostMap* hosts) {
  std::string name = "rank " + std::to_string(rank);
  if (hosts == nullptr || world_rank >= hosts->ranks.size()) return name;
  const HostMap::Entry& entry = hosts->ranks[world_rank];
  return name + " (host " + entry.host_name + ", pid " + std::to_string(entry.pid) + ")";
}

}  // namespace

GroupEnding::GroupEnding(const Parts& parts, Rank rank, const std::vector<Rank>& world_ranks,
                         const HostMap* hosts)
    : parts_(parts),
      rank_(rank) {
  for (std::size_t r = 0; r < world_ranks.size(); ++r) {
    names_.push_back(name_of_rank(r, static_cast<std::size_t>(world_ranks[r]), hosts));
  }
}

void GroupEnding::abort(const Status& why) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);  // to the end: who comes second may destroy the parts next
  if (!cause_.is_ok()) return;
  cause_ = why;
  word_.store(1, std::memory_order_release);
  if (parts_.transport == nullptr) return;
  // The code tells the other calls that they did not fail themselves: they will name the cause.
  const Status told(Code::kAborted, "this group ended: " + why.to_string());
  parts_.executor->abort(told);
  parts_.transport->abort(told);  // peers see broken connections and need not wait for their own deadlines
  parts_.reactor->wake();
}

Status GroupEnding::cause() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Code code = cause_.code() == Code::kNotInitialized ? Code::kNotInitialized : Code::kAborted;
  return Status(code, "this group ended earlier: " + cause_.to_string())
      .with_rank(rank_)
      .with_peer(cause_.peer());
}

Status GroupEnding::told(const Status& ended, const std::string& operation, TimePoint began) const {
  const double elapsed_s = seconds_since(began);
  if (const Status earlier = before(); !earlier.is_ok() && ended.code() == Code::kAborted) {
    return earlier.with_operation(operation).with_elapsed(elapsed_s);
  }
  return Status(ended.code(), ended.message() + advice(ended))
      .with_rank(rank_)
      .with_peer(ended.peer())
      .with_operation(operation)
      .with_elapsed(elapsed_s);
}

Status GroupEnding::conclude(const Status& ended, const std::string& operation, TimePoint began) {
  const Status status = told(ended, operation, began);
  abort(status);  // unless it has ended before
  return status;
}

std::string GroupEnding::advice(const Status& ended) const {
  const std::size_t peer = static_cast<std::size_t>(ended.peer());  // -1: nobody
  const std::string who = peer < names_.size() ? names_[peer] : "a rank of this group";
  switch (ended.code()) {
    case Code::kTimeout:
      return ". Look whether " + who +
             " hangs, made fewer calls or is only slow; then a longer timeout helps";
    case Code::kPeerFailure:
    case Code::kPeerExited: return ". Look at the output of " + who + " for the cause";
    case Code::kMismatch:
      return ". All ranks must make the same calls in the same order with equal dtype, count, op and root; "
             "compare with " +
             who;
    default: return "";
  }
}

}  // namespace pc
