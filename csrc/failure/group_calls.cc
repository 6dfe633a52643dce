#include "failure/group_calls.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/wait_in_slices.h"
#include "failure/descriptor.h"

namespace pc {
namespace {

constexpr std::chrono::milliseconds kPolling{100};  // who waits less asks again and again: no questions then

// Collecting what the others know delays the caller. Nobody who presses Ctrl-C or cancels wants to wait for it.
bool worth_waiting(Code code) { return code == Code::kMismatch || code == Code::kTimeout; }

bool polled(const GroupCall& call) { return now() - call.began < kPolling; }

}  // namespace

GroupCalls::GroupCalls(const Parts& parts, uint32_t group, GroupNames names)
    : parts_(parts),
      group_(group),
      names_(std::move(names)),
      identity_(identity_of(group, names_.world_ranks())),
      late_errors_(names_.rank()) {}

// ---- around a call

Status GroupCalls::look() {
  {
    const std::lock_guard lock(mutex_);
    if (!cause_.is_ok()) {
      cause_told_ = true;
      return cause();
    }
  }
  return take_late_error();
}

Status GroupCalls::alive() const {
  const std::lock_guard lock(mutex_);
  return cause_.is_ok() ? Status::ok() : cause();
}

uint64_t GroupCalls::digest_of_leaving(uint64_t sequence) const {
  return pc::digest_of_leaving(identity_, sequence);
}

// At the entry of a later call. The first cause speaks again.
Status GroupCalls::cause() const {
  return Status(cause_.code(), "an earlier call ended " +
                                   std::string(group_ == kWorldGroup ? "the world" : "this group") + ": " +
                                   cause_.to_string())
      .with_rank(names_.rank())
      .with_peer(cause_.peer())
      .with_cause(cause_.cause());
}

bool GroupCalls::given_up_before(uint64_t sequence) {
  if (!endings_.any()) return false;
  const std::lock_guard lock(mutex_);
  return endings_.contains(sequence);
}

Status GroupCalls::quit_by_others() {
  if (!endings_.any()) return Status::ok();
  const std::unique_lock in_turn = turn();
  const std::lock_guard lock(mutex_);
  // Of a call that this rank has not made yet, whichever the other had come to.
  const CallEnd* const left = endings_.left_behind(sequence_);
  return left == nullptr ? Status::ok() : verdict_of(*left, {}, names_);
}

Status GroupCalls::why_given_up(uint64_t sequence, const Status& otherwise) {
  const std::lock_guard lock(mutex_);
  const CallEnding* const ending = endings_.find(sequence);
  return ending == nullptr ? otherwise : verdict_of(ending->why, {}, names_);
}

void GroupCalls::done(const GroupCall& call) {
  recorder_of(call).end(call.ticket, Code::kOk, now_ns());
  if (call.sequence == 0 || !endings_.any()) return;
  std::unique_lock lock(mutex_);  // others gave it up while it ended well here
  const CallEnding* const ending = endings_.find(call.sequence);
  if (ending == nullptr || !ending->answers.standings) return;  // or the verdict is still to come
  wrong_after_all(call.sequence, verdict_of(ending->why, *ending->answers.standings, names_));
  endings_.forget(call.sequence);
  warn_of_unraised(lock);
}

void GroupCalls::cancel(uint64_t sequence, const Status& why) {
  const std::lock_guard lock(mutex_);
  if (cause_.is_ok()) parts_.executor->cancel(group_, sequence, why);
}

Status GroupCalls::told(const Status& ended, const GroupCall& call, const std::string& operation) const {
  const std::chrono::duration<double> elapsed = now() - call.began;
  return Status(ended.code(), ended.message() + advice(ended, call.sequence == 0))
      .with_rank(names_.rank())
      .with_peer(ended.peer())
      .with_operation(operation)
      .with_elapsed(elapsed.count())
      .with_sequence(call.confirms != 0 ? call.confirms : call.sequence)
      .with_cause(ended.cause());
}

// What had gone wrong with this call when the group ended. The rank that heard of it first may have raised and gone already:
// that is a consequence, which the next call raises.
std::optional<Status> GroupCalls::before_the_end(std::unique_lock<std::mutex>& lock, uint64_t sequence,
                                                 const Status& ended, const WaitContext& context) {
  const auto is_first = [](Code code) { return code == Code::kMismatch || code == Code::kInterrupted; };
  const CallEnding* const ending = endings_.find(sequence);
  if (ended.code() != Code::kInterrupted && ending != nullptr && is_first(ending->why.code)) {
    Status verdict = verdict_on(lock, sequence, *ending, context);
    // Without what the others know, this rank knows best what it has seen itself.
    const bool knows_better = ended.code() == Code::kMismatch && !ending->answers.standings;
    return knows_better ? ended : verdict;
  }
  return is_first(ended.code()) ? std::optional(ended) : std::nullopt;
}

bool GroupCalls::is_awaited(const CallEnding& ending) const {
  const Code code = ending.why.code;
  const bool others_speak = cause_.code() == Code::kPeerFailure || cause_.code() == Code::kPeerExited;
  const bool is_worth = cause_.is_ok() ? worth_waiting(code) : others_speak && code == Code::kMismatch;
  return is_worth && !closing_ && ending.answers.are_open();
}

// May wait for what the others know about the call. The ending is there until this thread forgets it.
Status GroupCalls::verdict_on(std::unique_lock<std::mutex>& lock, uint64_t sequence, const CallEnding& ending,
                              const WaitContext& context) {
  (void)wait_briefly(lock, context, ending.answers.began, [&] { return !is_awaited(ending); });
  const CallEnd why = ending.why;
  std::vector<Standing> standings = ending.answers.standings.value_or(std::vector<Standing>());
  // The others may have given the call up before this rank made it, and do not know what it would have made.
  if (!standings.empty() && why.code == Code::kMismatch) {
    lock.unlock();
    standings[static_cast<std::size_t>(names_.rank())].report = report(sequence);
    lock.lock();
  }
  return verdict_of(why, standings, names_);
}

Status GroupCalls::conclude(const Status& ended, const GroupCall& call, const std::string& operation,
                            const WaitContext& context) {
  const auto record = [&] { recorder_of(call).end(call.ticket, ended.code(), now_ns()); };
  if (ended.code() == Code::kPeerFailure) {
    const Status failure = first_failure(ended, operation, context);
    std::unique_lock lock(mutex_);
    const Status first = before_the_end(lock, call.sequence, ended, context).value_or(failure);
    record();  // only now: what others say of a call that has failed and waits for nothing is taken for old news
    endings_.forget(call.sequence);
    return told(first, call, operation);
  }
  const CallEnd ours = our_word(ended);
  // Who comes to shutdown() later finds this rank gone, and that is all: nobody needs the call.
  if (call.leaving && ended.code() == Code::kTimeout) {
    record();
    return told(verdict_of(ours, survey(call.sequence, context), names_), call, operation);
  }
  bool others_know = false;
  {
    std::unique_lock lock(mutex_);
    // In one with the ending: a verdict on a call that has failed and waits for none is taken for old news.
    record();
    if (!cause_.is_ok()) {
      const Status first = before_the_end(lock, call.sequence, ended, context).value_or(cause_);
      endings_.forget(call.sequence);
      return told(first, call, operation);
    }
    if (closing_) {
      endings_.forget(call.sequence);
      return told(Status(Code::kNotInitialized, "shutdown() ended this call"), call, operation);
    }
    others_know = !endings_.add(call.sequence, ours);
  }
  if (!others_know) parts_.control->gave_up(id(call.sequence), ours);
  Status outcome = ended;
  if (ended.code() != Code::kInterrupted && (others_know || worth_waiting(ended.code())))
    outcome = await_verdict(call.sequence, ended, context);
  if (outcome.code() == Code::kPeerExited) end_for_all(outcome.with_operation(operation), our_word(outcome));
  const std::lock_guard lock(mutex_);
  endings_.forget(call.sequence);
  late_errors_.drop(call.sequence);
  return told(outcome, call, operation);
}

CallEnd GroupCalls::our_word(const Status& ended) const {
  const Rank by = ended.code() == Code::kPeerExited ? ended.peer() : names_.rank();
  return {ended.code(), names_.to_world(by), ended.message()};
}

bool GroupCalls::asks(const Status& ended, const GroupCall& call) {
  if (ended.code() == Code::kInterrupted) return false;
  const CallEnd ours = our_word(ended);
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return false;
    if (const CallEnding* const ending = endings_.find(call.sequence); ending != nullptr)
      return is_awaited(*ending);
    if (!cause_.is_ok() || !worth_waiting(ended.code())) return false;
    recorder_of(call).end(call.ticket, ended.code(), now_ns());  // in one with the ending, as in conclude()
    (void)endings_.add(call.sequence, ours);
  }
  parts_.control->gave_up(id(call.sequence), ours);
  return true;
}

