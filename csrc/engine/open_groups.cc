#include "engine/open_groups.h"

#include <algorithm>
#include <utility>

namespace pc {

void OpenGroups::cancel(uint32_t id, uint64_t sequence, const Status& why) {
  {
    const std::lock_guard lock(mutex_);
    if (const Slot* const slot = find(id)) return slot->group->runs().cancel(sequence, why);
  }
  discard_(id, sequence);
}

void OpenGroups::abort(uint32_t id, const Status& why) {
  const std::lock_guard lock(mutex_);
  ended_.try_emplace(id, why);
  if (const Slot* const slot = find(id)) slot->group->runs().abort(why);
}

void OpenGroups::abort(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (aborted_.is_ok()) aborted_ = why;
  for (const auto& [id, slot] : by_id_) slot->group->runs().abort(why);
}

void OpenGroups::peer_left(Rank world) {
  const std::lock_guard lock(mutex_);
  if (std::find(left_.begin(), left_.end(), world) != left_.end()) return;
  left_.push_back(world);
  for (const auto& [id, slot] : by_id_) {
    slot->group->note_left(world);
    slot->group->runs().wake();
  }
}

void OpenGroups::close(uint32_t id) {
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

OpenGroups::Slot* OpenGroups::find(uint32_t id) {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

void OpenGroups::close_ended() {
  std::erase_if(closing_, [](const Shared& group) {
    if (!group->runs().is_idle()) return false;
    group->close();
    return true;
  });
}

OpenGroups::Slot& OpenGroups::add(uint32_t id, Shared group) {
  close_ended();
  for (const Rank world : left_) group->note_left(world);
  if (!aborted_.is_ok()) group->runs().abort(aborted_);
  if (const auto ended = ended_.find(id); ended != ended_.end()) group->runs().abort(ended->second);
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

}  // namespace pc
