#include "comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/clock.h"
#include "comm/arguments.h"
#include "comm/devices.h"
#include "comm/group_parts.h"
#include "engine/hierarchical/hier_executor.h"
#include "engine/shm/shared_executor.h"
#include "failure/descriptor.h"
#include "kernels/reduce.h"
#include "operation/collective_operation.h"

namespace pc {
namespace {

// A collective of a group with one rank copies its input to its output. The exception is exscan,
// because no rank precedes this one. Some reductions change the data even with one rank.
void copy_input(const Request& request) {
  if (leaves_output(request.collective)) return;
  const Buffer& out = request.out;
  if (out.data == nullptr && out.list == nullptr) return;
  const Location to{out.data, out.list}, from{const_cast<std::byte*>(request.in.data), request.in.list};
  copy_pieces(ConstIoVec(from, out.nbytes()), to,
              [&](std::byte* target, const std::byte* source, std::size_t nbytes) {
                if (reduces(request.collective)) {
                  reduce_alone(target, source, nbytes / size_of(out.dtype), out.dtype, request.op);
                } else if (target != source) {
                  std::memcpy(target, source, nbytes);
                }
              });
}

CallRecord collective_record(const Request& request, const Choice& choice, uint32_t group, uint64_t sequence,
                             uint64_t digest, Rank size, TimePoint began) {
  CallRecord record;
  record.kind = CallRecord::Kind::kCollective;
  record.collective = request.collective;
  const auto [count, dtype] = elements_of(request, size);
  record.dtype = dtype;
  record.count = count;
  record.parts = parts_of(request);
  record.bundle = request.bundle;
  record.shape = request.shape;
  record.layout = layout_of(request);
  record.op = request.op;
  record.factor = request.op.factor;
  record.root_or_peer = request.root;
  record.group = group;
  record.sequence = sequence;
  record.digest = digest;
  record.algorithm = choice.algorithm->name.data();  // a literal, so it is zero-terminated
  record.site = request.site;
  record.began_ns = to_ns(began);
  return record;
}

}  // namespace

struct Communicator::State {
  State(const GroupParts& given, uint32_t group_id, GroupNames names, double timeout_s, SelectionTable table)
      : parts(given),
        group(group_id),
        selection(std::move(table)),
        shared(std::make_shared<GroupState>(parts.calls, group, std::move(names))),
        messages(parts, group, shared, timeout_s) {}
  enum class Purpose : uint8_t { kCall, kResync, kLeave };
  Status make(const Request& request, double timeout_s, Purpose purpose = Purpose::kCall);
  Result<std::unique_ptr<CollectiveOperation>> launch(const Request& checked, TimePoint began);
  Choice choose(const Request& request) const;
  Status start(const Request& request, const Choice& choice, CollectiveOperation& started);
  void start_next(const Request& described, const Choice& described_choice, const Request& made,
                  const Choice& choice, CollectiveOperation::Call& next);
  Result<WorkPtr> executor_launch(const Request& request, const Launch& launch);
  WaitContext waiting_until(Deadline deadline) const {
    return {deadline, shared->calls.word(), parts.interrupted, nullptr};
  }
  Rank size() const { return shared->calls.names().size(); }

  const GroupParts parts;
  const uint32_t group;
  const SelectionTable selection;
  const std::shared_ptr<GroupState> shared;  // shared with the Work that this group launched
  GroupMessages messages;
};

Communicator::Communicator(const GroupParts& parts, uint32_t group, GroupNames names, double timeout_s,
                           SelectionTable selection)
    : state_(std::make_unique<State>(parts, group, std::move(names), timeout_s, std::move(selection))),
      messages_(state_->messages),
      devices_(parts.devices),
      rank_(state_->shared->calls.names().rank()),
      size_(state_->size()),
      timeout_s_(timeout_s) {
  if (parts.calls.control == nullptr) return;
  const std::shared_ptr<GroupState>& shared = state_->shared;
  parts.calls.control->add(group, std::shared_ptr<ControlledGroup>(shared, &shared->calls));
}

Communicator::~Communicator() {
  abort(Status(Code::kNotInitialized, "the group was closed"));
  const GroupParts& parts = state_->parts;
  if (parts.calls.control != nullptr) parts.calls.control->remove(id());
  if (parts.calls.executor != nullptr) parts.calls.executor->close(id());
  for (const MessagePart part :
       {MessagePart::kWhole, MessagePart::kAnswer, MessagePart::kGo, MessagePart::kData})
    parts.transport->close_group(id() | place_of(part), world_ranks());
}

Status Communicator::run(const Request& request, double timeout_s) {
  if (LazyDevices* const devices = devices_for(request.in.device, request.out.device); devices != nullptr)
      [[unlikely]]
    return devices->run(*this, {.request = request}, timeout_s);
  Request call = request;
  PC_TRY(check_request(call, rank_, size_));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, timeout_s_));
  if (size_ > 1) return state_->make(call, seconds);
  PC_TRY(may_call());
  copy_input(call);
  return Status::ok();
}

