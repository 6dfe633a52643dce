#include "shm/local_peers_process.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace pc {
namespace {

class ProcessLocalPeers final : public LocalPeers {
 public:
  ProcessLocalPeers(Rank self, SharedPart own, std::vector<PeerPart> peers)
      : self_(self),
        own_(std::move(own)) {
    for (PeerPart& peer : peers) peers_.emplace(peer.rank, std::move(peer));
  }

  bool has(Rank rank) const override { return rank == self_ || peers_.contains(rank); }

  Result<SharedRange> grow(std::size_t nbytes) override {
    const std::lock_guard lock(mutex_);
    return own_.memory.grow(nbytes);
  }

  Result<std::span<std::byte>> map(Rank rank, uint64_t offset, std::size_t nbytes) override {
    const std::lock_guard lock(mutex_);
    if (rank == self_) return own_.memory.map(offset, nbytes);
    const auto peer = peers_.find(rank);
    if (peer == peers_.end())
      return Status(Code::kInternal, "rank " + std::to_string(rank) + " shares no memory with this one");
    const Result<std::span<std::byte>> mapped = peer->second.memory.map(offset, nbytes);
    return mapped.is_ok() ? mapped : mapped.status().with_peer(rank);
  }

  void notify(Rank rank) noexcept override {
    if (rank == self_) return own_.notifier.notify();
    if (const auto peer = peers_.find(rank); peer != peers_.end()) peer->second.notifier.notify();
  }
  int notify_fd() const override { return own_.notifier.fd(); }
  bool clear_notification() noexcept override { return own_.notifier.clear_notification(); }

  void close_in_child() noexcept override {
    own_.memory.close_in_child();
    own_.notifier.close_in_child();
    for (auto& [rank, peer] : peers_) {
      peer.memory.close_in_child();
      peer.notifier.close_in_child();
    }
  }

 private:
  const Rank self_;
  std::mutex mutex_;  // guards the mappings
  SharedPart own_;
  std::map<Rank, PeerPart> peers_;  // never changes
};

}  // namespace

Result<SharedPart> SharedPart::create() {
  PC_ASSIGN_OR_RETURN(OwnSegment memory, OwnSegment::create());
  PC_TRY(memory.grow(LocalPeers::kFirstNbytes).status());
  PC_ASSIGN_OR_RETURN(EventFd notifier, EventFd::create());
  return SharedPart{std::move(memory), std::move(notifier)};
}

Result<PeerPart> PeerPart::adopt(Rank rank, Fd memory, Fd notifier) {
  Result<PeerSegment> segment = PeerSegment::adopt(std::move(memory));
  if (!segment.is_ok()) return segment.status().with_peer(rank);
  Result<EventFd> notified = EventFd::adopt(std::move(notifier));
  if (!notified.is_ok()) return notified.status().with_peer(rank);
  return PeerPart{rank, std::move(segment).value(), std::move(notified).value()};
}

std::unique_ptr<LocalPeers> make_process_local_peers(Rank self, SharedPart own, std::vector<PeerPart> peers) {
  return std::make_unique<ProcessLocalPeers>(self, std::move(own), std::move(peers));
}

}  // namespace pc
