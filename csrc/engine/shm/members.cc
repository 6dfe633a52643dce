#include "engine/shm/members.h"

#include <algorithm>

namespace pc::shm {

Members::Members(Host& host, uint32_t group, Rank rank, std::span<const Rank> world_ranks,
                 std::vector<Rank> names)
    : host_(host),
      rank_(rank),
      group_(group),
      names_(std::move(names)),
      left_(world_ranks.size()) {
  peers_.reserve(world_ranks.size());
  for (const Rank world : world_ranks) peers_.push_back({world});
}

void Members::note_left(Rank world) {
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    if (peers_[r].world == world) left_[r].store(true, std::memory_order_seq_cst);
  }
}

Result<bool> Members::join() {
  if (own_ == nullptr) {
    PC_ASSIGN_OR_RETURN(own_, host_.make_area(group_));
    peers_[index(rank_)].area = own_;
    for (const Peer& peer : peers_) {
      if (peer.area == nullptr) PC_TRY(host_.wake_first(peer.world));
    }
  }
  for (; joined_ < peers_.size(); ++joined_) {
    Peer& peer = peers_[joined_];
    if (peer.area != nullptr) continue;
    PC_ASSIGN_OR_RETURN(const Host::FoundArea found, host_.find_area(peer.world, group_));
    const Rank rank = static_cast<Rank>(joined_);
    if (found.is_closed)
      return Status(Code::kPeerExited, rank_name(rank) + " has closed this group").with_peer(named(rank));
    if (found.area == nullptr) return wait_for(*found.word, found.seen, rank);
    peer.found = found;
    peer.area = found.area;
  }
  return agree();
}

void Members::close() {
  if (own_ == nullptr) return;
  std::vector<Host::Member> others;
  for (const Peer& peer : peers_) {
    if (peer.area != own_) others.push_back({peer.world, peer.found});
  }
  host_.close_area(*own_, std::move(others));
}

bool Members::agree() {
  if (own_->reads.load(std::memory_order_relaxed) == kReadsUnknown) {
    const bool all = std::all_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
      return peer.area == own_ || host_.can_read(peer.world);
    });
    own_->reads.store(all ? kReadsAll : kReadsNotAll, std::memory_order_seq_cst);
    wake_all();
    reads_all_ = all;
  }
  for (; agreed_ < peers_.size(); ++agreed_) {
    const std::atomic<uint64_t>& reads = peers_[agreed_].area->reads;
    const uint64_t answer = reads.load(std::memory_order_seq_cst);
    if (answer == kReadsUnknown) return wait_for(reads, answer, static_cast<Rank>(agreed_));
    reads_all_ = reads_all_ && answer == kReadsAll;
  }
  return true;
}

void Members::wake_all() {
  for (const Peer& peer : peers_) {
    if (peer.area != own_ && peer.area != nullptr) host_.wake(peer.world);
  }
}

Stores Members::stores_for_all() const {
  const bool distant = std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return peer.copy.stores() == Stores::kPastCaches;
  });
  return distant ? Stores::kPastCaches : Stores::kVector;
}

}  // namespace pc::shm