Status Communicator::State::make(const Request& request, double timeout_s, Purpose purpose) {
  const TimePoint began = now();
  const bool leaving = purpose == Purpose::kLeave;
  // Errors about earlier calls stop neither resync() nor leave(). leave() has already checked
  // whether the group has ended.
  if (purpose == Purpose::kCall) PC_TRY(shared->usable());
  if (purpose == Purpose::kResync) PC_TRY(shared->calls.alive());
  const Choice choice = choose(request);
  CollectiveOperation started(*shared);
  started.made.call = {.began = began, .waits = true, .leaving = leaving};
  PC_TRY(start(request, choice, started));
  if (purpose == Purpose::kCall && started.finish_at_once()) return messages.count_and_poll(), Status::ok();
  Status ended = started.finish(waiting_until(Deadline::after(timeout_s, began)), [&]() -> std::string {
    return leaving ? "shutdown" : operation_text(request, choice, size(), started.made.call.sequence);
  });
  if (ended.is_ok() && purpose == Purpose::kResync) shared->calls.settle(started.made.call.sequence);
  return ended;
}

Result<WorkPtr> Communicator::launch(const Request& request) {
  Request call = request;
  PC_TRY(check_request(call, rank_, size_));
  PC_TRY(may_call());
  if (size_ == 1) {
    copy_input(call);
    return WorkPtr();
  }
  PC_ASSIGN_OR_RETURN(std::unique_ptr<CollectiveOperation> work, state_->launch(call, now()));
  return WorkPtr(work.release());
}

Result<std::unique_ptr<CollectiveOperation>> Communicator::State::launch(const Request& checked,
                                                                         TimePoint began) {
  const Choice choice = choose(checked);
  auto work = std::make_unique<CollectiveOperation>(shared);
  work->made.call.began = began;
  PC_TRY(start(checked, choice, *work));
  work->set_text(operation_text(checked, choice, size(), work->sequence()));
  return work;
}

Result<std::shared_ptr<AsyncWork>> Communicator::begin(const Request& request, AsyncOptions how) {
  if (LazyDevices* const devices = devices_for(request.in.device, request.out.device); devices != nullptr)
    return devices->begin(*this, {.request = request}, std::move(how));
  const TimePoint began = now();
  Request call = request;
  PC_TRY(check_request(call, rank_, size_));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(how.timeout_s, timeout_s_));
  PC_TRY(may_call());
  if (size_ == 1) {
    copy_input(call);
    if (how.on_end) how.on_end(Status::ok());
    return std::shared_ptr<AsyncWork>(std::make_shared<HostWork>(Status::ok()));
  }
  Progress& progress = *state_->parts.progress;
  PC_TRY(progress.start());
  PC_ASSIGN_OR_RETURN(std::unique_ptr<CollectiveOperation> work, state_->launch(call, began));
  return progress.add({std::move(work), Deadline::after(seconds, began), std::move(how.on_end)});
}

Status Communicator::send(const OutgoingMessage& message, double timeout_s) {
  LazyDevices* const devices = devices_for(message.data.device);
  return devices == nullptr ? messages_.send(message, timeout_s)
                            : devices->run(*this, UserCall::of(message), timeout_s);
}

Status Communicator::recv(const IncomingMessage& message, double timeout_s) {
  LazyDevices* const devices = devices_for(message.data.device);
  return devices == nullptr ? messages_.recv(message, timeout_s)
                            : devices->run(*this, UserCall::of(message), timeout_s);
}

Status Communicator::sendrecv(const OutgoingMessage& out, Buffer in, Rank source, uint32_t tag,
                              double timeout_s) {
  LazyDevices* const devices = devices_for(out.data.device, in.device);
  if (devices == nullptr) return messages_.sendrecv(out, in, source, tag, timeout_s);
  if (tag != out.tag)
    return Status(Code::kUnsupported, "a sendrecv of arrays on a GPU has one tag, not " +
                                          std::to_string(out.tag) + " and " + std::to_string(tag));
  UserCall both = UserCall::of(out);
  both.kind = UserCall::Kind::kSendrecv;
  both.request.out = in;
  both.source = source;
  return devices->run(*this, std::move(both), timeout_s);
}

