// The shared memory of one rank and of its local peers. Creates and finds the areas of groups in
// it.
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
  // `single_copy`: this rank and its local peers may read each other's private memory, if the
  // kernel permits it. The other arguments are not owned.
  static Result<std::unique_ptr<Host>> create(LocalPeers& local_peers, ShmWakeup& wakeup,
                                              bool single_copy = true);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  ~Host() = default;

  // Creates this rank's area for a group. From then on the other ranks can find it.
  Result<GroupArea*> make_area(uint32_t group);
  struct FoundArea {
    // If `area` is null, the area does not exist yet, and cannot exist before `word` changes from
    // `seen`. Otherwise `word` is the member's entry for the group, which has the value `seen`
    // until the member closes the group.
    const GroupArea* area = nullptr;
    const std::atomic<uint64_t>* word = nullptr;
    uint64_t seen = 0;
    bool is_closed = false;  // the member has already closed the group
  };
  // Returns the area that a local peer made for the group.
  Result<FoundArea> find_area(Rank rank, uint32_t group);
  struct Member {
    Rank world;
    FoundArea found;  // found.area is null if the area was not found
  };
  // Closes this rank's entry for a group. From then on this rank reads nothing of the group. The
  // area is reused for another group when no member has an open entry for the closed group. A
  // member that makes its entry only later finds this rank's entry closed or reused.
  void close_area(const GroupArea& area, std::vector<Member> members);
  Result<std::span<std::byte>> make_ring(GroupArea& area, std::size_t nbytes);
  Result<std::span<const std::byte>> find_ring(Rank rank, const GroupArea& area);

  // Returns an array of at least that many bytes in a local peer's heap.
  Result<const std::byte*> find_array(Rank rank, const HeapPlace& place, std::size_t nbytes);
  Heap& heap() { return heap_; }
  // Returns whether that rank's private memory can be read (tested anew each time). See
  // shm/process_memory.h.
  bool can_read(Rank rank);
  Status read(Rank rank, uint64_t address, std::span<std::byte> into) const;
  // returns false, for example, for memory that a device has mapped
  static bool can_be_read(const std::byte* array);

  // See ShmWakeup.
  void wake(Rank rank) { wakeup_.wake(rank); }
  // like wake(), but first maps the memory of that local peer if this rank has not done so yet
  Status wake_first(Rank rank);
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
  uint64_t proof_[2] = {};                // the values that the segment header publishes as proof
  std::vector<std::atomic<pid_t>> pids_;  // by world rank; set when can_read() has succeeded
  struct OwnArea {
    GroupArea* area;
    SharedRange ring = {};  // the largest ring that the area has had
    bool is_closed = false;
    uint64_t id = 0;                   // value of the entry while it was open
    std::vector<Member> members = {};  // set once the area is closed
  };
  bool is_free(const OwnArea& area);
  bool has_open_entry(const Member& member, uint64_t id);
  OwnArea& own(const GroupArea& area);     // mutex_ held
  std::optional<std::size_t> free_area();  // mutex_ held
  Result<std::size_t> take_area();         // mutex_ held

  std::mutex mutex_;            // guards the members below
  std::vector<OwnArea> areas_;  // in the order of the segment header
};

}  // namespace pc::shm
