#include "comm/group_communicator.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/clock.h"
#include "comm/arguments.h"
#include "engine/hierarchical/hier_executor.h"
#include "engine/shm/shared_executor.h"
#include "failure/descriptor.h"
#include "failure/group_calls.h"
#include "kernels/reduce.h"
#include "operation/progress.h"

namespace pc {
namespace {

// With one rank every collective leaves the input in the output, but for an exscan, for no rank is before this one; some
// reductions change it all the same.
void copy_input(const Request& request) {
  if (leaves_output(request.collective)) return;
  const Buffer& out = request.out;
  if (out.data == nullptr && out.list == nullptr) return;
  const Location to{out.data, out.list}, from{const_cast<std::byte*>(request.in.data), request.in.list};
  spread(Gather(from, out.nbytes()), to, [&](std::byte* target, const std::byte* source, std::size_t nbytes) {
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
  record.algorithm = choice.algorithm->name.data();  // a literal: it ends with a zero byte
  record.site = request.site;
  record.began_ns = to_ns(began);
  return record;
}

}  // namespace

GroupCommunicator::GroupCommunicator(const Parts& parts, uint32_t group, GroupNames names, double timeout_s,
                                     SelectionTable selection)
    : parts_(parts),
      group_(group),
      selection_(std::move(selection)),
      shared_(std::make_shared<GroupState>(parts.calls, group, std::move(names))) {
  rank_ = shared_->calls.names().rank();
  size_ = shared_->calls.names().size();
  timeout_s_ = timeout_s;
  if (parts.calls.control != nullptr)
    parts.calls.control->add(group, std::shared_ptr<ControlledGroup>(shared_, &shared_->calls));
}

GroupCommunicator::~GroupCommunicator() {
  abort(Status(Code::kNotInitialized, "the group was closed"));
  if (parts_.calls.control != nullptr) parts_.calls.control->remove(group_);
  if (parts_.calls.executor != nullptr) parts_.calls.executor->close(group_);
  for (const MessagePart part :
       {MessagePart::kWhole, MessagePart::kAnswer, MessagePart::kGo, MessagePart::kData})
    parts_.transport->close_group(group_ | place_of(part), world_ranks());
}

Status GroupCommunicator::usable() {
  PC_TRY(shared_->calls.before());
  return shared_->reentry.check();
}

Status GroupCommunicator::run(const Request& request, double timeout_s) {
  if (on_devices(request.in.device, request.out.device)) [[unlikely]]
    return parts_.devices->run(*this, {.request = request}, timeout_s);
  Request call = request;
  PC_TRY(check_request(call, rank_, size_));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, timeout_s_));
  if (size_ > 1) return make(call, seconds);
  PC_TRY(usable());
  copy_input(call);
  return Status::ok();
}

Status GroupCommunicator::make(const Request& request, double timeout_s, Purpose purpose) {
  const TimePoint began = now();
  const bool leaving = purpose == Purpose::kLeave;
  // resync() and leave() have looked, and go on whatever has come up about earlier calls since.
  if (purpose == Purpose::kCall) PC_TRY(usable());
  if (purpose == Purpose::kResync) PC_TRY(shared_->calls.alive());
  const Choice choice = choose(request);
  CollectiveOperation started(*shared_);
  PC_TRY(start(request, choice, {began, true, leaving}, started));
  if (purpose == Purpose::kCall && started.finish_at_once()) return look_around(), Status::ok();
  Status ended = started.finish(context_for(timeout_s, began), [&]() -> std::string {
    return leaving ? "shutdown" : operation_text(request, choice, size_, started.made.call.sequence);
  });
  if (ended.is_ok() && purpose == Purpose::kResync) shared_->calls.settle(started.made.call.sequence);
  return ended;
}

// Calls that are done at once wait nowhere, but other ranks may want this one to take what they send.
void GroupCommunicator::look_around() {
  constexpr uint32_t kSeldom = 128;
  if (at_once_.fetch_add(1, std::memory_order_relaxed) % kSeldom == kSeldom - 1) parts_.transport->poll();
}

Result<std::unique_ptr<Work>> GroupCommunicator::launch(const Request& request) {
  Request call = request;
  PC_TRY(check_request(call, rank_, size_));
  PC_TRY(usable());
  if (size_ == 1) {
    copy_input(call);
    return std::unique_ptr<Work>();
  }
  PC_ASSIGN_OR_RETURN(std::unique_ptr<Work> work, launch(call, now()));
  return work;
}

Result<std::unique_ptr<CollectiveOperation>> GroupCommunicator::launch(const Request& checked,
                                                                       TimePoint began) {
  const Choice choice = choose(checked);
  auto work = std::make_unique<CollectiveOperation>(shared_);
  PC_TRY(start(checked, choice, {began}, *work));
  work->set_text(operation_text(checked, choice, size_, work->sequence()));
  return work;
}

Result<std::shared_ptr<AsyncWork>> GroupCommunicator::begin(const Request& request, Async how) {
  if (on_devices(request.in.device, request.out.device))
    return parts_.devices->begin(*this, {.request = request}, std::move(how));
  const TimePoint began = now();
  Request call = request;
  PC_TRY(check_request(call, rank_, size_));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(how.timeout_s, timeout_s_));
  PC_TRY(usable());
  if (size_ == 1) {
    copy_input(call);
    if (how.on_end) how.on_end(Status::ok());
    return std::shared_ptr<AsyncWork>(std::make_shared<HostWork>(Status::ok()));
  }
  PC_TRY(parts_.progress->start());
  PC_ASSIGN_OR_RETURN(std::unique_ptr<CollectiveOperation> work, launch(call, began));
  return parts_.progress->add({std::move(work), Deadline::after(seconds, began), std::move(how.on_end)});
}