void GroupCalls::forsake(const Status& ended, const GroupCall& call) {
  recorder_of(call).end(call.ticket, ended.code(), now_ns());
  const std::lock_guard lock(mutex_);
  const bool others_know = endings_.contains(call.sequence);
  endings_.forget(call.sequence);
  if (!cause_.is_ok() || closing_ || others_know) return;
  parts_.control->gave_up(id(call.sequence), {ended.code(), names_.to_world(names_.rank()), ended.message()});
}

bool GroupCalls::asks_peer(const Status& ended, GroupCall& call) {
  if (ended.code() != Code::kTimeout || ended.peer() < 0 || ended.peer() == names_.rank()) return false;
  if (!call.asked && polled(call)) return false;
  const uint64_t question = whereabouts(ended.peer()).sequence;
  const std::lock_guard lock(mutex_);
  if (!cause_.is_ok()) return false;
  if (!std::exchange(call.asked, true)) (void)ask(question);
  const Answers* const answers = surveys_.find(question);
  return answers != nullptr && answers->are_open();
}

Status GroupCalls::conclude_message(const Status& ended, const GroupCall& call, const std::string& operation,
                                    const WaitContext& context) {
  Status outcome = told_of_message(ended, call, operation, context);
  if (!call.asked) return outcome;
  const std::lock_guard lock(mutex_);
  surveys_.leave(whereabouts(ended.peer()).sequence);
  return outcome;
}

