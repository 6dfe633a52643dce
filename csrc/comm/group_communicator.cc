#include "comm/group_communicator.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "comm/arguments.h"
#include "comm/descriptor.h"
#include "comm/group_calls.h"
#include "engine/point_to_point.h"
#include "kernels/reduce.h"

namespace pc {
namespace {

TimePoint now() { return std::chrono::steady_clock::now(); }

// With one rank every collective leaves the input in the output, but for an exscan, for no rank is before this one; some
// reductions change it all the same.
void copy_input(const Request& request) {
  if (request.collective == Collective::kExscan) return;
  const std::size_t nbytes = request.in.nbytes();
  if (reduces(request.collective) && request.out.data != nullptr) {
    return reduce_alone(request.out.data, request.in.data, request.in.count, request.in.dtype, request.op);
  }
  if (nbytes != 0 && request.out.data != nullptr && request.out.data != request.in.data) {
    std::memcpy(request.out.data, request.in.data, nbytes);
  }
}

int64_t to_ns(TimePoint at) { return at.time_since_epoch() / std::chrono::nanoseconds(1); }

CallRecord record_of(const Request& request, const Choice& choice, uint32_t group, uint64_t sequence,
                     uint64_t digest, Rank size, TimePoint began) {
  CallRecord record;
  record.kind = CallRecord::Kind::kCollective;
  record.collective = request.collective;
  const auto [count, dtype] = elements_of(request, size);
  record.dtype = dtype;
  record.count = count;
  record.parts = parts_of(request);
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
CallRecord record_of(const ConstBuffer& data, Rank peer, bool sends, const MessageId& id, const char* site,
                     TimePoint began) {
  CallRecord record;
  record.kind = sends ? CallRecord::Kind::kSend : CallRecord::Kind::kRecv;
  record.dtype = data.dtype;
  record.count = data.count;
  record.layout = data.layout;
  record.root_or_peer = peer;
  record.group = id.stream.group;
  record.tag = id.stream.tag;
  record.sequence = id.sequence;
  record.digest = id.digest;
  record.site = site;
  record.began_ns = to_ns(began);
  return record;
}

class FinishedWork final : public Work {
 public:
  bool done() const override { return true; }
  Status wait(const WaitContext&) override { return Status(); }
  void cancel() override {}
  Rank waits_for() const override { return -1; }
  std::string where() const override { return "ended"; }
};

}  // namespace

GroupCommunicator::GroupCommunicator(const Parts& parts, uint32_t group, GroupNames names, double timeout_s,
                                     SelectionTable selection)
    : parts_(parts),
      group_(group),
      selection_(std::move(selection)),
      shared_(new GroupState{GroupCalls(parts.calls, group, std::move(names))}) {
  rank_ = shared_->calls.names().rank();
  size_ = shared_->calls.names().size();
  timeout_s_ = timeout_s;
  if (parts.calls.control != nullptr)
    parts.calls.control->add(group, std::shared_ptr<ControlledGroup>(shared_, &shared_->calls));
}

GroupCommunicator::~GroupCommunicator() {
  abort(Status(Code::kNotInitialized, "the group was closed"));
  if (parts_.calls.control != nullptr) parts_.calls.control->remove(group_);
}

Status GroupCommunicator::usable() {
  PC_TRY(shared_->calls.before());
  return shared_->reentry.check();
}

Status GroupCommunicator::run(const Request& request, double timeout_s) {
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
  StartedCall started(*shared_);
  PC_TRY(start(request, choice, began, leaving, started));
  const Status ended = started.finish(context_for(timeout_s, began), [&]() -> std::string {
    return leaving ? "shutdown" : operation_text(request, choice, size_, started.made.call.sequence);
  });
  if (ended.is_ok() && purpose == Purpose::kResync) shared_->calls.settle(started.made.call.sequence);
  return ended;
}

Result<std::unique_ptr<Work>> GroupCommunicator::launch(const Request& request) {
  Request call = request;
  PC_TRY(check_request(call, rank_, size_));
  PC_TRY(usable());
  if (size_ == 1) {
    copy_input(call);
    return std::unique_ptr<Work>(std::make_unique<FinishedWork>());
  }
  const Choice choice = choose(call);
  auto work = std::make_unique<GroupWork>(shared_);
  PC_TRY(start(call, choice, now(), false, work->started()));
  work->set_operation(operation_text(call, choice, size_, work->started().made.call.sequence));
  return std::unique_ptr<Work>(std::move(work));
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
    const Status status = make(barrier, std::max(deadline.remaining_s(), 0.0), Purpose::kResync);
    const bool out_of_step = status.code() == Code::kMismatch || status.code() == Code::kTimeout ||
                             status.code() == Code::kPeerInterrupted || status.code() == Code::kAborted;
    if (!out_of_step || *shared_->calls.word() != 0 || deadline.expired()) return status;
  }
}

Choice GroupCommunicator::choose(const Request& request) const {
  const bool even = request.counts.empty();
  const uint64_t nbytes = knows_size(request) ? elements_of(request, size_).nbytes() : kUnknownSize;
  return selection_.choose(request.collective, nbytes, {size_, parts_.hosts}, even);
}

Status GroupCommunicator::start(const Request& request, const Choice& choice, TimePoint began, bool leaving,
                                StartedCall& started) {
  Executor& executor = *parts_.calls.executor;
  if (!executor.supports(request, size_)) {
    return Status(Code::kUnsupported, "the executor '" + std::string(executor.name()) +
                                          "' of this group cannot run this " +
                                          std::string(name_of(request.collective)));
  }
  const std::unique_lock turn = shared_->calls.turn();
  start_next(request, choice, {began, leaving}, request, choice, started.made);
  if (parts_.check == Check::kStrict && !leaving) {
    const Request barrier;
    const NextCall confirmation{began, false, started.made.call.sequence};
    start_next(request, choice, confirmation, barrier, choose(barrier), started.confirmation);
  }
  return Status::ok();
}

// Gives the call that is `described` the next number, and launches what makes it. Turn held.
void GroupCommunicator::start_next(const Request& described, const Choice& described_choice,
                                   const NextCall& as, const Request& made, const Choice& choice,
                                   NumberedCall& next) {
  GroupCalls& calls = shared_->calls;
  const uint64_t sequence = calls.next_number();
  uint64_t digest = 0;
  if (as.leaving) {
    digest = digest_of_leaving(group_, sequence);
  } else if (parts_.check != Check::kOff) {
    digest = digest_of(described, described_choice, group_, size_, sequence);
    if (as.confirms != 0) digest = ~digest;  // another thing than a call of that description
  }
  CallRecord record = record_of(described, described_choice, group_, sequence, digest, size_, as.began);
  if (as.leaving) record.kind = CallRecord::Kind::kShutdown;
  if (as.confirms != 0) record.kind = CallRecord::Kind::kConfirmation;
  next.call = {sequence, calls.record(record), as.began, as.leaving, as.confirms};
  if (calls.given_up_before(sequence)) {
    next.refused = Status(Code::kAborted, "other ranks gave this call up before it was made here");
    parts_.calls.control->came_late(calls.id(sequence));
  } else {
    Result<std::unique_ptr<Work>> launched =
        executor_launch(made, {group_, sequence, digest, rank_, size_, calls.names().world_ranks().data(),
                               choice.algorithm, choice.split, &calls});
    if (launched.is_ok()) {
      next.work = std::move(launched).value();
      return;
    }
    next.refused = launched.status();
  }
  calls.cancel(sequence, next.refused);  // peers may send for it
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

// send and recv differ in what `post` does with (world rank of the peer, name of the message, how it ended).
template <class Post>
Status GroupCommunicator::exchange(const ConstBuffer& data, Rank peer, uint32_t tag, bool sends,
                                   double timeout_s, const char* site, Post&& post) {
  const std::string_view verb = sends ? "send to" : "recv from";
  PC_TRY(check_message(data, peer, rank_, size_, verb));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, timeout_s_));
  PC_TRY(usable());
  GroupCalls& calls = shared_->calls;
  MessageEnd how;
  std::unique_lock<std::mutex> lock(messages_mutex_);
  const uint64_t sequence = messages(peer, tag, sends).take();
  const uint64_t digest = parts_.check == Check::kOff
                              ? 0
                              : digest_of_message(group_, tag, sequence, data.dtype, data.count, data.layout);
  const MessageId id{{group_, StreamClass::kPointToPoint, tag}, sequence, 0, digest};
  const TimePoint began = now();
  const GroupCalls::Call call{0, calls.record_message(record_of(data, peer, sends, id, site, began)), began};
  const std::unique_ptr<Work> work = post(calls.names().to_world(peer), id, &how);
  lock.unlock();
  const auto operation = [&] { return message_text(verb, peer, tag, data); };
  MessageWatch watch(calls, call, *work, peer, verb);
  WaitContext context = context_for(seconds, began);
  context.watch = &watch;
  const Status ended = shared_->reentry.wait(*work, context, operation);
  if (ended.is_ok()) return calls.done(call), ended;
  if (how.untold) {  // the peer knows nothing of it: the next message takes its place
    const std::lock_guard<std::mutex> again(messages_mutex_);
    messages(peer, tag, sends).give_back(sequence);
  }
  const std::string theirs =
      ended.code() == Code::kMismatch ? message_found(how.found, how.found_nbytes) : "";
  Status said = ended;
  if (!theirs.empty()) {
    said = Status(Code::kMismatch, "rank " + std::to_string(peer) + (sends ? " expects " : " sent ") +
                                       theirs + ", this rank " + (sends ? "sends " : "expects ") +
                                       array_text(data.dtype, data.count, data.layout));
  } else if (ended.code() == Code::kAborted && watch.peer_has_left()) {
    said = Status(Code::kPeerExited,
                  calls.names().full(peer) + " is in shutdown(), and takes part in nothing more");
  }
  return calls.conclude_message(said.with_peer(peer), call, operation(), parts_.interrupted);
}