Status Communicator::recv(Buffer data, const FoundMessage& message, std::optional<uint64_t> bundle) {
  LazyDevices* const devices = devices_for(data.device);
  if (devices == nullptr) return messages_.recv(data, message, bundle);
  const Result<std::shared_ptr<Devices>> made = devices->get();
  if (!made.is_ok()) return messages_.put_back(message), made.status();
  return made.value()->run(*this, UserCall::of(data, message, bundle), -1);
}

Result<std::shared_ptr<AsyncWork>> Communicator::begin_send(const OutgoingMessage& message,
                                                            AsyncOptions how) {
  LazyDevices* const devices = devices_for(message.data.device);
  return devices == nullptr ? messages_.begin_send(message, std::move(how))
                            : devices->begin(*this, UserCall::of(message), std::move(how));
}

Result<std::shared_ptr<AsyncWork>> Communicator::begin_recv(const IncomingMessage& message,
                                                            AsyncOptions how) {
  LazyDevices* const devices = devices_for(message.data.device);
  return devices == nullptr ? messages_.begin_recv(message, std::move(how))
                            : devices->begin(*this, UserCall::of(message), std::move(how));
}

// Runs a barrier under the description of the call that the other library executes. So the barrier
// succeeds when all ranks have made the same call.
Result<std::shared_ptr<AsyncWork>> Communicator::begin_comparison(const Request& described,
                                                                  const Algorithm& by, AsyncOptions how) {
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(how.timeout_s, timeout_s_));
  PC_TRY(may_call());
  const GroupParts& parts = state_->parts;
  const std::shared_ptr<GroupState>& shared = state_->shared;
  if (size_ == 1 || parts.check == Check::kOff) return std::shared_ptr<AsyncWork>();
  const TimePoint began = now();
  PC_TRY(parts.progress->start());
  const Choice described_choice{&by};
  const Request barrier;
  auto work = std::make_unique<CollectiveOperation>(shared);
  work->made.call.began = began;
  {
    const std::unique_lock issue_order = shared->calls.issue_order();
    state_->start_next(described, described_choice, barrier, state_->choose(barrier), work->made);
  }
  work->set_text(operation_text(described, described_choice, size_, work->sequence()));
  return parts.progress->add({std::move(work), Deadline::after(seconds, began), std::move(how.on_end)});
}

// Errors about earlier calls do not keep a rank from leaving. The first of them is returned at the
// end, because no later call can raise it.
Status Communicator::leave(double timeout_s) {
  GroupCalls& calls = state_->shared->calls;
  const Logger& log = state_->parts.calls.log;
  Status earlier;
  const auto take = [&](const Status& news) {
    if (earlier.is_ok())
      earlier = news;
    else
      log.warning(news.to_string());
  };
  const auto failed = [&](const Status& why) {  // `why` is returned instead of `earlier`
    if (!earlier.is_ok()) log.warning(earlier.to_string());
    return why;
  };
  for (Status before = may_call(); !before.is_ok(); before = may_call()) {
    if (ended() || before.code() == Code::kInvalidArgument) return failed(before);
    take(before);
  }
  if (size_ == 1) return earlier;
  const Status left = state_->make(Request{}, timeout_s, State::Purpose::kLeave);
  // kPeerExited means that a rank has left already, so this rank need not wait for it.
  if (!left.is_ok() && left.code() != Code::kPeerExited) return failed(left);
  for (Status news = calls.noticed(); !news.is_ok(); news = calls.noticed()) take(news);
  return earlier;
}

Status Communicator::resync(double timeout_s, const char* site) {
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, timeout_s_));
  if (size_ == 1) return may_call();
  PC_TRY(state_->shared->reentry.check());
  const Deadline deadline = Deadline::after(seconds);
  Request barrier;
  barrier.site = site;
  for (;;) {
    Status status = state_->make(barrier, std::max(deadline.remaining_s(), 0.0), State::Purpose::kResync);
    const bool out_of_step = status.code() == Code::kMismatch || status.code() == Code::kTimeout ||
                             status.code() == Code::kPeerInterrupted || status.code() == Code::kAborted;
    if (!out_of_step || ended() || deadline.expired()) return status;
  }
}

Choice Communicator::State::choose(const Request& request) const {
  if (parts.shares_memory) return {&shm::shared_memory(request.collective)};
  const uint64_t nbytes = knows_size(request) ? elements_of(request, size()).nbytes() : kUnknownSize;
  if (shm::is_hierarchical(request, nbytes, parts.domains)) return {&shm::hierarchical(request.collective)};
  const SelectionTable::Call call{nbytes, request.counts.empty(), request.fixed_order};
  return selection.choose(request.collective, call, {size(), parts.hosts});
}

