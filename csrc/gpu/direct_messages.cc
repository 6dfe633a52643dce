#include "gpu/direct_messages.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/start_thread.h"
#include "comm/arguments.h"
#include "failure/descriptor.h"
#include "gpu/cuda/context.h"
#include "gpu/cuda/host_wait.h"
#include "gpu/direct_message_call.h"
#include "gpu/staging/device_arguments.h"
#include "operation/plain_bytes.h"

namespace pc {

Result<std::shared_ptr<DirectMessages>> DirectMessages::create(
    Communicator& group, P2pChannels& channels, const std::shared_ptr<const cuda::Driver>& driver,
    int device) {
  PC_ASSIGN_OR_RETURN(cuda::Context context, cuda::Context::primary(driver, device));
  PC_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::create(context));
  PC_ASSIGN_OR_RETURN(std::shared_ptr<StagedCalls> staged,
                      StagedCalls::create(group, driver, device, group.timeout_s()));
  return std::shared_ptr<DirectMessages>(
      new DirectMessages(group, channels, std::move(context), std::move(stream), std::move(staged)));
}

DirectMessages::DirectMessages(Communicator& group, P2pChannels& channels, cuda::Context context,
                               cuda::Stream stream, std::shared_ptr<StagedCalls> staged)
    : group_(group),
      channels_(channels),
      context_(std::move(context)),
      stream_(std::move(stream)),
      events_(context_),
      staged_(std::move(staged)),
      failures_(std::make_shared<MessageFailures>(group)) {}

DirectMessages::~DirectMessages() {
  abort();
  for (Thread& each : threads_) each.thread.join();
  failures_->close();
}

void DirectMessages::abort() { stopping_ = true; }

// Both ranks of a message must decide the same, so the result depends only on what both know.
// Neither knows where the other rank's array is.
bool DirectMessages::may_be_offered(const ConstBuffer& data) const {
  return data.list == nullptr && data.layout == nullptr && data.nbytes() > kEagerBytes &&
         group_.gpus_may_join().is_ok();
}

Status DirectMessages::take_failure() { return failures_->take(); }

Status DirectMessages::run(const UserCall& call, double timeout_s) {
  if (const Status failed = take_failure(); !failed.is_ok()) {
    if (call.found != nullptr) group_.messages().put_back(*call.found);
    return failed;
  }
  if (call.kind == UserCall::Kind::kSendrecv) return sendrecv(call, timeout_s);
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, group_.timeout_s()));
  return run_until(call, Deadline::after(seconds));
}

Status DirectMessages::run_until(const UserCall& call, Deadline deadline) {
  const Launch launch = [&](GroupOnGpus& backend, const UserCall& made, double left_s) -> Status {
    if (!call.request.stream || !backend.is_in_stream_order(made)) return backend.run(made, left_s);
    const auto queued =
        std::make_shared<DirectMessageCall>(group_, failures_, stopping_, call, deadline, nullptr);
    PC_TRY(queued->begin(backend, made, left_s, true));
    queued->set_queued(Status::ok());
    return Status::ok();
  };
  return make(call, {deadline, nullptr, launch});
}

// Checks the call, and converts it into the form that executors expect.
Status DirectMessages::check(UserCall& call) const {
  PC_TRY(check_on_gpu(call, context_.ordinal(), group_));
  PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, context_.enter());
  PC_ASSIGN_OR_RETURN(const bool captured,
                      cuda::is_capturing(context_.driver(), cuda::stream_of(call.request)));
  if (!captured) return Status::ok();
  return Status(Code::kUnsupported, "a message cannot be captured into a CUDA graph: make it outside");
}

Status DirectMessages::make(const UserCall& call, const Making& how) {
  UserCall checked = call;
  if (const Status may = check(checked); !may.is_ok()) {
    if (call.found != nullptr) group_.messages().put_back(*call.found);
    return may;
  }
  const Request& request = checked.request;
  const bool is_own = request.root == group_.rank();  // the message is to this rank itself
  switch (checked.kind) {
    case UserCall::Kind::kSend:
      if (!is_own && may_be_offered(request.in)) return send(checked, how);
      break;
    case UserCall::Kind::kRecv: {
      if (is_own || !may_be_offered(request.out)) break;
      MessagePlace place = checked.place;
      place.stop = how.stop;
      PC_ASSIGN_OR_RETURN(
          const FoundMessage found,
          group_.messages().find({{}, request.root, checked.tag, request.site, place}, how.left_s()));
      checked.place = {MessagePart::kWhole, found.number};
      return recv(checked, found, how);
    }
    case UserCall::Kind::kRecvFound: return recv(checked, *checked.found, how);
    case UserCall::Kind::kSendrecv:
    case UserCall::Kind::kCollective: return Status(Code::kInternal, "this call is no message of one way");
  }
  return through_host(checked, how, how.left_s());
}

