#include "failure/call_endings.h"

namespace pc {
namespace {

constexpr std::size_t kMostEndings = 1024;

}  // namespace

CallEnding* CallEndings::find(uint64_t sequence) {
  const auto found = all_.find(sequence);
  return found == all_.end() ? nullptr : &found->second;
}

bool CallEndings::add(uint64_t sequence, const CallEnd& why) {
  const bool first = all_.try_emplace(sequence, CallEnding{why}).second;
  count_.store(static_cast<uint32_t>(all_.size()), std::memory_order_release);
  return first;
}

void CallEndings::forget(uint64_t sequence) {
  all_.erase(sequence);
  count_.store(static_cast<uint32_t>(all_.size()), std::memory_order_release);
}

bool CallEndings::is_full() const { return all_.size() >= kMostEndings; }

const CallEnd* CallEndings::left_behind(uint64_t sequence) const {
  for (auto each = all_.upper_bound(sequence); each != all_.end(); ++each) {
    if (each->second.why.code == Code::kPeerExited) return &each->second.why;
  }
  return nullptr;
}

std::pair<const Answers*, bool> Surveys::join(uint64_t question) {
  Survey& survey = all_[question];
  return {&survey.answers, survey.waiters++ == 0};
}

void Surveys::leave(uint64_t question) {
  const auto found = all_.find(question);
  if (found != all_.end() && --found->second.waiters == 0) all_.erase(found);
}

const Answers* Surveys::find(uint64_t question) const {
  const auto found = all_.find(question);
  return found == all_.end() ? nullptr : &found->second.answers;
}

bool Surveys::answer(uint64_t question, std::span<const RankStatus> statuses) {
  const auto found = all_.find(question);
  if (found == all_.end()) return false;
  found->second.answers.come(statuses);
  return true;
}

}  // namespace pc
