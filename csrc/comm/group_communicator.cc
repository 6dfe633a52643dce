#include "comm/group_communicator.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>

#include "comm/arguments.h"
#include "comm/array_description.h"
#include "comm/descriptor.h"
#include "comm/group_calls.h"
#include "comm/message_search.h"
#include "comm/progress.h"
#include "engine/point_to_point.h"
#include "engine/shm/hier/hier_executor.h"
#include "engine/shm/shared_executor.h"
#include "kernels/reduce.h"

namespace pc {
namespace {

TimePoint now() { return std::chrono::steady_clock::now(); }

// With one rank every collective leaves the input in the output, but for an exscan, for no rank is before this one; some
// reductions change it all the same.
void copy_input(const Request& request) {
  if (request.collective == Collective::kExscan) return;
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
  record.bundle = request.bundle;
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
  WaitEnd drive(const WaitContext&) override { return WaitEnd::kReady; }
  void progress() override {}
  void ring(CompletionSink*, uint64_t) override {}
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
    return std::unique_ptr<Work>(std::make_unique<FinishedWork>());
  }
  PC_ASSIGN_OR_RETURN(std::unique_ptr<Work> work, launch(call, now()));
  return work;
}

Result<std::unique_ptr<GroupWork>> GroupCommunicator::launch(const Request& checked, TimePoint began) {
  const Choice choice = choose(checked);
  auto work = std::make_unique<GroupWork>(shared_);
  PC_TRY(start(checked, choice, {began}, work->started()));
  work->set_operation(operation_text(checked, choice, size_, work->sequence()));
  return work;
}

Result<std::shared_ptr<AsyncCall>> GroupCommunicator::begin(const Request& request, Async how) {
  const TimePoint began = now();
  Request call = request;
  PC_TRY(check_request(call, rank_, size_));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(how.timeout_s, timeout_s_));
  PC_TRY(usable());
  if (size_ == 1) {
    copy_input(call);
    if (how.on_end) how.on_end();
    return std::make_shared<AsyncCall>(Status::ok());
  }
  PC_TRY(parts_.calls.progress->start());
  PC_ASSIGN_OR_RETURN(std::unique_ptr<GroupWork> work, launch(call, began));
  return parts_.calls.progress->add(
      {std::move(work), Deadline::after(seconds, began), std::move(how.on_end)});
}

// A barrier under the call's own description: it ends when all ranks have made the same call.
Result<std::shared_ptr<AsyncCall>> GroupCommunicator::begin_comparison(const Request& described,
                                                                       const Algorithm& by, Async how) {
  const TimePoint began = now();
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(how.timeout_s, timeout_s_));
  PC_TRY(usable());
  if (size_ == 1 || parts_.check == Check::kOff) return std::make_shared<AsyncCall>(Status::ok());
  PC_TRY(parts_.calls.progress->start());
  const Choice described_choice{&by};
  const Request barrier;
  auto work = std::make_unique<GroupWork>(shared_);
  {
    const std::unique_lock turn = shared_->calls.turn();
    start_next(described, described_choice, {began}, barrier, choose(barrier), work->started().made);
  }
  work->set_operation(operation_text(described, described_choice, size_, work->sequence()));
  return parts_.calls.progress->add(
      {std::move(work), Deadline::after(seconds, began), std::move(how.on_end)});
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
                                StartedCall& started) {
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
                               choice.algorithm, choice.split, &calls, as.waits});
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

Status GroupCommunicator::check(const Message& message) {
  PC_TRY(check_message(message.data, message.peer, rank_, size_, message.sends ? "send to" : "recv from"));
  return message.goes_on() ? goes_on() : usable();
}

// What has come up about earlier calls is for who makes a new one.
Status GroupCommunicator::goes_on() {
  PC_TRY(shared_->calls.alive());
  return shared_->reentry.check();
}

