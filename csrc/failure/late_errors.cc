#include "failure/late_errors.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace pc {
namespace {

constexpr std::size_t kMostWarned = 8;  // errors in one warning
// capacity of late_, of unobserved_ and of reported_
constexpr std::size_t kMostKept = 1024;

}  // namespace

Status LateErrors::take() {
  const auto first = late_.upper_bound(settled_);
  Status what;
  if (first != late_.end()) {
    what = extract(first);
  } else if (!unobserved_.empty()) {
    what = std::move(unobserved_.front());
    unobserved_.pop_front();
  }
  update();
  return what;
}

void LateErrors::add(uint64_t sequence, const Status& why, bool is_known) {
  if (sequence <= reported_until_ || reported_.contains(sequence)) return;
  if (late_.size() >= kMostKept) late_.erase(late_.begin());
  const auto [late, first] = late_.try_emplace(sequence);
  if (!first && !is_known) return;
  late->second.is_known = is_known;
  late->second.what =
      Status(why.code(), "call #" + std::to_string(sequence) +
                             " of this group, which this rank had completed, was wrong: " + why.message())
          .with_rank(rank_)
          .with_peer(why.peer())
          .with_sequence(sequence);
  update();
}

bool LateErrors::add_unobserved(const Status& outcome, bool is_last) {
  if (unobserved_.size() >= kMostKept) return false;
  if (is_last && ++unobserved_at_end_ > kMostWarned) return false;
  unobserved_.push_back(
      Status(outcome.code(),
             "of an asynchronous call for which no thread waited, and raised here for that reason: " +
                 outcome.message())
          .with_rank(outcome.rank())
          .with_peer(outcome.peer())
          .with_operation(outcome.operation())
          .with_elapsed(outcome.elapsed_s())
          .with_sequence(outcome.sequence())
          .with_cause(outcome.cause()));
  update();
  return true;
}

void LateErrors::drop(uint64_t sequence) {
  if (const auto late = late_.find(sequence); late != late_.end()) (void)extract(late);
  update();
}

std::deque<Status> LateErrors::settle(uint64_t sequence) {
  settled_ = std::max(settled_, sequence);
  std::deque<Status> unobserved = std::exchange(unobserved_, {});
  update();
  return unobserved;
}

std::string LateErrors::take_unraised(bool all, bool unobserved, bool awaits) {
  std::vector<std::string> unraised;
  for (auto each = late_.begin(); each != late_.end();) {
    const auto late = each++;
    const bool is_known = late->second.is_known || !awaits;
    if (all || (late->first <= settled_ && is_known)) unraised.push_back(extract(late).message());
  }
  if (unobserved) {
    for (const Status& each : unobserved_) unraised.push_back(each.to_string());
    unobserved_.clear();
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(unraised.size(), kMostWarned); ++i)
    text += (i == 0 ? "" : "\n") + ("not raised any more: " + unraised[i]);
  if (unraised.size() > kMostWarned)
    text += "\nand " + std::to_string(unraised.size() - kMostWarned) + " more calls were wrong";
  return text;
}

Status LateErrors::extract(std::map<uint64_t, Late>::iterator late) {
  if (reported_.size() >= kMostKept)
    reported_until_ = std::max(reported_until_, reported_.extract(reported_.begin()).value());
  reported_.insert(late->first);
  return std::move(late_.extract(late).mapped().what);
}

void LateErrors::update() {
  const bool any = late_.upper_bound(settled_) != late_.end() || !unobserved_.empty();
  any_.store(any ? 1 : 0, std::memory_order_release);
}

}  // namespace pc