Status GroupCalls::told_of_message(const Status& ended, const GroupCall& call, const std::string& operation,
                                   const WaitContext& context) {
  recorder_of(call).end(call.ticket, ended.code(), now_ns());
  switch (ended.code()) {
    case Code::kPeerFailure: return told(first_failure(ended, operation, context), call, operation);
    case Code::kTimeout: {
      const bool knows = polled(call) || ended.peer() == names_.rank();  // no other rank can be asked
      return told(knows ? ended : with_standing(ended, context), call, operation);
    }
    case Code::kAborted: {  // most likely the peer has heard of a death before this rank
      std::unique_lock lock(mutex_);
      (void)wait_briefly(lock, context, now(), [this] { return !cause_.is_ok(); });
      return told(cause_.is_ok() ? ended : cause_, call, operation);
    }
    default: return told(ended, call, operation);
  }
}

bool GroupCalls::peer_has_left(Rank peer) {
  constexpr std::chrono::milliseconds kOnItsWay{500};
  const std::lock_guard lock(mutex_);
  if (!cause_.is_ok()) return false;
  parts_.control->stalled(id(CallId::kPresence), names_.to_world(peer));
  const auto left = leaving_.find(peer);
  return left != leaving_.end() && now() - left->second > kOnItsWay;
}

// A connection broke. Its other end need not be the first that failed: it may have left because of a death of which this
// rank has not heard yet. The control thread knows the order.
Status GroupCalls::first_failure(const Status& ended, const std::string& operation,
                                 const WaitContext& context) {
  {
    std::unique_lock lock(mutex_);
    if (!cause_.is_ok()) return cause_;
    parts_.control->lost(names_.to_world(ended.peer()), ended.message());
    (void)wait_briefly(lock, context, now(), [this] { return !cause_.is_ok(); });
  }
  end_group(ended.with_cause(ended.message()).with_operation(operation));
  const std::lock_guard lock(mutex_);
  return cause_;
}

// Asks the peer of a message that did not come where it stands.
Status GroupCalls::with_standing(const Status& ended, const WaitContext& context) {
  if (ended.peer() < 0) return ended;
  const std::vector<Standing> standings = survey(whereabouts(ended.peer()).sequence, context);
  if (standings.size() != 2) return ended;  // of this rank, and of the one that was asked
  return Status(ended.code(), ended.message() + "; " + position_text(standings[1], names_))
      .with_peer(ended.peer());
}

// Empty: the group has ended, or an interrupt came first.
std::vector<Standing> GroupCalls::survey(uint64_t sequence, const WaitContext& context) {
  std::unique_lock lock(mutex_);
  if (!cause_.is_ok()) return {};
  const Answers* const asked = ask(sequence);
  (void)wait_briefly(lock, context, asked->began,
                     [&] { return asked->standings.has_value() || !cause_.is_ok(); });
  std::vector<Standing> standings = asked->standings.value_or(std::vector<Standing>());
  surveys_.leave(sequence);
  return standings;
}

const Answers* GroupCalls::ask(uint64_t question) {
  const auto [answers, is_first] = surveys_.join(question);
  if (is_first) parts_.control->survey(id(question));
  return answers;
}

