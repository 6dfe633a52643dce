// The groups in which an executor has calls. A group is created at its first call and released
// after it has been closed.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/run_queue.h"

namespace pc {

// The state that an executor keeps for one group.
class OpenGroup {
 public:
  virtual ~OpenGroup() = default;
  virtual RunQueue& runs() = 0;
  virtual void note_left(Rank /*world*/) {}  // that world rank has announced its exit
  // Called once, when all runs of the group have ended and none can follow. Work objects that still
  // exist share ownership of this object.
  virtual void close() {}
};

// Thread-safety: all methods.
class OpenGroups {
 public:
  using Shared = std::shared_ptr<OpenGroup>;  // shared with the Work of the group, which may outlive close()
  // Called for a cancelled call of a group that does not exist here yet. Discards what arrives for
  // that call.
  using Discard = std::function<void(uint32_t group, uint64_t sequence)>;
  explicit OpenGroups(Discard discard = [](uint32_t, uint64_t) {}) : discard_(std::move(discard)) {}
  OpenGroups(const OpenGroups&) = delete;
  OpenGroups& operator=(const OpenGroups&) = delete;
  ~OpenGroups() = default;

  // Returns the group of this number, created by `make()` if necessary. The reference is valid
  // until close(), which is called only after all launches have returned.
  template <class Make>
  const Shared& get(uint32_t id, Make&& make) {
    const Slot* const recent = recent_.load(std::memory_order_acquire);
    if (recent != nullptr && recent->id.load(std::memory_order_acquire) == id) [[likely]]
      return recent->group;
    const std::lock_guard lock(mutex_);
    Slot* slot = find(id);
    if (slot == nullptr) slot = &add(id, make());
    recent_.store(slot, std::memory_order_release);
    return slot->group;
  }
  // These implement the methods of Executor with the same names.
  void cancel(uint32_t id, uint64_t sequence, const Status& why);
  void abort(uint32_t id, const Status& why);
  void abort(const Status& why);
  void peer_left(Rank world);
  void close(uint32_t id);

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};
  struct Slot {  // never moves, even if it is reused for another group
    std::atomic<uint64_t> id{kNone};
    Shared group;
  };
  Slot* find(uint32_t id);               // mutex_ held
  void close_ended();                    // mutex_ held
  Slot& add(uint32_t id, Shared group);  // mutex_ held

  const Discard discard_;
  // the slot used last: consecutive calls are most often of the same group
  std::atomic<Slot*> recent_{nullptr};
  std::mutex mutex_;  // guards the members below; a slot's group changes only while its id is kNone
  std::deque<Slot> slots_;
  std::map<uint32_t, Slot*> by_id_;
  std::vector<Slot*> unused_;
  std::vector<Shared> closing_;       // closed groups with a thread still in their last run
  std::map<uint32_t, Status> ended_;  // groups that were aborted and are not closed yet
  std::vector<Rank> left_;            // world ranks that have announced their exit
  Status aborted_;
};

}  // namespace pc
