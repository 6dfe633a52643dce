// What comes up about earlier calls of a group, which were done here and turn out to have been wrong, or whose end nobody has asked
// for: the next call raises it, once, and what no call raises is a warning.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "failure/group_calls.h"

namespace pc {
namespace {

constexpr std::size_t kMostWarned = 8;   // in one warning
constexpr std::size_t kMostNews = 1024;  // of wrong calls, and of those that were told

}  // namespace

void GroupCalls::unheard(const Status& outcome) {
  std::unique_lock lock(mutex_);
  if (cause_told_ || unheard_.size() >= kMostNews) return;
  if (closing_ && ++unheard_late_ > kMostWarned) return;
  unheard_.push_back(
      Status(outcome.code(),
             "of an asynchronous call for which nobody waited, and raised here for that reason: " +
                 outcome.message())
          .with_rank(outcome.rank())
          .with_peer(outcome.peer())
          .with_operation(outcome.operation())
          .with_elapsed(outcome.elapsed_s())
          .with_sequence(outcome.sequence())
          .with_cause(outcome.cause()));
  note_deferred();
  warn_of_settled(lock);
}

Status GroupCalls::take_deferred() {
  const std::lock_guard lock(mutex_);
  const auto first = deferred_.upper_bound(settled_);
  Status what;
  if (first != deferred_.end()) {
    what = take_news(first);
  } else if (!unheard_.empty()) {
    what = std::move(unheard_.front());
    unheard_.pop_front();
  }
  note_deferred();
  return what;
}

void GroupCalls::note_deferred() {
  const bool any = deferred_.upper_bound(settled_) != deferred_.end() || !unheard_.empty();
  noted_.store(any ? 1 : 0, std::memory_order_release);
}

Status GroupCalls::take_news(std::map<uint64_t, News>::iterator news) {
  if (told_.size() >= kMostNews) told_until_ = std::max(told_until_, told_.extract(told_.begin()).value());
  told_.insert(news->first);
  return std::move(deferred_.extract(news).mapped().what);
}

// This rank's part of that call is done, and it was another part than the others expected.
void GroupCalls::defer(uint64_t sequence, const Status& why, bool is_verdict) {
  if (parts_.confirms) return;  // the caller is in the confirmation, and hears of it there
  if (sequence <= told_until_ || told_.contains(sequence)) return;
  if (deferred_.size() >= kMostNews) deferred_.erase(deferred_.begin());
  const auto [news, first] = deferred_.try_emplace(sequence);
  if (!first && !is_verdict) return;
  news->second.is_verdict = is_verdict;
  news->second.what =
      Status(why.code(), "call #" + std::to_string(sequence) +
                             " of this group, which this rank had completed, was wrong: " + why.message())
          .with_rank(names_.rank())
          .with_peer(why.peer())
          .with_sequence(sequence);
  note_deferred();
}

void GroupCalls::settle(uint64_t sequence) {
  std::unique_lock lock(mutex_);
  settled_ = std::max(settled_, sequence);
  std::erase_if(unheard_, [&](const Status& what) {
    parts_.log.warning("not raised any more: " + what.to_string());
    return true;
  });
  note_deferred();
  warn_of_settled(lock);
}

// What no error will tell, once all is known about it.
void GroupCalls::warn_of_settled(std::unique_lock<std::mutex>& lock) {
  std::vector<std::string> unraised;
  const bool all = closing_ || !cause_.is_ok();
  for (auto each = deferred_.begin(); each != deferred_.end();) {
    const auto news = each++;
    const bool is_known = news->second.is_verdict || !parts_.compares;  // more will not come
    if (all || (news->first <= settled_ && is_known)) unraised.push_back(take_news(news).message());
  }
  for (; closing_ && !unheard_.empty(); unheard_.pop_front()) {
    if (!cause_told_) unraised.push_back(unheard_.front().to_string());
  }
  lock.unlock();
  std::string text;
  for (std::size_t i = 0; i < std::min(unraised.size(), kMostWarned); ++i)
    text += (i == 0 ? "" : "\n") + ("not raised any more: " + unraised[i]);
  if (unraised.size() > kMostWarned)
    text += "\nand " + std::to_string(unraised.size() - kMostWarned) + " more calls were wrong";
  if (!text.empty()) parts_.log.warning(text);
}

void GroupCalls::stray(uint64_t sequence, Rank peer, const Status& why) {
  const std::lock_guard lock(mutex_);
  if (!cause_.is_ok()) return;
  const std::optional<CallRecord> record = parts_.recorder->find(group_, sequence);
  if (!record || record->state != CallRecord::State::kFailed)  // else its caller hears of it in the call
    defer(sequence, Status(why.code(), why.message()).with_peer(names_.from_world(peer)), false);
  parts_.control->stalled(id(sequence), peer);  // compares the two calls, and tells everybody
}

// A call that was done here was another one on other ranks. Mutex held.
void GroupCalls::wrong_after_all(uint64_t sequence, const Status& verdict) {
  if (verdict.code() == Code::kMismatch) defer(sequence, verdict, true);
}

}  // namespace pc
