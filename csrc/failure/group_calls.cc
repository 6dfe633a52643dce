#include "failure/group_calls.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "failure/descriptor.h"

namespace pc {
namespace {

// If this rank has called shutdown(), returns that call. Otherwise returns the latest call or
// message in which a thread waits, or nullopt if the question is only about shutdown().
std::optional<CallRecord> running_now(const GroupCalls::Parts& parts, const CallId& question) {
  const uint32_t group = question.group;
  std::optional<CallRecord> leaving = parts.recorder->last_shutdown(group);
  if (leaving || question.sequence == CallId::kPresence) return leaving;
  const std::optional<CallRecord> call = parts.recorder->last_running(group),
                                  message = parts.messages->last_running(group);
  return !call || (message && message->began_ns > call->began_ns) ? message : call;
}

}  // namespace

GroupCalls::GroupCalls(const Parts& parts, uint32_t group, GroupNames names)
    : parts_(parts),
      group_(group),
      names_(std::move(names)),
      identity_(identity_of(group, names_.world_ranks())),
      state_(names_.rank()) {}

// ---- around a call

Status GroupCalls::look() {
  {
    const std::lock_guard lock(state_.mutex);
    if (!state_.cause.is_ok()) {
      state_.cause_reported = true;
      return cause();
    }
  }
  return noticed();
}

Status GroupCalls::alive() const {
  const std::lock_guard lock(state_.mutex);
  return state_.cause.is_ok() ? Status::ok() : cause();
}

uint64_t GroupCalls::digest_of_leaving(uint64_t sequence) const {
  return pc::digest_of_leaving(identity_, sequence);
}

// Returns the error that every later call raises.
Status GroupCalls::cause() const {
  return Status(state_.cause.code(), "an earlier call ended " +
                                         std::string(group_ == kWorldGroup ? "the world" : "this group") +
                                         ": " + state_.cause.to_string())
      .with_rank(names_.rank())
      .with_peer(state_.cause.peer())
      .with_cause(state_.cause.cause());
}

bool GroupCalls::given_up_before(uint64_t sequence) {
  if (!state_.endings.any()) return false;
  const std::lock_guard lock(state_.mutex);
  return state_.endings.find(sequence) != nullptr;
}

Status GroupCalls::quit_by_others() {
  if (!state_.endings.any()) return Status::ok();
  const std::unique_lock issuing = issue_order();
  const std::lock_guard lock(state_.mutex);
  // The rank that quit may have been ahead of this rank, so the end of any later call counts.
  const CallEnd* const left = state_.endings.left_behind(sequence_);
  return left == nullptr ? Status::ok() : failure_of(*left, {}, names_);
}

void GroupCalls::done(const GroupCall& call) {
  end_record(call, Code::kOk);
  if (call.sequence == 0 || !state_.endings.any()) return;
  std::unique_lock lock(state_.mutex);  // other ranks may have given it up while it succeeded here
  const CallEnding* const ending = state_.endings.find(call.sequence);
  // not given up, or the failure report is still outstanding
  if (ending == nullptr || !ending->answers.statuses) return;
  wrong_after_all(call.sequence, failure_of(ending->why, *ending->answers.statuses, names_));
  state_.endings.forget(call.sequence);
  warn_of_unraised(lock);
}

void GroupCalls::cancel(uint64_t sequence, const Status& why) {
  const std::lock_guard lock(state_.mutex);
  if (state_.cause.is_ok()) parts_.executor->cancel(group_, sequence, why);
}

bool GroupCalls::peer_has_left(Rank peer) {
  constexpr std::chrono::milliseconds kInFlight{500};
  const std::lock_guard lock(state_.mutex);
  if (!state_.cause.is_ok()) return false;
  parts_.control->stalled(id(CallId::kPresence), names_.to_world(peer));
  const auto left = state_.leaving.find(peer);
  return left != state_.leaving.end() && now() - left->second > kInFlight;
}

void GroupCalls::close() {
  std::unique_lock lock(state_.mutex);
  state_.closing = true;
  warn_of_unraised(lock);
}

void GroupCalls::quit(const Status& why) {
  if (*word() != 0) return;  // the group has ended already, and the members are informed
  end_for_all(why, {Code::kPeerExited, names_.to_world(names_.rank()), why.message()});
}

// Gives up every call in which another rank could wait for this rank.
void GroupCalls::end_for_all(const Status& why, const CallEnd& report) {
  std::vector<uint64_t> unfinished;
  {
    const std::unique_lock issuing = issue_order();
    for (const CallRecord& call : parts_.recorder->all()) {
      if (call.group == group_ && call.sequence != 0 && call.state == CallRecord::State::kRunning)
        unfinished.push_back(call.sequence);
    }
    // The next call: ranks that have completed the same calls as this rank are in it.
    unfinished.push_back(sequence_ + 1);
  }
  abort(why);
  if (parts_.control == nullptr) return;
  for (const uint64_t sequence : unfinished) parts_.control->gave_up(id(sequence), report);
}

void GroupCalls::abort(const Status& why) noexcept {
  {
    const std::lock_guard lock(state_.mutex);
    if (!state_.cause.is_ok()) return;
    state_.cause = why;
    state_.ended.store(1, std::memory_order_release);
    state_.changed.notify_all();
  }
  if (parts_.executor != nullptr)
    parts_.executor->abort(group_, Status(Code::kAborted, "this group ended: " + why.to_string()));
  if (parts_.reactor == nullptr) return;
  parts_.reactor->wake();
  complete(parts_.group_ends, 0, Status());
}

// ---- earlier calls

void GroupCalls::unobserved(const Status& outcome) {
  std::unique_lock lock(state_.mutex);
  if (state_.cause_reported || !state_.late_errors.add_unobserved(outcome, state_.closing)) return;
  warn_of_unraised(lock);
}

Status GroupCalls::noticed() {
  const std::lock_guard lock(state_.mutex);
  return state_.late_errors.take();
}

void GroupCalls::settle(uint64_t sequence) {
  std::unique_lock lock(state_.mutex);
  for (const Status& what : state_.late_errors.settle(sequence))
    parts_.log.warning("not raised any more: " + what.to_string());
  warn_of_unraised(lock);
}

// Warns of errors that no call will raise, once all is known about them.
void GroupCalls::warn_of_unraised(std::unique_lock<std::mutex>& lock) {
  if (state_.closing && state_.cause_reported) state_.late_errors.forget_unobserved();
  const std::string text = state_.late_errors.take_unraised(state_.closing || !state_.cause.is_ok(),
                                                            state_.closing, /*awaits=*/parts_.compares);
  lock.unlock();
  if (!text.empty()) parts_.log.warning(text);
}

// Records that a call that completed here was another call on other ranks. The caller holds the
// mutex.
void GroupCalls::wrong_after_all(uint64_t sequence, const Status& failure_report) {
  if (failure_report.code() == Code::kMismatch && !parts_.confirms)
    state_.late_errors.add(sequence, failure_report, true);
}

void GroupCalls::late_mismatch(uint64_t sequence, Rank peer, const Status& why) {
  const std::lock_guard lock(state_.mutex);
  if (!state_.cause.is_ok()) return;
  const std::optional<CallRecord> record = parts_.recorder->find(group_, sequence);
  // If the call failed here, or has a confirmation, its caller is informed of the mismatch by that
  // failure or confirmation.
  if (!parts_.confirms && (!record || record->state != CallRecord::State::kFailed))
    state_.late_errors.add(sequence, Status(why.code(), why.message()).with_peer(names_.from_world(peer)),
                           false);
  parts_.control->stalled(id(sequence), peer);  // the peer compares the two calls and notifies all ranks
}

// ---- ControlledGroup

CallReport GroupCalls::report(uint64_t sequence) {
  CallReport report;
  if (const std::optional<CallRecord> last = parts_.recorder->last_done(group_)) {
    report.last_done = last->sequence;
    report.last_call = "#" + std::to_string(last->sequence) + " " + call_text(fields_of(*last)) +
                       (last->site != nullptr ? std::string(" at ") + last->site : "");
  }
  const CallId call = id(sequence);
  const auto look = [&] {
    return call.is_call() ? parts_.recorder->find(group_, sequence) : running_now(parts_, call);
  };
  std::optional<CallRecord> record = look();
  if (!record) {
    const std::unique_lock lock = issue_order();
    record = look();  // another thread may have numbered the call before, and recorded it only now
    if (!record) {
      report.state = !call.is_call() || sequence > sequence_
                         ? CallReport::State::kNotMade
                         : CallReport::State::kDone;  // so old that it is no longer recorded
      return report;
    }
  }
  switch (record->state) {
    case CallRecord::State::kRunning: report.state = CallReport::State::kRunning; break;
    case CallRecord::State::kDone: report.state = CallReport::State::kDone; break;
    case CallRecord::State::kFailed: report.state = CallReport::State::kGivenUp; break;
  }
  if (record->kind == CallRecord::Kind::kShutdown) report.state = CallReport::State::kLeaving;
  report.digest = call.is_call() ? record->digest : 0;  // a digest can only be compared for a numbered call
  report.call = fields_of(*record);
  if (record->site != nullptr) report.site = record->site;
  return report;
}

void GroupCalls::end_call(uint64_t sequence, const CallEnd& why) {
  bool made = false, ahead = false;
  {
    const std::unique_lock issuing = issue_order();  // so that every numbered call has been launched
    made = sequence <= sequence_;
    const std::optional<CallRecord> record = parts_.recorder->find(group_, sequence);
    const bool done = made && (!record || record->state != CallRecord::State::kRunning);
    ahead = done && why.code == Code::kPeerExited && (!record || record->kind != CallRecord::Kind::kShutdown);
    const std::lock_guard lock(state_.mutex);
    if (!state_.cause.is_ok() || state_.endings.is_full()) return;
    if (!done && !state_.endings.add(sequence, why)) return;
  }
  // A member has quit in a call that this rank has already completed. That member takes no part in
  // the later calls of this rank, so the group ends.
  if (ahead) abort(failure_of(why, {}, names_));
  // Ends the call here. Data sent for it may be stored here even if this rank's part is done. A
  // call that was not made yet is ended when it is made.
  if (made) cancel(sequence, failure_of(why, {}, names_));
}

void GroupCalls::failure_report(uint64_t sequence, const CallEnd& why, std::span<const RankStatus> statuses) {
  std::unique_lock lock(state_.mutex);
  const std::optional<CallRecord> record = parts_.recorder->find(group_, sequence);
  if (record && record->state == CallRecord::State::kDone) {
    wrong_after_all(sequence, failure_of(why, statuses, names_));
    state_.endings.forget(sequence);
    return warn_of_unraised(lock);
  }
  CallEnding* const ending = state_.endings.find(sequence);
  if (ending == nullptr) return;  // the caller did not wait for the report
  ending->why = why;
  ending->answers.come(statuses);
  state_.changed.notify_all();
}

void GroupCalls::surveyed(uint64_t sequence, std::span<const RankStatus> statuses) {
  {
    const std::lock_guard lock(state_.mutex);
    if (state_.surveys.answer(sequence, statuses)) return state_.changed.notify_all();
    if (!id(sequence).is_call()) return;
  }
  const std::string late = late_ranks(statuses, names_);
  parts_.log.warning([&] {
    return "call #" + std::to_string(sequence) + " waits for long: " +
           (late.empty() ? "every rank is in it, so it is slow rather than late" : late);
  });
}

void GroupCalls::peer_leaving(Rank peer) {
  const std::lock_guard lock(state_.mutex);
  state_.leaving.try_emplace(names_.from_world(peer), now());
}

void GroupCalls::peer_exited(Rank peer) {
  const std::lock_guard lock(state_.mutex);
  if (state_.cause.is_ok() && names_.from_world(peer) >= 0) parts_.executor->peer_left(peer);
}

void GroupCalls::peer_ended(Rank peer, const Status& why) {
  const Rank rank = names_.from_world(peer);
  if (rank < 0) return;
  const std::string rank_name = names_.full(rank);
  const std::string text = why.code() == Code::kExcluded ? why.message() + " (reported by " + rank_name + ")"
                                                         : rank_name + " failed: " + why.cause();
  abort(Status(why.code(), text).with_peer(rank).with_cause(why.cause()));
}

}  // namespace pc
