// The groups in which an executor has calls. One is made for its first call, and given back when the group is closed.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/group_line.h"

namespace pc {

// `Group` has a GroupLine `line`, and close(), which is called once, when all its runs have ended for good; Work that is left of them
// holds its memory. Thread-safety: all methods.
template <class Group>
class OpenGroups {
 public:
  using Shared = std::shared_ptr<Group>;  // with the Work of the group, which may outlive its close()
  OpenGroups() = default;
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
  // False: there is no such group.
  bool cancel(uint32_t id, uint64_t sequence, const Status& why) {
    const std::lock_guard lock(mutex_);
    const Slot* const slot = find(id);
    if (slot != nullptr) slot->group->line.cancel(sequence, why);
    return slot != nullptr;
  }
  void abort(uint32_t id, const Status& why) {
    const std::lock_guard lock(mutex_);
    ended_.try_emplace(id, why);
    if (const Slot* const slot = find(id)) slot->group->line.abort(why);
  }
  void abort(const Status& why) {
    const std::lock_guard lock(mutex_);
    if (aborted_.is_ok()) aborted_ = why;
    for (const auto& [id, slot] : by_id_) slot->group->line.abort(why);
  }
  // That rank of the world has left: `note(group)` hears of it, once for each group, also of those that come later.
  void peer_left(Rank world, void (*note)(Group&, Rank)) {
    const std::lock_guard lock(mutex_);
    if (std::find(left_.begin(), left_.end(), world) != left_.end()) return;
    left_.push_back(world);
    note_left_ = note;
    for (const auto& [id, slot] : by_id_) {
      note(*slot->group, world);
      slot->group->line.wake();
    }
  }
  // After abort() of it, when no launch is under way and none will come.
  void close(uint32_t id) {
    const std::lock_guard lock(mutex_);
    ended_.erase(id);
    if (Slot* const slot = find(id)) {
      by_id_.erase(id);
      slot->id.store(kNone, std::memory_order_release);
      closing_.push_back(std::move(slot->group));
      unused_.push_back(slot);
    }
    close_ended();
  }

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};
  struct Slot {  // stays where it is, whatever group has it
    std::atomic<uint64_t> id{kNone};
    Shared group;
  };
  Slot* find(uint32_t id) {  // mutex_ held
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : found->second;
  }
  void close_ended() {  // mutex_ held
    std::erase_if(closing_, [](const Shared& group) {
      if (!group->line.is_idle()) return false;
      group->close();
      return true;
    });
  }
  Slot& add(uint32_t id, Shared group) {  // mutex_ held
    close_ended();
    for (const Rank world : left_) note_left_(*group, world);
    if (!aborted_.is_ok()) group->line.abort(aborted_);
    if (const auto ended = ended_.find(id); ended != ended_.end()) group->line.abort(ended->second);
    Slot* slot = nullptr;
    if (unused_.empty()) {
      slot = &slots_.emplace_back();
    } else {
      slot = unused_.back();
      unused_.pop_back();
    }
    slot->group = std::move(group);
    slot->id.store(id, std::memory_order_release);
    return *(by_id_[id] = slot);
  }

  std::atomic<Slot*> recent_{nullptr};  // used last: most often the right one
  std::mutex mutex_;  // guards what follows; a slot's group changes only while its id is kNone
  std::deque<Slot> slots_;
  std::map<uint32_t, Slot*> by_id_;
  std::vector<Slot*> unused_;
  std::vector<Shared> closing_;       // a thread has not left their last run yet
  std::map<uint32_t, Status> ended_;  // that were aborted before they were closed
  std::vector<Rank> left_;            // of the world
  void (*note_left_)(Group&, Rank) = nullptr;
  Status aborted_;
};

}  // namespace pc