template <class Ready>
bool GroupCalls::wait_briefly(std::unique_lock<std::mutex>& lock, const WaitContext& context, TimePoint began,
                              Ready&& ready) {
  const TimePoint until = began + kPatienceForAnswers;
  while (!ready()) {
    if (now() >= until) return false;
    changed_.wait_for(lock, kWaitSlice);
    if (ready()) continue;
    lock.unlock();  // the probe runs other people's code
    const bool interrupted = context.is_interrupted();
    lock.lock();
    if (interrupted) return false;
  }
  return true;
}

Status GroupCalls::await_verdict(uint64_t sequence, const Status& ended, const WaitContext& context) {
  std::unique_lock lock(mutex_);
  const CallEnding* const ending = endings_.find(sequence);
  if (ending == nullptr) return ended;
  Status verdict = verdict_on(lock, sequence, *ending, context);
  return cause_.is_ok() ? verdict : before_the_end(lock, sequence, cause_, context).value_or(cause_);
}

void GroupCalls::close() {
  std::unique_lock lock(mutex_);
  closing_ = true;
  warn_of_unraised(lock);
}

void GroupCalls::abort(const Status& why) noexcept { end_group(why); }

void GroupCalls::quit(const Status& why) {
  if (*word() != 0) return;  // its members know
  end_for_all(why, {Code::kPeerExited, names_.to_world(names_.rank()), why.message()});
}

// This rank takes part in no call of the group any more: nobody shall wait for it there.
void GroupCalls::end_for_all(const Status& why, const CallEnd& told) {
  std::vector<uint64_t> unfinished;
  {
    const std::unique_lock in_turn = turn();
    for (const CallRecord& call : parts_.recorder->all()) {
      if (call.group == group_ && call.sequence != 0 && call.state == CallRecord::State::kRunning)
        unfinished.push_back(call.sequence);
    }
    unfinished.push_back(sequence_ + 1);  // where those come who have done all that this rank has
  }
  end_group(why);
  if (parts_.control == nullptr) return;
  for (const uint64_t sequence : unfinished) parts_.control->gave_up(id(sequence), told);
}

void GroupCalls::end_group(const Status& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!cause_.is_ok()) return;
    cause_ = why;
    ended_.store(1, std::memory_order_release);
    changed_.notify_all();
  }
  if (parts_.executor != nullptr)
    parts_.executor->abort(group_, Status(Code::kAborted, "this group ended: " + why.to_string()));
  if (parts_.reactor == nullptr) return;
  parts_.reactor->wake();
  complete(parts_.group_ends, 0, Status());
}

std::string GroupCalls::advice(const Status& ended, bool is_message) const {
  const std::string who = names_.full(ended.peer());
  switch (ended.code()) {
    case Code::kTimeout: return ". If a rank is only slow, a longer timeout helps";
    case Code::kPeerFailure:
    case Code::kPeerExited: return ". Look at the output of " + who + " for the cause";
    case Code::kMismatch:
      if (is_message)
        return "\nThe messages between two ranks with one tag are received in order, each as what it was "
               "sent as";
      return "\nAll ranks must make the same calls in the same order, with equal dtype, count, op and root";
    default: return "";
  }
}

// ---- earlier calls

void GroupCalls::unheard(const Status& outcome) {
  std::unique_lock lock(mutex_);
  if (cause_told_ || !late_errors_.add_unheard(outcome, closing_)) return;
  warn_of_unraised(lock);
}

Status GroupCalls::take_late_error() {
  const std::lock_guard lock(mutex_);
  return late_errors_.take();
}

void GroupCalls::settle(uint64_t sequence) {
  std::unique_lock lock(mutex_);
  for (const Status& what : late_errors_.settle(sequence))
    parts_.log.warning("not raised any more: " + what.to_string());
  warn_of_unraised(lock);
}

// What no error will tell, once all is known about it.
void GroupCalls::warn_of_unraised(std::unique_lock<std::mutex>& lock) {
  if (closing_ && cause_told_) late_errors_.forget_unheard();
  const std::string text =
      late_errors_.take_unraised(closing_ || !cause_.is_ok(), closing_, /*awaits=*/parts_.compares);
  lock.unlock();
  if (!text.empty()) parts_.log.warning(text);
}

// A call that was done here was another one on other ranks. Mutex held.
void GroupCalls::wrong_after_all(uint64_t sequence, const Status& verdict) {
  if (verdict.code() == Code::kMismatch && !parts_.confirms) late_errors_.add(sequence, verdict, true);
}