Status Communicator::State::start(const Request& request, const Choice& choice,
                                  CollectiveOperation& started) {
  Executor& executor = *parts.calls.executor;
  if (!executor.supports(request, size())) {
    return Status(Code::kUnsupported, "the executor '" + std::string(executor.name()) +
                                          "' of this group cannot run this " +
                                          std::string(name_of(request.collective)));
  }
  const std::unique_lock issue_order = shared->calls.issue_order();
  start_next(request, choice, request, choice, started.made);
  const GroupCall& call = started.made.call;
  if (parts.check == Check::kStrict && !call.leaving) {
    const Request barrier;
    started.confirmation.call = {.began = call.began, .waits = call.waits, .confirms = call.sequence};
    start_next(request, choice, barrier, choose(barrier), started.confirmation);
  }
  return Status::ok();
}

// Gives the call that `described` describes the next number, and launches `made` in its place. The
// caller holds the issue order.
void Communicator::State::start_next(const Request& described, const Choice& described_choice,
                                     const Request& made, const Choice& choice,
                                     CollectiveOperation::Call& next) {
  GroupCalls& calls = shared->calls;
  GroupCall& call = next.call;
  const uint64_t sequence = calls.next_number();
  call.sequence = sequence;
  uint64_t digest = 0;
  if (call.leaving) {
    digest = digest_of_leaving(calls.identity(), sequence);
  } else if (parts.check != Check::kOff) {
    digest = digest_of(described, described_choice, calls.identity(), size(), sequence);
    // Distinguishes the confirmation from a call with the same description.
    if (call.confirms != 0) digest = ~digest;
  }
  CallRecord record =
      collective_record(described, described_choice, group, sequence, digest, size(), call.began);
  if (call.leaving) record.kind = CallRecord::Kind::kShutdown;
  if (call.confirms != 0) record.kind = CallRecord::Kind::kConfirmation;
  call.ticket = parts.calls.recorder->begin(record);
  if (calls.given_up_before(sequence)) {
    next.ended = Status(Code::kAborted, "other ranks gave this call up before it was made here");
    parts.calls.control->entered_late(calls.id(sequence));
  } else {
    Result<WorkPtr> launched = executor_launch(
        made, {group, sequence, digest, calls.names().rank(), size(), calls.names().world_ranks().data(),
               choice.algorithm, choice.split, &calls, call.waits});
    if (launched.is_ok()) {
      next.work = std::move(launched).value();
      return;
    }
    next.ended = launched.status();
  }
  calls.cancel(sequence, next.ended);  // discards what peers send for the call
}

// An exception must not escape: the number is taken, so every outcome must be reported to the other
// ranks.
Result<WorkPtr> Communicator::State::executor_launch(const Request& request, const Launch& launch) {
  try {
    return parts.calls.executor->launch(request, launch);
  } catch (const std::bad_alloc&) {
    return Status(Code::kSystem, "no memory to begin this call");
  }
}

Result<std::string> Communicator::explain(ExplainedCall call) const {
  const GroupParts& parts = state_->parts;
  call.profile = parts.profile;
  if (parts.shares_memory) return explain_shared_call(call, size_);
  Request plain;  // an explained call uses the default reduction
  plain.collective = call.collective;
  plain.root = call.root;
  if (shm::is_hierarchical(plain, call.nbytes, parts.domains))
    return explain_divided_call(call, size_, parts.domains);
  call.group = {size_, parts.hosts};
  call.transport = size_ > 1 ? parts.transport->name() : "none, one rank only";
  if (call.rank == -1) call.rank = rank_;
  return explain_call(call, state_->selection);
}

uint32_t Communicator::id() const { return state_->group; }
std::span<const Rank> Communicator::world_ranks() const { return state_->shared->calls.world_ranks(); }
Status Communicator::may_call() { return state_->shared->usable(); }
Status Communicator::alive() {
  PC_TRY(state_->shared->calls.alive());
  return state_->shared->calls.quit_by_others();
}
void Communicator::unobserved(const Status& outcome) { state_->shared->calls.unobserved(outcome); }
WaitContext Communicator::waiting_until(Deadline deadline) const { return state_->waiting_until(deadline); }
Status Communicator::gpus_may_join() const { return state_->parts.gpus_may_join; }
bool Communicator::is_strict() const { return state_->parts.check == Check::kStrict; }
bool Communicator::ended() const { return *state_->shared->calls.word() != 0; }
void Communicator::abort(const Status& why) noexcept { state_->shared->calls.abort(why); }
void Communicator::quit(const Status& why) { state_->shared->calls.quit(why); }
void Communicator::close() { state_->shared->calls.close(); }

}  // namespace pc