GroupCommunicator::NumberedMessage GroupCommunicator::number(const Message& message, TimePoint began) {
  const auto& [data, peer, tag, sends, site, number, description, bundle, found_digest, place] = message;
  const uint64_t sequence = number != 0 ? number : shared_->messages.take(peer, tag, sends);
  if (place.used != nullptr) *place.used = true;
  const bool compares = parts_.check != Check::kOff && (message.is_whole() || message.is_offer());
  const uint64_t fingerprint =
      found_digest ? *found_digest
      : compares   ? digest_of_message(group_, tag, sequence, data.dtype, data.count, data.layout, bundle)
                   : 0;  // what an offer was compared for comes in its size
  const uint64_t digest = message.is_offer() ? fingerprint | kOfferBit : fingerprint;
  const MessageId id{{group_ | place_of(place.part), StreamClass::kPointToPoint, tag}, sequence, 0, digest};
  const StartedMessage::What what = message.what();
  CallRecord record = record_of(what.data, peer, what.is_sent(), id, site, began);
  record.group = group_;
  return {id, {0, shared_->calls.record_message(record), began}};
}

void GroupCommunicator::post(const Message& message, const NumberedMessage& numbered,
                             StartedMessage& started) {
  Reactor& reactor = *parts_.calls.reactor;
  const Rank to = shared_->calls.names().to_world(message.peer);
  started.set_posted(numbered.call, numbered.id,
                     message.sends ? post_send(*parts_.transport, reactor, to, numbered.id,
                                               {message.payload()}, started.what().description, started.how())
                                   : post_recv(*parts_.transport, reactor, to, numbered.id, message.payload(),
                                               started.how()));
}

void GroupCommunicator::post(const Message& message, TimePoint began, StartedMessage& started) {
  const std::unique_lock turn = shared_->messages.turn();
  post(message, number(message, began), started);
}

// A small message between ranks that share memory needs nothing that could be waited for, or cancelled.
bool GroupCommunicator::exchange_at_once(const Message& message, const NumberedMessage& numbered,
                                         double timeout_s) {
  constexpr double kLongEnough = 1e-3;  // to wait without a look at the deadline
  const std::size_t nbytes = message.nbytes();
  if (nbytes > kEagerBytes || message.data.list != nullptr) return false;
  const Rank to = shared_->calls.names().to_world(message.peer);
  if (message.sends) {
    const std::span<const char> description(message.description);
    const std::span<const std::byte> payload(message.data.data, nbytes);
    return parts_.transport->send_at_once(to, {numbered.id, payload, nullptr, 0, std::as_bytes(description)});
  }
  return timeout_s >= kLongEnough &&
         parts_.transport->recv_at_once(to, {numbered.id, {message.data.data, nbytes}, nbytes});
}

Status GroupCommunicator::exchange(const Message& message, double timeout_s, uint64_t* number) {
  PC_TRY(check(message));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, timeout_s_));
  const TimePoint began = now();
  std::unique_lock turn = shared_->messages.turn();
  const NumberedMessage numbered = this->number(message, began);
  if (number != nullptr) *number = numbered.id.sequence;
  if (!message.sends) turn.unlock();  // it may wait
  if (exchange_at_once(message, numbered, seconds)) {
    if (turn.owns_lock()) turn.unlock();
    shared_->calls.done(numbered.call);
    look_around();
    return Status::ok();
  }
  StartedMessage started(*shared_, message.what());
  post(message, numbered, started);
  if (message.sends) turn.unlock();
  const Status ended = received(started, message, context_for(seconds, began, message.place.stop));
  if (number != nullptr && started.untold()) *number = 0;
  return ended;
}

