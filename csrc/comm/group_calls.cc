#include "comm/group_calls.h"

#include <algorithm>

#include "comm/descriptor.h"

namespace pc {
namespace {

using State = CallReport::State;
// More than ControlPlane::kPatience: the thread that collects may itself be late.
constexpr std::chrono::milliseconds kPatience{1000};
constexpr std::chrono::milliseconds kSlice{20};

int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

// Collecting what the others know delays the caller. Nobody who presses Ctrl-C or cancels wants to wait for it.
bool worth_waiting(Code code) { return code == Code::kMismatch || code == Code::kTimeout; }

}  // namespace

GroupCalls::GroupCalls(const Parts& parts, uint32_t group, GroupNames names)
    : parts_(parts),
      group_(group),
      names_(std::move(names)) {}

// ---- around a call

Status GroupCalls::look() {
  const std::lock_guard lock(mutex_);
  if (!cause_.is_ok()) return cause();
  if (!deferred_) return Status::ok();
  const Status late = *deferred_;
  deferred_.reset();
  noted_.store(0, std::memory_order_release);
  return late;
}

// At the entry of a later call. The first cause speaks again.
Status GroupCalls::cause() const {
  return Status(cause_.code(), "this group ended earlier: " + cause_.to_string())
      .with_rank(names_.rank())
      .with_peer(cause_.peer())
      .with_cause(cause_.cause());
}

bool GroupCalls::given_up_before(uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  return endings_.count(sequence) != 0;
}

void GroupCalls::done(const Call& call) { parts_.recorder->end(call.ticket, Code::kOk, now_ns()); }

void GroupCalls::settle() {
  const std::lock_guard lock(mutex_);
  deferred_.reset();
  noted_.store(0, std::memory_order_release);
}

Status GroupCalls::told(const Status& ended, const Call& call, const std::string& operation) const {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - call.began;
  return Status(ended.code(), ended.message() + advice(ended))
      .with_rank(names_.rank())
      .with_peer(ended.peer())
      .with_operation(operation)
      .with_elapsed(elapsed.count())
      .with_sequence(call.sequence)
      .with_cause(ended.cause());
}

Status GroupCalls::conclude(const Status& ended, const Call& call, const std::string& operation,
                            const Probe* probe) {
  parts_.recorder->end(call.ticket, ended.code(), now_ns());
  if (ended.code() == Code::kPeerFailure)
    return told(first_failure(ended, operation, probe), call, operation);
  const Rank by = ended.code() == Code::kPeerExited ? ended.peer() : names_.rank();
  const CallEnd ours{ended.code(), names_.to_world(by), ended.message()};
  bool others_know = false;
  {
    const std::lock_guard lock(mutex_);
    if (!cause_.is_ok()) {
      endings_.erase(call.sequence);
      return told(ended.code() == Code::kInterrupted ? ended : cause_, call, operation);
    }
    const auto [ending, first] = endings_.try_emplace(call.sequence, Ending{ours, false, std::nullopt});
    others_know = !first;
  }
  if (!others_know) parts_.control->gave_up(id(call.sequence), ours);
  Status outcome = ended;
  if (ended.code() != Code::kInterrupted && (others_know || worth_waiting(ended.code())))
    outcome = await_verdict(call.sequence, probe);
  if (outcome.code() == Code::kPeerExited) end_group(outcome.with_operation(operation));
  const std::lock_guard lock(mutex_);
  endings_.erase(call.sequence);
  return told(outcome, call, operation);
}

void GroupCalls::forsake(const Status& ended, const Call& call) {
  parts_.recorder->end(call.ticket, ended.code(), now_ns());
  const std::lock_guard lock(mutex_);
  const bool others_know = endings_.erase(call.sequence) != 0;
  if (!cause_.is_ok() || others_know) return;
  parts_.control->gave_up(id(call.sequence), {ended.code(), names_.to_world(names_.rank()), ended.message()});
}

Status GroupCalls::conclude_message(const Status& ended, const Call& call, const std::string& operation,
                                    const Probe* probe) {
  parts_.recorder->end(call.ticket, ended.code(), now_ns());
  switch (ended.code()) {
    case Code::kPeerFailure: return told(first_failure(ended, operation, probe), call, operation);
    case Code::kTimeout: return told(with_standing(ended, probe), call, operation);
    case Code::kAborted: {
      const std::lock_guard lock(mutex_);
      return told(cause_.is_ok() ? ended : cause_, call, operation);
    }
    default: return told(ended, call, operation);
  }
}

bool GroupCalls::peer_has_left(Rank peer) {
  constexpr std::chrono::milliseconds kOnItsWay{500};
  uint64_t next = 0;
  {
    const std::unique_lock in_turn = turn();
    next = sequence_ + 1;
  }
  const std::lock_guard lock(mutex_);
  if (!cause_.is_ok()) return false;
  parts_.control->stalled(id(next), names_.to_world(peer));
  const auto left = leaving_.find(peer);
  return left != leaving_.end() && std::chrono::steady_clock::now() - left->second > kOnItsWay;
}

// A connection broke. Its other end need not be the first that failed: it may have left because of a death of which this
// rank has not heard yet. The control thread knows the order.
Status GroupCalls::first_failure(const Status& ended, const std::string& operation, const Probe* probe) {
  {
    std::unique_lock lock(mutex_);
    if (!cause_.is_ok()) return cause_;
    parts_.control->lost(names_.to_world(ended.peer()), ended.message());
    (void)wait_briefly(lock, probe, [this] { return !cause_.is_ok(); });
  }
  end_group(ended.with_cause(ended.message()).with_operation(operation));
  const std::lock_guard lock(mutex_);
  return cause_;
}

// Asks the peer of a message that did not come where it stands.
Status GroupCalls::with_standing(const Status& ended, const Probe* probe) {
  uint64_t next = 0;
  {
    const std::unique_lock in_turn = turn();
    next = sequence_ + 1;
  }
  std::unique_lock lock(mutex_);
  surveys_.try_emplace(next);
  parts_.control->survey(id(next));
  (void)wait_briefly(lock, probe, [&] { return surveys_[next].has_value() || !cause_.is_ok(); });
  const std::optional<std::vector<Standing>> standings = surveys_[next];
  surveys_.erase(next);
  if (!standings || ended.peer() < 0) return ended;
  const Standing& peer = (*standings)[static_cast<std::size_t>(ended.peer())];
  return Status(ended.code(), ended.message() + "; " + position_text(peer, names_)).with_peer(ended.peer());
}

template <class Ready>
bool GroupCalls::wait_briefly(std::unique_lock<std::mutex>& lock, const Probe* probe, Ready&& ready) {
  const TimePoint until = std::chrono::steady_clock::now() + kPatience;
  while (!ready()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    told_.wait_for(lock, kSlice);
    if (probe == nullptr || !*probe || ready()) continue;
    lock.unlock();  // the probe runs other people's code
    const bool interrupted = (*probe)();
    lock.lock();
    if (interrupted) return false;
  }
  return true;
}

// OK: there is nothing to add to how the call ended here.
Status GroupCalls::await_verdict(uint64_t sequence, const Probe* probe) {
  std::unique_lock lock(mutex_);
  const CallEnd why = endings_[sequence].why;
  const auto has_verdict = [&] { return endings_[sequence].verdict.has_value() || !cause_.is_ok(); };
  if (worth_waiting(why.code)) (void)wait_briefly(lock, probe, has_verdict);
  if (!cause_.is_ok()) return cause_;
  const Ending& ending = endings_[sequence];
  return ending.verdict ? *ending.verdict : verdict_of(ending.why, {}, names_);
}

void GroupCalls::abort(const Status& why) noexcept { end_group(why); }

void GroupCalls::end_group(const Status& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!cause_.is_ok()) return;
    cause_ = why;
    ended_.store(1, std::memory_order_release);
    told_.notify_all();
  }
  if (parts_.executor == nullptr) return;
  parts_.executor->abort(group_, Status(Code::kAborted, "this group ended: " + why.to_string()));
  parts_.reactor->wake();
}

