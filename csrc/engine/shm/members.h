// The members of one group in shared memory: where the area of each member is, and which members
// have left.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/shm/host.h"
#include "shm/shared_copy.h"

namespace pc::shm {

// A word in shared memory that must change before a retry can succeed.
struct Awaited {
  const std::atomic<uint64_t>* word;
  uint64_t seen;
  Rank peer;  // in the group
  bool has_changed() const { return word->load(std::memory_order_seq_cst) != seen; }
};

// Thread-safety: none; only the holder of the group's progress lock uses it. Methods that return
// false have recorded in awaited() what they wait for.
class Members {
 public:
  // Errors name member r as rank `names[r]`, or as rank r if `names` is empty.
  Members(Host& host, uint32_t group, Rank rank, std::span<const Rank> world_ranks, std::vector<Rank> names);

  Rank size() const { return static_cast<Rank>(peers_.size()); }
  // From now on this rank reads and announces nothing of the group. Called once, as the last
  // method.
  void close();

  // Finds the areas of all members, and agrees with them on whether all members can read each
  // other's private memory. Returns true when both are done.
  Result<bool> join();
  bool is_joined() const { return agreed_ == peers_.size(); }
  bool reads_private_memory() const { return reads_all_; }

  // Records that this world rank has announced its exit and sends nothing more. Thread-safety: any
  // thread.
  void note_left(Rank world);
  bool has_left(Rank peer) const { return left_[index(peer)].load(std::memory_order_seq_cst); }

  // Returns a member's array, which has at least `nbytes`. Returns an error if it cannot be at that
  // place.
  Result<const std::byte*> array(Rank peer, const HeapPlace& place, std::size_t nbytes) {
    return host_.find_array(peers_[index(peer)].world, place, nbytes);
  }
  // Reads a member's private memory.
  Status read(Rank peer, uint64_t address, std::span<std::byte> into) const {
    return host_.read(peers_[index(peer)].world, address, into);
  }
  // Returns how to copy data into the ring that only `reader` reads or, if `reader` is this rank,
  // that all members read. The best copy depends on whether a reader shares a near cache with this
  // rank.
  SharedCopy& copy_for(Rank reader) { return peers_[index(reader)].copy; }
  Stores stores_for_all() const;

  std::vector<Awaited>& awaited() { return awaited_; }

 protected:
  struct Peer {
    Rank world;
    const GroupArea* area = nullptr;
    Host::FoundArea found = {};
    std::span<const std::byte> ring = {};
    uint8_t slot = 0;      // the slot in which look() found the announcement
    SharedCopy copy = {};  // see copy_for()
  };
  std::string rank_name(Rank rank) const {
    return "rank " + std::to_string(names_.empty() ? rank : names_[index(rank)]);
  }
  Rank named(Rank rank) const { return names_.empty() ? rank : names_[index(rank)]; }
  static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }
  void wake_all();
  bool wait_for(const std::atomic<uint64_t>& word, uint64_t seen, Rank peer) {
    awaited_.push_back({&word, seen, peer});
    return false;
  }

  Host& host_;
  const Rank rank_;
  std::vector<Peer> peers_;  // by rank; this rank's entry has its own area
  GroupArea* own_ = nullptr;

 private:
  bool agree();

  const uint32_t group_;
  const std::vector<Rank> names_;
  // number of peers_, from the first, that have been found (joined_) and that have published
  // `reads` (agreed_)
  std::size_t joined_ = 0, agreed_ = 0;
  bool reads_all_ = false;               // valid once joined
  std::vector<std::atomic<bool>> left_;  // by rank
  std::vector<Awaited> awaited_;
};

}  // namespace pc::shm