// What was offered instead of being sent is asked for.
Status GroupCommunicator::received(StartedMessage& started, const Message& message,
                                   const WaitContext& context) {
  if (!started.was_offered(context)) {
    const Status ended = started.finish(context);
    if (started.refuses_offer()) refuse(started);
    return ended;
  }
  const ConstBuffer array = message.data;
  const uint64_t number = started.number();
  MessageGo go;
  answer(started, {MessageAnswer::Word::kThroughHost, {}});
  const Status heard = recv({{reinterpret_cast<std::byte*>(&go), sizeof(go), DType::kU8},
                             message.peer,
                             message.tag,
                             message.site,
                             0,
                             {MessagePart::kGo, number, message.place.stop, &array}},
                            std::max(context.deadline.remaining_s(), kOfferGraceS));
  if (!heard.is_ok()) return refuse_data(message.peer, message.tag, number), heard;
  PC_TRY(go.status(message.peer).with_rank(rank_).with_operation(started.operation()));
  Message data = message;
  data.number = number;
  data.digest = {};
  data.place.part = MessagePart::kData;
  StartedMessage moving(*shared_, data.what());
  post(data, now(), moving);
  WaitContext last = context;  // the sender counts on this rank now
  last.deadline = Deadline(std::max(context.deadline.when(), Deadline::after(kOfferGraceS).when()));
  return moving.finish(last);
}

// The sender of the data hears at once that nobody takes them.
void GroupCommunicator::refuse_data(Rank peer, uint32_t tag, uint64_t number) {
  (void)begin_recv({{}, peer, tag, nullptr, 0, {MessagePart::kData, number}}, {timeout_s_, {}});
}

void GroupCommunicator::refuse(const StartedMessage& offered) {
  const ConstBuffer& array = offered.what().data;
  const std::string expected = array_text(array.dtype, array.count, array.layout);
  answer(offered,
         MessageAnswer::refused(offered.expects_offered() ? expected + " in memory of the host" : expected));
}

// Does not wait: the progress thread does it, too. Whoever cannot say it has a group that has ended.
void GroupCommunicator::answer(const StartedMessage& offered, const MessageAnswer& answer) {
  const StartedMessage::What& what = offered.what();
  const auto kept = std::make_shared<std::pair<MessageAnswer, ConstBuffer>>(answer, what.data);
  (void)begin_send({{reinterpret_cast<const std::byte*>(&kept->first), sizeof(answer), DType::kU8},
                    what.peer,
                    what.tag,
                    nullptr,
                    {},
                    0,
                    {MessagePart::kAnswer, offered.number(), nullptr, &kept->second}},
                   {timeout_s_, [kept] {}});
}

Status GroupCommunicator::offer(const OutgoingMessage& message, double timeout_s, uint64_t* number) {
  *number = 0;
  Message offered = sent(message);
  offered.place.part = MessagePart::kOffer;
  offered.data.device = {};  // nothing of it is touched here
  offered.description = describe_offer(offered.data.nbytes(), offered.description);
  if (offered.description.size() > kMaxDescriptionBytes)
    offered.description = describe_offer(offered.data.nbytes(), {});
  const Status sent = exchange(offered, timeout_s, number);
  // A receiver that waits for the data already is one that answers.
  return sent.code() == Code::kMismatch ? Status::ok() : sent;
}

Status GroupCommunicator::take_offer(const FoundMessage& offer, const ConstBuffer& expected,
                                     std::optional<uint64_t> bundle) {
  const Buffer memory{const_cast<std::byte*>(expected.data),
                      expected.count,
                      expected.dtype,
                      {},
                      expected.layout,
                      expected.list};
  Message message{memory, offer.peer, offer.tag, false, offer.site, offer.number, {}, bundle.value_or(0)};
  message.place.part = MessagePart::kOffer;
  if (!bundle) message.digest = offer.digest;
  // An offer has no size that would be compared, and without PYCOLLECTIVE_CHECK no fingerprint.
  if (expected.nbytes() != offer.nbytes) message.digest = (offer.digest ^ 1) & ~kOfferBit;
  return exchange(message, timeout_s_);  // it is here
}