// A barrier under the call's own description: it ends when all ranks have made the same call.
Result<std::shared_ptr<AsyncWork>> GroupCommunicator::begin_comparison(const Request& described,
                                                                       const Algorithm& by, Async how) {
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(how.timeout_s, timeout_s_));
  PC_TRY(usable());
  if (size_ == 1 || parts_.check == Check::kOff) return std::shared_ptr<AsyncWork>();
  const TimePoint began = now();
  PC_TRY(parts_.progress->start());
  const Choice described_choice{&by};
  const Request barrier;
  auto work = std::make_unique<CollectiveOperation>(shared_);
  {
    const std::unique_lock turn = shared_->calls.turn();
    start_next(described, described_choice, {began}, barrier, choose(barrier), work->made);
  }
  work->set_text(operation_text(described, described_choice, size_, work->sequence()));
  return parts_.progress->add({std::move(work), Deadline::after(seconds, began), std::move(how.on_end)});
}

// What is known of earlier calls keeps nobody from leaving. The first of it is raised afterwards: there is no next call.
Status GroupCommunicator::leave(double timeout_s) {
  Status earlier;
  const auto take = [&](const Status& news) {
    if (earlier.is_ok())
      earlier = news;
    else
      parts_.calls.log.warning(news.to_string());
  };
  const auto failed = [&](const Status& why) {  // which is raised instead
    if (!earlier.is_ok()) parts_.calls.log.warning(earlier.to_string());
    return why;
  };
  for (Status before = usable(); !before.is_ok(); before = usable()) {
    if (*shared_->calls.word() != 0 || before.code() == Code::kInvalidArgument) return failed(before);
    take(before);
  }
  if (size_ == 1) return earlier;
  const Status left = make(Request{}, timeout_s, Purpose::kLeave);
  // Who has gone already need not be waited for.
  if (!left.is_ok() && left.code() != Code::kPeerExited) return failed(left);
  for (Status news = shared_->calls.noticed(); !news.is_ok(); news = shared_->calls.noticed()) take(news);
  return earlier;
}

Status GroupCommunicator::resync(double timeout_s, const char* site) {
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, timeout_s_));
  if (size_ == 1) return usable();
  PC_TRY(shared_->reentry.check());
  const Deadline deadline = Deadline::after(seconds);
  Request barrier;
  barrier.site = site;
  for (;;) {
    Status status = make(barrier, std::max(deadline.remaining_s(), 0.0), Purpose::kResync);
    const bool out_of_step = status.code() == Code::kMismatch || status.code() == Code::kTimeout ||
                             status.code() == Code::kPeerInterrupted || status.code() == Code::kAborted;
    if (!out_of_step || *shared_->calls.word() != 0 || deadline.expired()) return status;
  }
}

