// The shared memory of one rank and of its local peers: where the areas of groups are.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "engine/shm/layout.h"
#include "shm/heap.h"
#include "transport/shm/wakeup.h"

namespace pc::shm {

// Thread-safety: all methods.
class Host {
 public:
  // `single_copy`: local peers may read this rank's private memory, if the kernel lets them, and it theirs.
  // The others are not owned.
  static Result<std::unique_ptr<Host>> create(LocalPeers& local_peers, ShmWakeup& wakeup,
                                              bool single_copy = true);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  ~Host() = default;

  // An area for a group of ours, which the others find from now on.
  Result<GroupArea*> make_area(uint32_t group);
  struct FoundArea {
    const GroupArea* area = nullptr;  // null: there is none yet
    const std::atomic<uint64_t>* word =
        nullptr;             // then it comes no sooner than this word changes from `seen`;
    uint64_t seen = 0;       // else the member's entry, which holds `seen` until it is closed
    bool is_closed = false;  // the member has closed the group, and this rank comes too late
  };
  // The area that a local peer made for it.
  Result<FoundArea> find_area(Rank rank, uint32_t group);
  struct Member {
    Rank world;
    FoundArea found;  // no area: it was not found
  };
  // Nothing here reads what the other members have of the group. The area is used again for another group when none of them
  // has an open entry for this one. A member that makes its entry later finds this rank's closed, or used again.
  void close_area(const GroupArea& area, std::vector<Member> members);
  Result<std::span<std::byte>> make_ring(GroupArea& area, std::size_t nbytes);
  Result<std::span<const std::byte>> find_ring(Rank rank, const GroupArea& area);

  // An array in a local peer's heap, of at least so many bytes.
  Result<const std::byte*> find_array(Rank rank, const HeapPlace& place, std::size_t nbytes);
  Heap& heap() { return heap_; }
  // Private memory: whether it can be read (tried anew each time), and reading it. See shm/process_memory.h.
  bool can_read(Rank rank);
  Status read(Rank rank, uint64_t address, std::span<std::byte> into) const;
  static bool can_be_read(const std::byte* array);  // what a device has mapped here cannot, for example

  // See ShmWakeup.
  void wake(Rank rank) { wakeup_.wake(rank); }
  Status wake_first(Rank rank);  // the same for a local peer whose memory may not have been looked at yet
  void list(CompletionQueue& queue, uint64_t token) { wakeup_.list(queue, token); }
  void unlist(CompletionQueue& queue) { wakeup_.unlist(queue); }

 private:
  Host(LocalPeers& local_peers, ShmWakeup& wakeup)
      : local_peers_(local_peers),
        wakeup_(wakeup),
        heap_(local_peers),
        pids_(wakeup.world_size()) {}
  Status offer_private_memory();

  LocalPeers& local_peers_;
  ShmWakeup& wakeup_;
  Heap heap_;
  uint64_t proof_[2] = {};                // what the segment header says is here
  std::vector<std::atomic<pid_t>> pids_;  // by world rank, where can_read() has found that it can
  struct OwnArea {
    GroupArea* area;
    SharedRange ring = {};  // the largest that it has had
    bool is_closed = false;
    uint64_t id = 0;                   // in the entry, while it was open
    std::vector<Member> members = {};  // once it is closed
  };
  bool is_free(const OwnArea& area);
  bool has_open_entry(const Member& member, uint64_t id);
  OwnArea& own(const GroupArea& area);     // mutex_ held
  std::optional<std::size_t> free_area();  // likewise
  Result<std::size_t> take_area();         // likewise

  std::mutex mutex_;            // guards what follows
  std::vector<OwnArea> areas_;  // as in the segment header
};

}  // namespace pc::shm
