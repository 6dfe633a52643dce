#include "transport/shm/wakeup.h"

#include <algorithm>
#include <string>

namespace pc {
namespace {

constexpr int64_t kMostCores = 65536;

}  // namespace

ShmWakeup::ShmWakeup(LocalPeers& local_peers, Rank rank, SegmentHeader& own, Rank world_size)
    : local_peers_(local_peers),
      own_(own),
      headers_(static_cast<std::size_t>(world_size), nullptr),
      notified_(static_cast<std::size_t>(world_size)) {
  headers_[static_cast<std::size_t>(rank)] = &own;
}

Result<std::unique_ptr<ShmWakeup>> ShmWakeup::create(LocalPeers& local_peers, Rank rank, Rank world_size) {
  PC_ASSIGN_OR_RETURN(const std::span<std::byte> memory, local_peers.map(rank, 0, sizeof(SegmentHeader)));
  SegmentHeader* const header = reinterpret_cast<SegmentHeader*>(memory.data());  // initially zeros
  header->magic.store(kSegmentMagic, std::memory_order_seq_cst);
  return std::unique_ptr<ShmWakeup>(new ShmWakeup(local_peers, rank, *header, world_size));
}

Result<const SegmentHeader*> ShmWakeup::header_of_rank(Rank rank) {
  const std::lock_guard lock(mutex_);
  const SegmentHeader*& known = headers_[static_cast<std::size_t>(rank)];
  if (known != nullptr) return known;
  PC_ASSIGN_OR_RETURN(const std::span<std::byte> memory, local_peers_.map(rank, 0, sizeof(SegmentHeader)));
  const SegmentHeader* const header = reinterpret_cast<const SegmentHeader*>(memory.data());
  const uint64_t magic = header->magic.load(std::memory_order_acquire);
  if (magic != 0 && magic != kSegmentMagic) {
    return Status(Code::kMismatch,
                  "rank " + std::to_string(rank) +
                      "'s shared memory has another layout; do all ranks run the same version?")
        .with_peer(rank);
  }
  known = header;
  return known;
}

std::size_t ShmWakeup::find_cores(std::vector<int>& cores) {
  const std::lock_guard lock(mutex_);
  std::size_t self = 0;
  cores.clear();
  for (const SegmentHeader* header : headers_) {
    if (header == nullptr) continue;
    if (header == &own_) self = cores.size();
    // A number from another rank is not trusted: a core number that is far too large counts as
    // unknown.
    const int64_t core = header->core.load(std::memory_order_relaxed);
    cores.push_back(core > 0 && core <= kMostCores ? static_cast<int>(core - 1) : -1);
  }
  return self;
}

void ShmWakeup::list(CompletionQueue& queue, uint64_t token) {
  const std::lock_guard lock(mutex_);
  sleepers_.push_back({&queue, token});
  begin_sleep();
}

// From now on, a peer that writes notifies this rank. A later check by this rank sees what peers
// wrote before.
void ShmWakeup::begin_sleep() {
  if (++sleep_ == 0) ++sleep_;
  sleeping_.store(1, std::memory_order_relaxed);
  own_.asleep.store(sleep_, std::memory_order_seq_cst);
}

void ShmWakeup::stay_awake() {
  if (sleeps_ > 0 || !sleepers_.empty()) return;
  sleeping_.store(0, std::memory_order_relaxed);
  own_.asleep.store(0, std::memory_order_seq_cst);
}

void ShmWakeup::notify_once(Rank rank, uint32_t sleep) {
  if (notified_[static_cast<std::size_t>(rank)].exchange(sleep, std::memory_order_relaxed) != sleep)
    local_peers_.notify(rank);
}

void ShmWakeup::unlist(CompletionQueue& queue) {
  const std::lock_guard lock(mutex_);
  std::erase_if(sleepers_, [&](const Sleeper& sleeper) { return sleeper.queue == &queue; });
  stay_awake();
}

bool ShmWakeup::fall_asleep() {
  const std::lock_guard lock(mutex_);
  ++sleeps_;
  begin_sleep();
  return true;
}

void ShmWakeup::wake_up() {
  const std::lock_guard lock(mutex_);
  if (sleeps_ > 0) --sleeps_;
  stay_awake();
  idle_polls_.store(0, std::memory_order_relaxed);  // the next poll checks for a notification
}

std::size_t ShmWakeup::poll() {
  // No thread of this rank sleeps, so a late notification may wait for a few polls.
  if (sleeping_.load(std::memory_order_relaxed) == 0 &&
      idle_polls_.fetch_add(1, std::memory_order_relaxed) % 16 != 0)
    return 0;
  if (!local_peers_.clear_notification()) return 0;
  const std::lock_guard lock(mutex_);
  if (sleeps_ > 0 || !sleepers_.empty()) begin_sleep();  // before the sleepers check what was written
  std::size_t woken = 0;
  for (const Sleeper& sleeper : sleepers_) {
    if (!sleeper.queue->empty()) continue;
    sleeper.queue->complete(Completion{sleeper.token, Status(), {}, 0});
    ++woken;
  }
  return woken;
}

}  // namespace pc