Choice GroupCommunicator::choose(const Request& request) const {
  if (parts_.shares_memory) return {&shm::shared_memory(request.collective)};
  const uint64_t nbytes = knows_size(request) ? elements_of(request, size_).nbytes() : kUnknownSize;
  if (shm::goes_by_islands(request, nbytes, parts_.islands)) return {&shm::by_islands(request.collective)};
  const SelectionTable::Call call{nbytes, request.counts.empty(), request.fixed_order};
  return selection_.choose(request.collective, call, {size_, parts_.hosts});
}

Status GroupCommunicator::start(const Request& request, const Choice& choice, const NextCall& as,
                                CollectiveOperation& started) {
  Executor& executor = *parts_.calls.executor;
  if (!executor.supports(request, size_)) {
    return Status(Code::kUnsupported, "the executor '" + std::string(executor.name()) +
                                          "' of this group cannot run this " +
                                          std::string(name_of(request.collective)));
  }
  const std::unique_lock turn = shared_->calls.turn();
  start_next(request, choice, as, request, choice, started.made);
  if (parts_.check == Check::kStrict && !as.leaving) {
    const Request barrier;
    const NextCall confirmation{as.began, as.waits, false, started.made.call.sequence};
    start_next(request, choice, confirmation, barrier, choose(barrier), started.confirmation);
  }
  return Status::ok();
}

// Gives the call that is `described` the next number, and launches what makes it. Turn held.
void GroupCommunicator::start_next(const Request& described, const Choice& described_choice,
                                   const NextCall& as, const Request& made, const Choice& choice,
                                   CollectiveOperation::Call& next) {
  GroupCalls& calls = shared_->calls;
  const uint64_t sequence = calls.next_number();
  uint64_t digest = 0;
  if (as.leaving) {
    digest = digest_of_leaving(calls.identity(), sequence);
  } else if (parts_.check != Check::kOff) {
    digest = digest_of(described, described_choice, calls.identity(), size_, sequence);
    if (as.confirms != 0) digest = ~digest;  // another thing than a call of that description
  }
  CallRecord record =
      collective_record(described, described_choice, group_, sequence, digest, size_, as.began);
  if (as.leaving) record.kind = CallRecord::Kind::kShutdown;
  if (as.confirms != 0) record.kind = CallRecord::Kind::kConfirmation;
  next.call = {sequence, calls.record(record), as.began, as.leaving, as.confirms};
  if (calls.given_up_before(sequence)) {
    next.ended = Status(Code::kAborted, "other ranks gave this call up before it was made here");
    parts_.calls.control->came_late(calls.id(sequence));
  } else {
    Result<std::unique_ptr<Work>> launched =
        executor_launch(made, {group_, sequence, digest, rank_, size_, calls.names().world_ranks().data(),
                               choice.algorithm, choice.split, &calls, as.waits});
    if (launched.is_ok()) {
      next.work = std::move(launched).value();
      return;
    }
    next.ended = launched.status();
  }
  calls.cancel(sequence, next.ended);  // peers may send for it
}

// The number is taken: whatever happens is told to the others.
Result<std::unique_ptr<Work>> GroupCommunicator::executor_launch(const Request& request,
                                                                 const Launch& launch) {
  try {
    return parts_.calls.executor->launch(request, launch);
  } catch (const std::bad_alloc&) {
    return Status(Code::kSystem, "no memory to begin this call");
  }
}

WaitContext GroupCommunicator::context_for(double timeout_s, TimePoint began,
                                           const std::function<bool()>* stop) const {
  return {Deadline::after(timeout_s, began), shared_->calls.word(),
          stop != nullptr ? stop : parts_.interrupted, nullptr};
}

Result<std::string> GroupCommunicator::explain(ExplainedCall call) const {
  call.profile = parts_.profile;
  if (parts_.shares_memory) return explain_shared_call(call, size_);
  Request plain;  // an explained call has the usual operation
  plain.collective = call.collective;
  plain.root = call.root;
  if (shm::goes_by_islands(plain, call.nbytes, parts_.islands))
    return explain_divided_call(call, size_, parts_.islands);
  call.group = {size_, parts_.hosts};
  call.transport = size_ > 1 ? parts_.transport->name() : "none, one rank only";
  if (call.rank == -1) call.rank = rank_;
  return explain_call(call, selection_);
}

bool GroupCommunicator::ended() const { return *shared_->calls.word() != 0; }

void GroupCommunicator::abort(const Status& why) noexcept { shared_->calls.abort(why); }

}  // namespace pc