Result<std::unique_ptr<MessageWork>> GroupCommunicator::launch(const Message& message, TimePoint began) {
  PC_TRY(check(message));
  auto work = std::make_unique<MessageWork>(shared_, message.what(), *this);
  post(message, began, work->started());
  return work;
}

Result<std::shared_ptr<AsyncCall>> GroupCommunicator::begin(const Message& message, Async how) {
  const TimePoint began = now();
  PC_TRY(check(message));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(how.timeout_s, timeout_s_));
  PC_TRY(parts_.calls.progress->start());
  PC_ASSIGN_OR_RETURN(std::unique_ptr<MessageWork> work, launch(message, began));
  return parts_.calls.progress->add(
      {std::move(work), Deadline::after(seconds, began), std::move(how.on_end)});
}

// A send reads its memory only.
GroupCommunicator::Message GroupCommunicator::sent(const OutgoingMessage& message) {
  const ConstBuffer& data = message.data;
  const Buffer memory{
      const_cast<std::byte*>(data.data), data.count, data.dtype, data.device, data.layout, data.list};
  const int64_t flat[] = {static_cast<int64_t>(count_of_items(data.count, data.layout))};
  return {memory,
          message.peer,
          message.tag,
          true,
          message.site,
          message.place.number,
          describe_array(data.dtype, message.shape.value_or(flat), data.layout),
          message.bundle,
          {},
          message.place};
}

Status GroupCommunicator::send(const OutgoingMessage& message, double timeout_s) {
  if (message.place.part == MessagePart::kData) {  // which is ready to be sent now
    const MessageGo go{1, Code::kOk, {}};
    PC_TRY(
        exchange(sent({{reinterpret_cast<const std::byte*>(&go), sizeof(go), DType::kU8},
                       message.peer,
                       message.tag,
                       message.site,
                       {},
                       0,
                       {MessagePart::kGo, message.place.number, nullptr, &message.data, message.place.used}}),
                 kOfferGraceS));
    // The receiver counts on it now.
    if (timeout_s >= 0) timeout_s = std::max(timeout_s, kOfferGraceS);
  }
  return exchange(sent(message), timeout_s);
}

Result<FoundMessage> GroupCommunicator::find(const IncomingMessage& message, double timeout_s) {
  const auto& [data, peer, tag, site, bundle, place] = message;
  if (peer != kAnyRank) {
    PC_TRY(check_message({}, peer, rank_, size_, "recv from"));
  } else if (size_ == 1) {
    return Status(Code::kInvalidArgument, "recv from any rank: this group has no other rank");
  }
  PC_TRY(place.number == 0 ? usable() : goes_on());
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, timeout_s_));
  const TimePoint began = now();
  CallRecord record = record_of({}, peer, false, {{group_, StreamClass::kPointToPoint, tag}}, site, began);
  record.kind = CallRecord::Kind::kProbe;
  if (place.used != nullptr) *place.used = true;
  MessageSearch search(*shared_, *parts_.transport, *parts_.calls.reactor,
                       {group_, peer, tag, site, place.number});
  PC_ASSIGN_OR_RETURN(FoundMessage found, search.wait({0, shared_->calls.record_message(record), began},
                                                      context_for(seconds, began, place.stop)));
  std::string array;
  found.is_offer = is_offer(found.digest) && read_offer(found.description, &found.nbytes, &array);
  if (found.is_offer) found.description = std::move(array);
  return found;
}

Status GroupCommunicator::recv(Buffer data, const FoundMessage& found, std::optional<uint64_t> bundle) {
  Message message{data, found.peer, found.tag, false, found.site, found.number, {}, bundle.value_or(0)};
  if (!bundle) message.digest = found.digest;
  if (const Status refused = check(message); !refused.is_ok()) return put_back(found), refused;
  const TimePoint began = now();
  StartedMessage started(*shared_, message.what());
  post(message, began, started);
  WaitContext context = context_for(0, began);
  context.deadline = found.deadline;
  return received(started, message, context);
}

