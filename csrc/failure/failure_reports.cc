#include "failure/failure_reports.h"

#include <utility>

#include "base/wait_in_slices.h"
#include "failure/descriptor.h"

namespace pc {
namespace {

// A caller that has waited for less than this probably polls in a loop, so no inquiry is sent.
constexpr std::chrono::milliseconds kPolling{100};

// Returns true if the caller may be delayed until other ranks' reports have arrived. It must not be
// delayed after Ctrl-C or a cancellation.
bool worth_waiting(Code code) { return code == Code::kMismatch || code == Code::kTimeout; }

bool polled(const GroupCall& call) { return now() - call.began < kPolling; }

// Returns advice to append to the error. `rank_name` is the name of `ended.peer()`.
std::string advice(const Status& ended, const std::string& rank_name, bool is_message) {
  switch (ended.code()) {
    case Code::kTimeout: return ". If a rank is only slow, a longer timeout helps";
    case Code::kPeerFailure:
    case Code::kPeerExited: return ". Look at the output of " + rank_name + " for the cause";
    case Code::kMismatch:
      if (is_message)
        return "\nThe messages between two ranks with one tag are received in order, each as what it was "
               "sent as";
      return "\nAll ranks must make the same calls in the same order, with equal dtype, count, op and root";
    default: return "";
  }
}

}  // namespace

FailureReports::FailureReports(GroupCalls& calls)
    : calls_(calls),
      state_(calls.state()),
      parts_(calls.parts()),
      names_(calls.names()) {}

Status FailureReports::why_given_up(uint64_t sequence, const Status& otherwise) const {
  const std::lock_guard lock(state_.mutex);
  const CallEnding* const ending = state_.endings.find(sequence);
  return ending == nullptr ? otherwise : failure_of(ending->why, {}, names_);
}

Status FailureReports::report(const Status& ended, const GroupCall& call,
                              const std::string& operation) const {
  const std::chrono::duration<double> elapsed = now() - call.began;
  return Status(ended.code(), ended.message() + advice(ended, names_.full(ended.peer()), call.sequence == 0))
      .with_rank(names_.rank())
      .with_peer(ended.peer())
      .with_operation(operation)
      .with_elapsed(elapsed.count())
      .with_sequence(call.confirms != 0 ? call.confirms : call.sequence)
      .with_cause(ended.cause());
}

// For a call that ended because the group ended: returns an earlier failure of the call itself, or
// nullopt if there is none. A rank that detected this failure may have raised it and left, which
// ended the group. In that case the next call raises the end of the group.
std::optional<Status> FailureReports::before_the_end(Lock& lock, uint64_t sequence, const Status& ended,
                                                     const WaitContext& context) {
  const auto is_first = [](Code code) { return code == Code::kMismatch || code == Code::kInterrupted; };
  const CallEnding* const ending = state_.endings.find(sequence);
  if (ended.code() != Code::kInterrupted && ending != nullptr && is_first(ending->why.code)) {
    Status failure_report = report_on(lock, sequence, *ending, context);
    // Without reports from other ranks, the error that this rank found itself is the most precise.
    const bool knows_better = ended.code() == Code::kMismatch && !ending->answers.statuses;
    return knows_better ? ended : failure_report;
  }
  return is_first(ended.code()) ? std::optional(ended) : std::nullopt;
}

bool FailureReports::is_awaited(const CallEnding& ending) const {
  const Code code = ending.why.code;
  const bool others_speak =
      state_.cause.code() == Code::kPeerFailure || state_.cause.code() == Code::kPeerExited;
  const bool is_worth = state_.cause.is_ok() ? worth_waiting(code) : others_speak && code == Code::kMismatch;
  return is_worth && !state_.closing && ending.answers.are_open();
}

// Returns the error of a call that ended on all ranks. May wait for other ranks' reports. `ending`
// stays valid meanwhile, because only this thread removes it.
Status FailureReports::report_on(Lock& lock, uint64_t sequence, const CallEnding& ending,
                                 const WaitContext& context) {
  (void)wait_briefly(lock, context, ending.answers.began, [&] { return !is_awaited(ending); });
  const CallEnd why = ending.why;
  std::vector<RankStatus> statuses = ending.answers.statuses.value_or(std::vector<RankStatus>());
  // The report about this rank may be older than its call, because other ranks may have given the
  // call up before this rank made it. Replaces that report by the current one.
  if (!statuses.empty() && why.code == Code::kMismatch) {
    lock.unlock();
    statuses[static_cast<std::size_t>(names_.rank())].report = calls_.report(sequence);
    lock.lock();
  }
  return failure_of(why, statuses, names_);
}

Status FailureReports::conclude(const Status& ended, const GroupCall& call, const std::string& operation,
                                const WaitContext& context) {
  const auto record = [&] { calls_.end_record(call, ended.code()); };
  if (ended.code() == Code::kPeerFailure) {
    const Status failure = first_failure(ended, operation, context);
    std::unique_lock lock(state_.mutex);
    const Status first = before_the_end(lock, call.sequence, ended, context).value_or(failure);
    record();  // not earlier: reports on a failed call are discarded unless its end is stored
    state_.endings.forget(call.sequence);
    return report(first, call, operation);
  }
  const CallEnd ours = call_end_of(ended);
  // A timeout in shutdown() is not reported to the other ranks: no rank needs this call, and a rank
  // that enters shutdown() later detects that this rank has left.
  if (call.leaving && ended.code() == Code::kTimeout) {
    record();
    return report(failure_of(ours, survey(call.sequence, context), names_), call, operation);
  }
  bool others_know = false;
  {
    std::unique_lock lock(state_.mutex);
    // In the same critical section as adding the end of the call, because reports on a failed call
    // are discarded unless its end is stored.
    record();
    if (!state_.cause.is_ok()) {
      const Status first = before_the_end(lock, call.sequence, ended, context).value_or(state_.cause);
      state_.endings.forget(call.sequence);
      return report(first, call, operation);
    }
    if (state_.closing) {
      state_.endings.forget(call.sequence);
      return report(Status(Code::kNotInitialized, "shutdown() ended this call"), call, operation);
    }
    others_know = !state_.endings.add(call.sequence, ours);
  }
  if (!others_know) parts_.control->gave_up(calls_.id(call.sequence), ours);
  Status outcome = ended;
  if (ended.code() != Code::kInterrupted && (others_know || worth_waiting(ended.code())))
    outcome = await_report(call.sequence, ended, context);
  if (outcome.code() == Code::kPeerExited)
    calls_.end_for_all(outcome.with_operation(operation), call_end_of(outcome));
  const std::lock_guard lock(state_.mutex);
  state_.endings.forget(call.sequence);
  state_.late_errors.drop(call.sequence);
  return report(outcome, call, operation);
}

CallEnd FailureReports::call_end_of(const Status& ended) const {
  const Rank by = ended.code() == Code::kPeerExited ? ended.peer() : names_.rank();
  return {ended.code(), names_.to_world(by), ended.message()};
}

bool FailureReports::requests_reports(const Status& ended, const GroupCall& call) {
  if (ended.code() == Code::kInterrupted) return false;
  const CallEnd ours = call_end_of(ended);
  {
    const std::lock_guard lock(state_.mutex);
    if (state_.closing) return false;
    if (const CallEnding* const ending = state_.endings.find(call.sequence); ending != nullptr)
      return is_awaited(*ending);
    if (!state_.cause.is_ok() || !worth_waiting(ended.code())) return false;
    // in the same critical section as adding the end, as in conclude()
    calls_.end_record(call, ended.code());
    (void)state_.endings.add(call.sequence, ours);
  }
  parts_.control->gave_up(calls_.id(call.sequence), ours);
  return true;
}

void FailureReports::conclude_detached(const Status& ended, const GroupCall& call) {
  calls_.end_record(call, ended.code());
  const std::lock_guard lock(state_.mutex);
  const bool others_know = state_.endings.find(call.sequence) != nullptr;
  state_.endings.forget(call.sequence);
  if (!state_.cause.is_ok() || state_.closing || others_know) return;
  parts_.control->gave_up(calls_.id(call.sequence),
                          {ended.code(), names_.to_world(names_.rank()), ended.message()});
}

bool FailureReports::requests_peer_report(const Status& ended, GroupCall& call) {
  if (ended.code() != Code::kTimeout || ended.peer() < 0 || ended.peer() == names_.rank()) return false;
  if (!call.asked && polled(call)) return false;
  const uint64_t question = position_query(ended.peer());
  const std::lock_guard lock(state_.mutex);
  if (!state_.cause.is_ok()) return false;
  if (!std::exchange(call.asked, true)) (void)ask(question);
  const Answers* const answers = state_.surveys.find(question);
  return answers != nullptr && answers->are_open();
}

Status FailureReports::conclude_message(const Status& ended, const GroupCall& call,
                                        const std::string& operation, const WaitContext& context) {
  Status outcome = report_message_failure(ended, call, operation, context);
  if (!call.asked) return outcome;
  const std::lock_guard lock(state_.mutex);
  state_.surveys.leave(position_query(ended.peer()));
  return outcome;
}

Status FailureReports::report_message_failure(const Status& ended, const GroupCall& call,
                                              const std::string& operation, const WaitContext& context) {
  calls_.end_record(call, ended.code());
  switch (ended.code()) {
    case Code::kPeerFailure: return report(first_failure(ended, operation, context), call, operation);
    case Code::kTimeout: {
      // no inquiry for a caller that polls, or for a message to this rank itself
      const bool knows = polled(call) || ended.peer() == names_.rank();
      return report(knows ? ended : with_rank_status(ended, context), call, operation);
    }
    case Code::kAborted: {  // most likely a rank has died, and the peer was informed first
      std::unique_lock lock(state_.mutex);
      (void)wait_briefly(lock, context, now(), [this] { return !state_.cause.is_ok(); });
      return report(state_.cause.is_ok() ? ended : state_.cause, call, operation);
    }
    default: return report(ended, call, operation);
  }
}

// Returns the first failure behind a broken connection. The peer need not be the rank that failed
// first: it may have left because of a death of which this rank has not been informed yet. The
// control thread knows the order.
Status FailureReports::first_failure(const Status& ended, const std::string& operation,
                                     const WaitContext& context) {
  {
    std::unique_lock lock(state_.mutex);
    if (!state_.cause.is_ok()) return state_.cause;
    parts_.control->lost(names_.to_world(ended.peer()), ended.message());
    (void)wait_briefly(lock, context, now(), [this] { return !state_.cause.is_ok(); });
  }
  calls_.abort(ended.with_cause(ended.message()).with_operation(operation));
  const std::lock_guard lock(state_.mutex);
  return state_.cause;
}

// Appends to the error of a message what its peer is doing.
Status FailureReports::with_rank_status(const Status& ended, const WaitContext& context) {
  if (ended.peer() < 0) return ended;
  const std::vector<RankStatus> statuses = survey(position_query(ended.peer()), context);
  if (statuses.size() != 2) return ended;  // one status of this rank and one of the peer
  return Status(ended.code(), ended.message() + "; " + position_text(statuses[1], names_))
      .with_peer(ended.peer());
}

// Returns the statuses of the members, or an empty list if the group ended or an interrupt came
// first.
std::vector<RankStatus> FailureReports::survey(uint64_t sequence, const WaitContext& context) {
  std::unique_lock lock(state_.mutex);
  if (!state_.cause.is_ok()) return {};
  const Answers* const asked = ask(sequence);
  (void)wait_briefly(lock, context, asked->began,
                     [&] { return asked->statuses.has_value() || !state_.cause.is_ok(); });
  std::vector<RankStatus> statuses = asked->statuses.value_or(std::vector<RankStatus>());
  state_.surveys.leave(sequence);
  return statuses;
}

const Answers* FailureReports::ask(uint64_t question) {
  const auto [answers, is_first] = state_.surveys.join(question);
  if (is_first) parts_.control->survey(calls_.id(question));
  return answers;
}

template <class Ready>
bool FailureReports::wait_briefly(Lock& lock, const WaitContext& context, TimePoint began, Ready&& ready) {
  const TimePoint until = began + kWaitLimitForAnswers;
  while (!ready()) {
    if (now() >= until) return false;
    state_.changed.wait_for(lock, kWaitSlice);
    if (ready()) continue;
    lock.unlock();  // the probe runs the user's code
    const bool interrupted = context.is_interrupted();
    lock.lock();
    if (interrupted) return false;
  }
  return true;
}

Status FailureReports::await_report(uint64_t sequence, const Status& ended, const WaitContext& context) {
  std::unique_lock lock(state_.mutex);
  const CallEnding* const ending = state_.endings.find(sequence);
  if (ending == nullptr) return ended;
  Status failure_report = report_on(lock, sequence, *ending, context);
  return state_.cause.is_ok() ? failure_report
                              : before_the_end(lock, sequence, state_.cause, context).value_or(state_.cause);
}

}  // namespace pc
