// The groups in which an executor has calls. One is made for its first call, and given back when the group is closed.
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

// What an executor keeps of one group.
class OpenGroup {
 public:
  virtual ~OpenGroup() = default;
  virtual RunQueue& runs() = 0;
  virtual void note_left(Rank /*world*/) {}  // that rank of the world has left
  // Once, when all its runs have ended for good; Work that is left of them holds its memory.
  virtual void close() {}
};

// Thread-safety: all methods.
class OpenGroups {
 public:
  using Shared = std::shared_ptr<OpenGroup>;  // with the Work of the group, which may outlive its close()
  // What comes for a call that is cancelled in a group of which there is none here yet.
  using Discard = std::function<void(uint32_t group, uint64_t sequence)>;
  explicit OpenGroups(Discard discard = [](uint32_t, uint64_t) {}) : discard_(std::move(discard)) {}
  OpenGroups(const OpenGroups&) = delete;
  OpenGroups& operator=(const OpenGroups&) = delete;
  ~OpenGroups() = default;

  // The group of this number; `make()` makes it. The reference is right until close(), before which all launches return.
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
  // What these do is what Executor says of its methods of that name.
  void cancel(uint32_t id, uint64_t sequence, const Status& why);
  void abort(uint32_t id, const Status& why);
  void abort(const Status& why);
  void peer_left(Rank world);
  void close(uint32_t id);

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};
  struct Slot {  // stays where it is, whatever group has it
    std::atomic<uint64_t> id{kNone};
    Shared group;
  };
  Slot* find(uint32_t id);               // mutex_ held
  void close_ended();                    // mutex_ held
  Slot& add(uint32_t id, Shared group);  // mutex_ held

  const Discard discard_;
  std::atomic<Slot*> recent_{nullptr};  // used last: most often the right one
  std::mutex mutex_;  // guards what follows; a slot's group changes only while its id is kNone
  std::deque<Slot> slots_;
  std::map<uint32_t, Slot*> by_id_;
  std::vector<Slot*> unused_;
  std::vector<Shared> closing_;       // a thread has not left their last run yet
  std::map<uint32_t, Status> ended_;  // that were aborted before they were closed
  std::vector<Rank> left_;            // of the world
  Status aborted_;
};

}  // namespace pc