void GroupCommunicator::put_back(const FoundMessage& found) {
  shared_->messages.give_back(found.peer, found.tag, false, found.number);
}

Status GroupCommunicator::sendrecv(const OutgoingMessage& out, Buffer in, Rank source, uint32_t tag,
                                   double timeout_s) {
  const Message there = sent(out), here{in, source, tag, false, out.site};
  PC_TRY(check_sendrecv(out.data, out.peer, in, source, rank_, size_));
  PC_TRY(usable());
  if (out.peer == rank_) {
    if (in.nbytes() != 0) std::memcpy(in.data, out.data.data, in.nbytes());
    return Status::ok();
  }
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, timeout_s_));
  const TimePoint began = now();
  StartedMessage sending(*shared_, there.what()), receiving(*shared_, here.what());
  post(here, began, receiving);
  post(there, began, sending);
  const Status received = this->received(receiving, here, context_for(seconds, began));
  // What failed here does not change what the other rank expects.
  const Status left = sending.finish(context_for(seconds, began));
  return received.is_ok() ? left : received;
}

Status GroupCommunicator::recv(const IncomingMessage& message, double timeout_s) {
  const auto& [data, peer, tag, site, bundle, place] = message;
  return exchange({data, peer, tag, false, site, place.number, {}, bundle, {}, place}, timeout_s);
}

Result<std::unique_ptr<Work>> GroupCommunicator::launch_send(const OutgoingMessage& message) {
  PC_ASSIGN_OR_RETURN(std::unique_ptr<Work> work, launch(sent(message), now()));
  return work;
}

Result<std::unique_ptr<Work>> GroupCommunicator::launch_recv(Buffer data, Rank peer, uint32_t tag,
                                                             const char* site) {
  PC_ASSIGN_OR_RETURN(std::unique_ptr<Work> work, launch({data, peer, tag, false, site}, now()));
  return work;
}

Result<std::shared_ptr<AsyncCall>> GroupCommunicator::begin_send(const OutgoingMessage& message, Async how) {
  return begin(sent(message), std::move(how));
}

Result<std::shared_ptr<AsyncCall>> GroupCommunicator::begin_recv(const IncomingMessage& message, Async how) {
  const auto& [data, peer, tag, site, bundle, place] = message;
  return begin({data, peer, tag, false, site, place.number, {}, bundle, {}, place}, std::move(how));
}

uint64_t GroupCommunicator::take_number(Rank peer, uint32_t tag, bool sends) {
  const std::unique_lock turn = shared_->messages.turn();
  return shared_->messages.take(peer, tag, sends);
}

void GroupCommunicator::give_back(Rank peer, uint32_t tag, bool sends, uint64_t number) {
  shared_->messages.give_back(peer, tag, sends, number);
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
  call.transport = parts_.transport != nullptr ? parts_.transport->name() : "none, one rank only";
  if (call.rank == -1) call.rank = rank_;
  return explain_call(call, selection_);
}

std::string GroupCommunicator::explain_messages() const {
  std::map<std::string_view, std::string> ranks;  // by way
  for (Rank peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    std::string& text = ranks[parts_.transport->way_to(shared_->calls.names().to_world(peer))];
    text += (text.empty() ? "" : ", ") + std::to_string(peer);
  }
  std::string text = "messages of rank " + std::to_string(rank_) + " of " + std::to_string(size_) + "\n";
  for (const auto& [way, peers] : ranks) text += std::string(way) + ": with ranks " + peers + "\n";
  return text +
         "up to 64 KiB they are sent before they are asked for, as long as 1 MiB or 1024 of them wait at "
         "most\n";
}

bool GroupCommunicator::ended() const { return *shared_->calls.word() != 0; }

void GroupCommunicator::abort(const Status& why) noexcept { shared_->calls.abort(why); }

}  // namespace pc