Status GroupCommunicator::send(ConstBuffer data, Rank peer, uint32_t tag, double timeout_s,
                               const char* site) {
  return exchange(data, peer, tag, true, timeout_s, site,
                  [&](Rank world_rank, const MessageId& id, MessageEnd* how) {
                    return post_send(*parts_.transport, *parts_.calls.reactor, world_rank, id, data, how);
                  });
}

Status GroupCommunicator::recv(Buffer data, Rank peer, uint32_t tag, double timeout_s, const char* site) {
  return exchange(data, peer, tag, false, timeout_s, site,
                  [&](Rank world_rank, const MessageId& id, MessageEnd* how) {
                    return post_recv(*parts_.transport, *parts_.calls.reactor, world_rank, id, data, how);
                  });
}

uint64_t GroupCommunicator::Numbers::take() {
  if (free.empty()) return ++count;
  const auto lowest = std::min_element(free.begin(), free.end());
  const uint64_t number = *lowest;
  free.erase(lowest);
  return number;
}

GroupCommunicator::Numbers& GroupCommunicator::messages(Rank peer, uint32_t tag, bool sends) {
  return messages_[uint64_t{static_cast<uint32_t>(peer)} << 33 | uint64_t{tag} << 1 | (sends ? 1 : 0)];
}

WaitContext GroupCommunicator::context_for(double timeout_s, TimePoint began) const {
  return {Deadline::after(timeout_s, began), shared_->calls.word(), parts_.interrupted, nullptr};
}

Result<std::string> GroupCommunicator::explain(ExplainedCall call) const {
  call.group = {size_, parts_.hosts};
  call.transport = parts_.transport != nullptr ? parts_.transport->name() : "none, one rank only";
  if (call.rank == -1) call.rank = rank_;
  return explain_call(call, selection_);
}

bool GroupCommunicator::ended() const { return *shared_->calls.word() != 0; }

void GroupCommunicator::abort(const Status& why) noexcept { shared_->calls.abort(why); }

}  // namespace pc