std::string GroupCalls::advice(const Status& ended) const {
  const std::string who = names_.full(ended.peer());
  switch (ended.code()) {
    case Code::kTimeout: return ". If a rank is only slow, a longer timeout helps";
    case Code::kPeerFailure:
    case Code::kPeerExited: return ". Look at the output of " + who + " for the cause";
    case Code::kMismatch:
      return "\nAll ranks must make the same calls in the same order, with equal dtype, count, op and root";
    default: return "";
  }
}

// ---- ControlledGroup

CallReport GroupCalls::report(uint64_t sequence) {
  CallReport report;
  if (const std::optional<CallRecord> last = parts_.recorder->last_done(group_)) {
    report.last_done = last->sequence;
    report.last_call = "#" + std::to_string(last->sequence) + " " + call_text(fields_of(*last)) +
                       (last->site != nullptr ? std::string(" at ") + last->site : "");
  }
  const std::optional<CallRecord> record = parts_.recorder->find(group_, sequence);
  if (!record) {
    const std::unique_lock lock = turn();
    report.state =
        sequence > sequence_ ? State::kNotMade : State::kDone;  // so long ago that it is not recorded
    return report;
  }
  switch (record->state) {
    case CallRecord::State::kRunning: report.state = State::kRunning; break;
    case CallRecord::State::kDone: report.state = State::kDone; break;
    case CallRecord::State::kFailed: report.state = State::kGivenUp; break;
  }
  if (record->kind == CallRecord::Kind::kShutdown) report.state = State::kLeaving;
  report.digest = record->digest;
  report.call = fields_of(*record);
  if (record->site != nullptr) report.site = record->site;
  return report;
}