Status DirectMessages::through_host(const UserCall& call, const Making& how, double timeout_s) {
  UserCall made = call;
  made.place.stop = how.stop;
  return staged_->run(made, timeout_s);
}

WaitContext DirectMessages::context_of(const Making& how, double seconds) const {
  WaitContext context = group_.waiting_until(Deadline::after(seconds));
  if (how.stop != nullptr) context.interrupted = how.stop;
  return context;
}

namespace {

// Returns the call on the channel that transfers the message.
UserCall on_channel(const UserCall& message, bool sends) {
  UserCall made;
  made.keeps = message.keeps;
  Request& request = made.request;
  const Request& theirs = message.request;
  request.collective = Collective::kBroadcast;
  request.root = 0;
  request.stream = theirs.stream;
  request.site = theirs.site;
  if (!sends) {
    request.out = theirs.out;
    return made;
  }
  request.in = theirs.in;
  request.out = {const_cast<std::byte*>(theirs.in.data), theirs.in.count, theirs.in.dtype, theirs.in.device};
  return made;  // in.data may be cast to non-const, because the root of a broadcast in place only reads it
}

}  // namespace

Status DirectMessages::send(const UserCall& call, const Making& how) {
  const Request& request = call.request;
  const std::span<const Rank> world = group_.world_ranks();
  const std::shared_ptr<P2pChannel> channel =
      channels_.between(world[static_cast<std::size_t>(group_.rank())],
                        world[static_cast<std::size_t>(request.root)], context_.ordinal());
  if (channel == nullptr) return through_host(call, how, how.left_s());
  MessagePlace place = call.place;
  place.part = MessagePart::kOffer;
  place.stop = how.stop;
  uint64_t number = 0;
  const Status sent_offer = group_.messages().offer(
      {request.in, request.root, call.tag, request.site, place, call.shape, request.bundle}, how.left_s(),
      &number);
  if (!sent_offer.is_ok()) {
    if (number != 0) {  // the other rank may have received the offer and may answer
      let_answer_come(call, number);
      (void)send_part(call, number, MessageGo::given_up(sent_offer));
    }
    return sent_offer;
  }
  bool sent_go = false;
  const Status sent = offered(call, *channel, number, how, &sent_go);
  if (!sent.is_ok() && sent.code() != Code::kMismatch && !sent_go)
    // the other rank waits for "go", or will wait for it
    (void)send_part(call, number, MessageGo::given_up(sent));
  return sent;
}

Status DirectMessages::send_part(const UserCall& call, uint64_t number, const MessageGo& go) {
  const Request& request = call.request;
  const MessagePlace place{MessagePart::kGo, number, nullptr, &request.in};
  return group_.send({bytes_of(go), request.root, call.tag, request.site, place}, kOfferGraceS);
}

// Receives the answer in the background: it may still arrive, although no caller waits for it.
void DirectMessages::let_answer_come(const UserCall& call, uint64_t number) {
  const Request& request = call.request;
  const auto kept = std::make_shared<std::pair<MessageAnswer, ConstBuffer>>(MessageAnswer(), request.in);
  const MessagePlace place{MessagePart::kAnswer, number, nullptr, &kept->second};
  (void)group_.messages().begin_recv({buffer_of(kept->first), request.root, call.tag, nullptr, place},
                                     {-1, [kept](const Status&) {}});
}

Status DirectMessages::offered(const UserCall& call, P2pChannel& channel, uint64_t number, const Making& how,
                               bool* sent_go) {
  const Request& request = call.request;
  MessageAnswer answer;
  const MessagePlace place{MessagePart::kAnswer, number, how.stop, &request.in};
  const Status got =
      group_.recv({buffer_of(answer), request.root, call.tag, request.site, place}, how.left_s());
  if (!got.is_ok()) return let_answer_come(call, number), got;
  if (answer.word == MessageAnswer::Word::kRefused)
    return Status(Code::kMismatch, "rank " + std::to_string(request.root) + " expects " + answer.expects() +
                                       ", this rank sends " +
                                       array_text(request.in.dtype, request.in.count, nullptr))
        .with_rank(group_.rank())
        .with_peer(request.root)
        .with_operation(text_of(call));
  if (answer.word == MessageAnswer::Word::kThroughHost) {  // through_host() sends "go" before the data
    UserCall data = call;
    data.place = {MessagePart::kData, number, nullptr, nullptr, sent_go};
    return through_host(data, how, how.left_s());
  }
  const auto send_go = [&](uint64_t launch_number) {
    return send_part(call, number, {launch_number, Code::kOk, {}});
  };
  const auto launch = [&]() -> Status {
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<GroupOnGpus> backend,
                        channels_.backend_of(channel, cuda::stream_of(request), how.agreed_s()));
    return how.launch(*backend, on_channel(call, true), how.agreed_s());
  };
  const Status sent = channel.go(context_of(how, how.agreed_s()), send_go, launch, sent_go);
  return sent.is_ok() ? sent : words_of(sent, call, text_of(call), group_.rank());
}