void GroupCalls::stray(uint64_t sequence, Rank peer, const Status& why) {
  const std::lock_guard lock(mutex_);
  if (!cause_.is_ok()) return;
  const std::optional<CallRecord> record = parts_.recorder->find(group_, sequence);
  // Of a call that has failed here its caller hears in the call, and in its confirmation where it has one.
  if (!parts_.confirms && (!record || record->state != CallRecord::State::kFailed))
    late_errors_.add(sequence, Status(why.code(), why.message()).with_peer(names_.from_world(peer)), false);
  parts_.control->stalled(id(sequence), peer);  // compares the two calls, and tells all ranks
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
    return call.is_call() ? parts_.recorder->find(group_, sequence) : running_now(call);
  };
  std::optional<CallRecord> record = look();
  if (!record) {
    const std::unique_lock lock = turn();
    record = look();  // it may have been between its number and its record
    if (!record) {
      report.state = !call.is_call() || sequence > sequence_
                         ? CallReport::State::kNotMade
                         : CallReport::State::kDone;  // so long ago that it is not recorded
      return report;
    }
  }
  switch (record->state) {
    case CallRecord::State::kRunning: report.state = CallReport::State::kRunning; break;
    case CallRecord::State::kDone: report.state = CallReport::State::kDone; break;
    case CallRecord::State::kFailed: report.state = CallReport::State::kGivenUp; break;
  }
  if (record->kind == CallRecord::Kind::kShutdown) report.state = CallReport::State::kLeaving;
  report.digest = call.is_call() ? record->digest : 0;  // there is nothing to compare it with
  report.call = fields_of(*record);
  if (record->site != nullptr) report.site = record->site;
  return report;
}

// The shutdown() that this rank is in, or else what one of its threads waits in.
std::optional<CallRecord> GroupCalls::running_now(const CallId& question) const {
  std::optional<CallRecord> leaving = parts_.recorder->last_shutdown(group_);
  if (leaving || question.sequence == CallId::kPresence) return leaving;
  const std::optional<CallRecord> call = parts_.recorder->last_running(group_),
                                  message = parts_.messages->last_running(group_);
  return !call || (message && message->began_ns > call->began_ns) ? message : call;
}

void GroupCalls::end_call(uint64_t sequence, const CallEnd& why) {
  bool made = false, ahead = false;
  {
    const std::unique_lock in_turn = turn();  // not while a call is between its number and its launch
    made = sequence <= sequence_;
    const std::optional<CallRecord> record = parts_.recorder->find(group_, sequence);
    const bool done = made && (!record || record->state != CallRecord::State::kRunning);
    ahead = done && why.code == Code::kPeerExited && (!record || record->kind != CallRecord::Kind::kShutdown);
    const std::lock_guard lock(mutex_);
    if (!cause_.is_ok() || endings_.is_full()) return;
    if (!done && !endings_.add(sequence, why)) return;
  }
  // The others have ended the group there, and make none of the calls that this rank is in by now.
  if (ahead) end_group(verdict_of(why, {}, names_));
  // What was sent for it may be here, even if this rank's part is done. If it was not made yet, its turn will come.
  if (made) cancel(sequence, verdict_of(why, {}, names_));
}

void GroupCalls::verdict(uint64_t sequence, const CallEnd& why, std::span<const Standing> standings) {
  std::unique_lock lock(mutex_);
  const std::optional<CallRecord> record = parts_.recorder->find(group_, sequence);
  if (record && record->state == CallRecord::State::kDone) {
    wrong_after_all(sequence, verdict_of(why, standings, names_));
    endings_.forget(sequence);
    return warn_of_unraised(lock);
  }
  CallEnding* const ending = endings_.find(sequence);
  if (ending == nullptr) return;  // its caller has not waited for this
  ending->why = why;
  ending->answers.come(standings);
  changed_.notify_all();
}

void GroupCalls::surveyed(uint64_t sequence, std::span<const Standing> standings) {
  {
    const std::lock_guard lock(mutex_);
    if (surveys_.answer(sequence, standings)) return changed_.notify_all();
    if (!id(sequence).is_call()) return;
  }
  const std::string late = late_ranks(standings, names_);
  parts_.log.warning([&] {
    return "call #" + std::to_string(sequence) + " waits for long: " +
           (late.empty() ? "every rank is in it, so it is slow rather than late" : late);
  });
}

void GroupCalls::peer_leaving(Rank peer) {
  const std::lock_guard lock(mutex_);
  leaving_.try_emplace(names_.from_world(peer), now());
}

void GroupCalls::peer_exited(Rank peer) {
  const std::lock_guard lock(mutex_);
  if (cause_.is_ok() && names_.from_world(peer) >= 0) parts_.executor->peer_left(peer);
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