void GroupCalls::end_call(uint64_t sequence, const CallEnd& why) {
  // Not while a call is between its number and its launch.
  const std::unique_lock in_turn = turn();
  const State state = sequence > sequence_ ? State::kNotMade : State::kUnknown;
  const std::optional<CallRecord> record = parts_.recorder->find(group_, sequence);
  const bool runs = record && record->state == CallRecord::State::kRunning;
  if (state != State::kNotMade && !runs) return;
  {
    const std::lock_guard lock(mutex_);
    if (!cause_.is_ok()) return;
    const auto [ending, first] = endings_.try_emplace(sequence);
    if (!first) return;
    ending->second = {why, true, std::nullopt};
  }
  parts_.executor->cancel(group_, sequence, verdict_of(why, {}, names_));
}

void GroupCalls::verdict(uint64_t sequence, const CallEnd& why, std::span<const Standing> standings) {
  const std::optional<CallRecord> record = parts_.recorder->find(group_, sequence);
  const std::lock_guard lock(mutex_);
  const auto ending = endings_.find(sequence);
  if (record && record->state == CallRecord::State::kDone) {
    if (ending != endings_.end()) endings_.erase(ending);
    if (why.code != Code::kMismatch || deferred_) return;
    // Its part is done, and it was another part than the others expected.
    const Status late = verdict_of(why, standings, names_);
    deferred_ =
        Status(late.code(), "call #" + std::to_string(sequence) +
                                " of this group, which this rank had completed, was wrong: " + late.message())
            .with_rank(names_.rank())
            .with_peer(late.peer())
            .with_sequence(sequence);
    noted_.store(1, std::memory_order_release);
    return;
  }
  if (ending == endings_.end()) return;  // its caller has not waited for this
  ending->second.why = why;
  ending->second.verdict = verdict_of(why, standings, names_);
  told_.notify_all();
}

void GroupCalls::surveyed(uint64_t sequence, std::span<const Standing> standings) {
  const std::lock_guard lock(mutex_);
  const auto waited_for = surveys_.find(sequence);
  if (waited_for != surveys_.end()) {
    waited_for->second.emplace(standings.begin(), standings.end());
    told_.notify_all();
    return;
  }
  const std::string late = late_ranks(standings, names_);
  parts_.log.warning([&] {
    return "call #" + std::to_string(sequence) + " waits for long: " +
           (late.empty() ? "every rank is in it, so it is slow rather than late" : late);
  });
}

void GroupCalls::peer_leaving(Rank peer) {
  const std::lock_guard lock(mutex_);
  leaving_.try_emplace(names_.from_world(peer), std::chrono::steady_clock::now());
}

void GroupCalls::peer_ended(Rank peer, const Status& why) {
  const Rank rank = names_.from_world(peer);
  if (rank < 0) return;
  const std::string who = names_.full(rank);
  const std::string text = why.code() == Code::kExcluded ? why.message() + " (told by " + who + ")"
                                                         : who + " failed: " + why.cause();
  end_group(Status(why.code(), text).with_peer(rank).with_cause(why.cause()));
}

}  // namespace pc