Status DirectMessages::recv(UserCall& call, const FoundMessage& found, const Making& how) {
  if (found.is_offer) return take(call, found, how);
  bool used = false;
  call.place.used = &used;
  const Status received = through_host(call, how, how.left_s());
  if (!used) group_.messages().put_back(found);
  return received;
}

Status DirectMessages::take(const UserCall& call, const FoundMessage& found, const Making& how) {
  UserCall made = call;
  made.kind = UserCall::Kind::kRecv;
  made.request.root = found.peer;
  made.tag = found.tag;
  const Request& request = made.request;
  const ConstBuffer array = request.out;
  PC_TRY(group_.messages().take_offer(found, array,
                                      call.has_bundle ? std::optional(request.bundle) : std::nullopt));
  const std::span<const Rank> world = group_.world_ranks();
  std::shared_ptr<P2pChannel> channel;
  if (may_be_offered(array))
    channel = channels_.between(world[static_cast<std::size_t>(found.peer)],
                                world[static_cast<std::size_t>(group_.rank())], context_.ordinal());
  const MessageAnswer answer{
      channel == nullptr ? MessageAnswer::Word::kThroughHost : MessageAnswer::Word::kReady, {}};
  MessagePlace place{MessagePart::kAnswer, found.number, nullptr, &array};
  PC_TRY(group_.send({bytes_of(answer), found.peer, found.tag, request.site, place}, kOfferGraceS));
  MessageGo go;
  place = {MessagePart::kGo, found.number, how.stop, &array};
  const Status got = group_.recv({buffer_of(go), found.peer, found.tag, request.site, place}, how.agreed_s());
  if (!got.is_ok()) {  // the sender may wait for this rank
    if (channel != nullptr) (void)channel->end(got);
    if (channel == nullptr) group_.messages().refuse_data(found.peer, found.tag, found.number);
    return got;
  }
  PC_TRY(go.status(found.peer).with_rank(group_.rank()).with_operation(text_of(made)));
  if (channel == nullptr) {
    bool used = false;
    made.place = {MessagePart::kData, found.number, nullptr, nullptr, &used};
    const Status received = through_host(made, how, how.agreed_s());
    if (!used) group_.messages().refuse_data(found.peer, found.tag, found.number);
    return received;
  }
  const Status received = channel->follow(go.launch_number, context_of(how, how.agreed_s()), [&]() -> Status {
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<GroupOnGpus> backend,
                        channels_.backend_of(*channel, cuda::stream_of(request), how.agreed_s()));
    return how.launch(*backend, on_channel(made, false), how.agreed_s());
  });
  return received.is_ok() ? received : words_of(received, made, text_of(made), group_.rank());
}

// Transfers both directions at once, because the send runs asynchronously.
Status DirectMessages::sendrecv(const UserCall& call, double timeout_s) {
  UserCall checked = call;
  PC_TRY(check_on_gpu(checked, context_.ordinal(), group_));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, group_.timeout_s()));
  const Deadline deadline = Deadline::after(seconds);
  const Request& request = checked.request;
  const bool is_small = !may_be_offered(request.in) && !may_be_offered(request.out);
  if (is_small || request.root == group_.rank()) return staged_->run(call, seconds);
  UserCall out = checked, in = checked;
  out.kind = UserCall::Kind::kSend;
  out.request.out = {};
  in.kind = UserCall::Kind::kRecv;
  in.request.in = {};
  in.request.root = checked.source;
  PC_ASSIGN_OR_RETURN(const std::shared_ptr<GpuWork> sending, begin(out, seconds));
  const Status received = run_until(in, deadline);
  // If the receive has failed, the send continues, because the other rank still expects the
  // message.
  std::optional<Status> sent;
  if (received.code() != Code::kInterrupted && request.stream) {
    sent = sending->precede({Deadline(TimePoint::max())}, *request.stream);
  } else if (received.code() != Code::kInterrupted) {
    const Status ended = sending->wait(-1);
    if (ended.is_ok() || sending->outcome()) sent = ended;
  }
  if (!sent) sent = given_up(*sending);
  return received.is_ok() ? *sent : received;
}

// Called when the caller stops waiting and gets its array back. Cancels the message, unless the
// other rank already waits for the message. In that case waits until the message has been sent.
Status DirectMessages::given_up(GpuWork& sending) {
  const Deadline soon = Deadline::after(2 * kOfferGraceS);
  if (auto* const own = dynamic_cast<DirectMessageCall*>(&sending)) {
    own->give_up();
    (void)own->until_queued(soon, true);
  }
  const Status ended = sending.until_ended(soon);
  return ended.is_ok() ? Status(Code::kInterrupted, "interrupted") : ended;
}

Status DirectMessages::until_made(cuda::CUevent made, const WaitContext& context) const {
  PC_ASSIGN_OR_RETURN(const WaitEnd end, cuda::wait_on_host(
                                             [&]() -> Result<bool> {
                                               PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current,
                                                                   context_.enter());
                                               return cuda::is_reached(context_.driver(), made);
                                             },
                                             {context}));
  switch (end) {
    case WaitEnd::kReady: return Status::ok();
    case WaitEnd::kAborted: return group_.alive();
    case WaitEnd::kInterrupted:
      // the message's stop function returned true
      return Status(Code::kNotInitialized, "the group of this call was closed");
    case WaitEnd::kTimeout: break;
  }
  return Status(Code::kTimeout, "what makes its array has not ended on the GPU").with_rank(group_.rank());
}

Result<std::shared_ptr<GpuWork>> DirectMessages::begin(const UserCall& call, double timeout_s,
                                                       std::function<void(const Status&)> on_end) {
  PC_TRY(take_failure());
  UserCall checked = call;
  PC_TRY(check(checked));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, group_.timeout_s()));
  const bool sends = checked.kind == UserCall::Kind::kSend;
  Request& request = checked.request;
  if (!may_be_offered(sends ? request.in : ConstBuffer(request.out)))
    return staged_->begin(call, seconds, std::move(on_end));
  PC_ASSIGN_OR_RETURN(cuda::EventPool::Lease made, events_.take());
  {
    PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, context_.enter());
    PC_TRY(cuda::record(context_.driver(), made.get(), cuda::stream_of(request)));
  }
  request.stream = stream_.get();
  const auto started = std::make_shared<DirectMessageCall>(group_, failures_, stopping_, checked,
                                                           Deadline::after(seconds), std::move(on_end));
  PC_TRY(group_.may_call());
  PC_TRY(start(started, std::move(made)));
  return std::shared_ptr<GpuWork>(started);
}

// Takes the message's number in the caller's thread, so that messages keep the order of their
// calls.
Status DirectMessages::start(const std::shared_ptr<DirectMessageCall>& call,
                             cuda::EventPool::Lease array_made) {
  const UserCall& what = call->what();
  const bool sends = what.kind == UserCall::Kind::kSend;
  const std::lock_guard lock(mutex_);
  if (stopping_) return Status(Code::kNotInitialized, "the group of this call was closed");
  join_ended();
  const uint64_t number = group_.messages().take_number(what.request.root, what.tag, sends);
  const auto make_it = [this, call, sends, number,
                        event = std::make_shared<cuda::EventPool::Lease>(std::move(array_made))] {
    const Launch launch = [&](GroupOnGpus& backend, const UserCall& made, double left_s) {
      return call->begin(backend, made, left_s, false);
    };
    const Making how{call->deadline(), call->stop(), launch};
    bool used = false;
    UserCall made = call->what();
    made.place = {MessagePart::kWhole, number, how.stop, nullptr, &used};
    Status outcome = until_made(event->get(), context_of(how, how.left_s()));
    if (outcome.is_ok()) outcome = make(made, how);
    if (!used) group_.messages().give_back(made.request.root, made.tag, sends, number);
    call->set_queued(outcome);
  };
  std::thread thread;
  const Status started =
      start_thread(thread, "pc-gpu-message", "starting the thread of a message between GPUs", make_it);
  if (!started.is_ok()) {
    group_.messages().give_back(what.request.root, what.tag, sends, number);
    return started;
  }
  threads_.push_back({std::move(thread), call});
  return Status::ok();
}

void DirectMessages::join_ended() {
  for (auto each = threads_.begin(); each != threads_.end();) {
    if (!each->call->is_queued()) {
      ++each;
      continue;
    }
    each->thread.join();
    each = threads_.erase(each);
  }
}

Status DirectMessages::close(double timeout_s) {
  const Deadline deadline = Deadline::after(timeout_s < 0 ? group_.timeout_s() : timeout_s);
  Status first;
  std::vector<std::shared_ptr<DirectMessageCall>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const Thread& each : threads_)
      if (!each.call->is_queued()) all.push_back(each.call);
  }
  for (const std::shared_ptr<DirectMessageCall>& each : all) {
    const std::optional<Status> queued = each->until_queued(deadline);
    const Status ended = queued.value_or(Status(Code::kTimeout, "a message is still under way"));
    if (first.is_ok()) first = ended.is_ok() ? ended : ended.with_operation(each->operation());
  }
  const Status staged = staged_->close(std::max(deadline.remaining_s(), 0.0));
  const Status unobserved = take_failure();
  return !first.is_ok() ? first : !staged.is_ok() ? staged : unobserved;
}

}  // namespace pc
