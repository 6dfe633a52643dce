#include "comm/direct_messages.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <string>
#include <utility>

#include "base/start_thread.h"
#include "comm/arguments.h"
#include "comm/descriptor.h"
#include "comm/device_arguments.h"
#include "cuda/context.h"
#include "cuda/host_wait.h"

namespace pc {
namespace {

using Word = MessageAnswer::Word;
constexpr std::chrono::milliseconds kSlice{5};  // between two looks at what no condition tells

template <class T>
ConstBuffer bytes_of(const T& value) {
  return {reinterpret_cast<const std::byte*>(&value), sizeof(T), DType::kU8};
}
template <class T>
Buffer room_in(T& value) {
  return {reinterpret_cast<std::byte*>(&value), sizeof(T), DType::kU8};
}

bool interrupted(const WaitContext& context) {
  return context.interrupted != nullptr && *context.interrupted && (*context.interrupted)();
}

std::string text_of(const UserCall& call) {
  const bool sends = call.kind == UserCall::Kind::kSend;
  const Rank peer = call.kind == UserCall::Kind::kRecvFound ? call.found->peer : call.request.root;
  return message_text(sends ? "send to" : "recv from", peer, call.tag,
                      sends ? call.request.in : ConstBuffer(call.request.out));
}

}  // namespace

// A message that is made by a thread of its own. Thread-safety: all methods.
class DirectMessages::Call final : public StartedDeviceCall, public std::enable_shared_from_this<Call> {
 public:
  Call(DirectMessages& owner, const CallOnGpu& what, Deadline deadline, cuda::EventPool::Lent made,
       std::function<void()> on_end)
      : group_(owner.group_),
        owner_(owner.weak_from_this()),
        what_(what),
        deadline_(deadline),
        made_(std::move(made)),
        on_end_(std::move(on_end)) {
    operation_ = text_of(what.call);
    if (what.call.shape) {  // the caller's
      shape_.assign(what.call.shape->begin(), what.call.shape->end());
      what_.call.shape = shape_;
    }
  }

  std::optional<Status> precede_within(double timeout_s, cuda::CUstream stream) override {
    const Deadline until = deadline_of(timeout_s);
    const std::optional<Status> queued = until_queued(until);
    if (!queued || !queued->is_ok()) return queued;
    const std::shared_ptr<StartedDeviceCall> rest = this->rest();
    return rest == nullptr ? Status::ok() : rest->precede_within(left_of(timeout_s, until), stream);
  }
  bool precedes_at_once() const override {
    const std::shared_ptr<StartedDeviceCall> rest = this->rest();
    return rest != nullptr ? rest->precedes_at_once() : done();
  }
  Status wait(double timeout_s) override {
    const Deadline until = deadline_of(timeout_s);
    const std::optional<Status> queued = until_queued(until);
    if (!queued) return Status(Code::kTimeout, "the message has not been moved").with_operation(operation_);
    PC_TRY(*queued);
    const std::shared_ptr<StartedDeviceCall> rest = this->rest();
    return rest == nullptr ? Status::ok() : rest->wait(left_of(timeout_s, until));
  }
  bool done() const override {
    const std::lock_guard lock(mutex_);
    return queued_ && (rest_ == nullptr || rest_->done());
  }
  void leave_alone() override {
    const std::shared_ptr<DirectMessages> owner = owner_.lock();  // null: the world has ended
    const std::lock_guard lock(mutex_);
    left_alone_ = true;
    if (rest_ != nullptr) rest_->leave_alone();
    if (owner != nullptr) tell_if_unheard();
  }

  // ---- for its thread
  const CallOnGpu& what() const { return what_; }
  Deadline deadline() const { return deadline_; }
  cuda::CUevent made() const { return made_.get(); }
  // The GPU has it, and tells when it has ended.
  Status begin(GroupOnGpus& way, const CallOnGpu& call, double timeout_s) {
    const auto ended = [weak = weak_from_this(), on_end = on_end_] {
      if (const std::shared_ptr<Call> own = weak.lock()) {
        const std::lock_guard beginning(own->beginning_);  // it may end before begin() knows of it
        own->end_as_the_rest();
      }
      if (on_end) on_end();
    };
    const std::lock_guard beginning(beginning_);
    PC_ASSIGN_OR_RETURN(std::shared_ptr<StartedDeviceCall> rest, way.begin(call, timeout_s, ended));
    const std::lock_guard lock(mutex_);
    if (left_alone_) rest->leave_alone();
    rest_ = std::move(rest);
    return Status::ok();
  }
  void set_queued(const Status& outcome) {
    std::shared_ptr<StartedDeviceCall> rest;
    {
      const std::lock_guard lock(mutex_);
      rest = rest_;
      if (rest == nullptr) end(outcome.is_ok() ? State::kDone : State::kFailed);
      outcome_ = outcome;
      queued_ = true;
      if (left_alone_) tell_if_unheard();
      what_.keeps = nullptr;
    }
    changed_.notify_all();
    if (rest == nullptr && on_end_) on_end_();
  }
  bool is_queued() const {
    const std::lock_guard lock(mutex_);
    return queued_;
  }
  // Null: `until` came first, or Ctrl-C.
  std::optional<Status> until_queued(Deadline until) const {
    std::unique_lock lock(mutex_);
    while (!queued_) {
      if (until.remaining_s() <= 0) return std::nullopt;
      changed_.wait_for(lock, kSlice);
      if (queued_) break;
      lock.unlock();
      if (interrupted(group_.waiting_until(until))) return std::nullopt;
      lock.lock();
    }
    heard_ = true;
    return outcome_;
  }

 private:
  void tell_if_unheard() {  // mutex_ held, and the group there
    if (!queued_ || heard_) return;
    heard_ = true;
    if (!outcome_.is_ok()) group_.unheard(outcome_);
  }
  static Deadline deadline_of(double timeout_s) {
    return timeout_s < 0 ? Deadline(TimePoint::max()) : Deadline::after(timeout_s);
  }
  static double left_of(double timeout_s, Deadline until) {
    return timeout_s < 0 ? timeout_s : std::max(until.remaining_s(), 0.0);
  }
  std::shared_ptr<StartedDeviceCall> rest() const {
    const std::lock_guard lock(mutex_);
    return rest_;
  }
  void end_as_the_rest() {
    if (const std::shared_ptr<StartedDeviceCall> rest = this->rest()) end(rest->state());
  }

  Communicator& group_;
  const std::weak_ptr<DirectMessages> owner_;
  CallOnGpu what_;
  std::vector<int64_t> shape_;
  const Deadline deadline_;
  const cuda::EventPool::Lent made_;
  const std::function<void()> on_end_;
  std::mutex beginning_;      // held by begin()
  mutable std::mutex mutex_;  // guards what follows
  mutable std::condition_variable changed_;
  bool queued_ = false, left_alone_ = false;
  mutable bool heard_ = false;               // outcome_, by somebody
  Status outcome_;                           // once it is queued
  std::shared_ptr<StartedDeviceCall> rest_;  // what the GPU does; null: nothing is left to be done
};

Result<std::shared_ptr<DirectMessages>> DirectMessages::create(
    Communicator& group, MessageLines& lines, const std::shared_ptr<const cuda::Driver>& driver, int device) {
  PC_ASSIGN_OR_RETURN(cuda::Context context, cuda::Context::primary(driver, device));
  PC_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::create(context));
  PC_ASSIGN_OR_RETURN(std::shared_ptr<StagedCalls> staged,
                      StagedCalls::create(group, driver, device, group.timeout_s()));
  return std::shared_ptr<DirectMessages>(
      new DirectMessages(group, lines, std::move(context), std::move(stream), std::move(staged)));
}

DirectMessages::DirectMessages(Communicator& group, MessageLines& lines, cuda::Context context,
                               cuda::Stream stream, std::shared_ptr<StagedCalls> staged)
    : group_(group),
      lines_(lines),
      context_(std::move(context)),
      stream_(std::move(stream)),
      events_(context_),
      staged_(std::move(staged)) {}

DirectMessages::~DirectMessages() {
  abort();
  for (Thread& each : threads_) each.thread.join();
}

void DirectMessages::abort() { stopping_ = true; }

// Both ranks of a message say the same of it: it is not known here where the other's array lies.
bool DirectMessages::may_be_offered(const ConstBuffer& data) const {
  return data.list == nullptr && data.layout == nullptr && data.nbytes() > kEagerBytes &&
         group_.gpus_may_join().is_ok();
}

Status DirectMessages::run(const CallOnGpu& call, double timeout_s, bool has_stream) {
  if (call.call.kind == UserCall::Kind::kSendrecv) return sendrecv(call, timeout_s, has_stream);
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, group_.timeout_s()));
  const Launch launch = [has_stream](GroupOnGpus& way, const CallOnGpu& made, double left_s) {
    return way.run(made, left_s, has_stream);
  };
  return make(call, {Deadline::after(seconds), nullptr, launch});
}

Status DirectMessages::make(const CallOnGpu& call, const Making& how) {
  CallOnGpu checked = call;
  PC_TRY(check_on_gpu(checked.call, context_.ordinal(), group_));
  {
    PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, context_.enter());
    PC_ASSIGN_OR_RETURN(
        const bool captured,
        cuda::is_capturing(context_.driver(), static_cast<cuda::CUstream>(call.call.request.stream)));
    if (captured)
      return Status(Code::kUnsupported, "a message cannot be captured into a CUDA graph: make it outside");
  }
  const Request& request = checked.call.request;
  switch (checked.call.kind) {
    case UserCall::Kind::kSend:
      if (may_be_offered(request.in)) return send(checked, how);
      break;
    case UserCall::Kind::kRecv:
      if (may_be_offered(request.out)) {
        PC_ASSIGN_OR_RETURN(const FoundMessage found, group_.find(request.root, checked.call.tag,
                                                                  how.left_s(), request.site, how.stop));
        return recv(checked, found, how);
      }
      break;
    case UserCall::Kind::kRecvFound: return recv(checked, *checked.call.found, how);
    case UserCall::Kind::kSendrecv:
    case UserCall::Kind::kCollective: return Status(Code::kInternal, "this call is no message of one way");
  }
  return through_host(checked, how);
}

Status DirectMessages::through_host(const CallOnGpu& call, const Making& how) {
  CallOnGpu made = call;
  made.call.place.stop = how.stop;
  return staged_->run(made, how.left_s());
}

namespace {

// The message as a call of its line.
CallOnGpu on_line(const CallOnGpu& message, bool sends) {
  CallOnGpu made;
  made.keeps = message.keeps;
  Request& request = made.call.request;
  const Request& theirs = message.call.request;
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
  return made;  // in place, so it is only read
}

}  // namespace

Status DirectMessages::send(const CallOnGpu& call, const Making& how) {
  const Request& request = call.call.request;
  const std::span<const Rank> world = group_.world_ranks();
  const std::shared_ptr<MessageLine> line =
      lines_.between(world[static_cast<std::size_t>(group_.rank())],
                     world[static_cast<std::size_t>(request.root)], context_.ordinal());
  if (line == nullptr) return through_host(call, how);
  PC_ASSIGN_OR_RETURN(const uint64_t number, group_.offer({request.in,
                                                           request.root,
                                                           call.call.tag,
                                                           request.site,
                                                           call.call.shape,
                                                           request.bundle,
                                                           {MessagePart::kOffer, 0, how.stop}},
                                                          how.left_s()));
  const Status sent = offered(call, *line, number, how);
  return sent.is_ok() ? sent : sent.with_operation(text_of(call.call));
}

Status DirectMessages::offered(const CallOnGpu& call, MessageLine& line, uint64_t number, const Making& how) {
  const Request& request = call.call.request;
  const uint32_t tag = call.call.tag;
  const ConstBuffer& array = request.in;
  const auto say = [&](const MessageGo& go) {
    return group_.send(
        {bytes_of(go), request.root, tag, request.site, {}, 0, {MessagePart::kGo, number, nullptr, &array}},
        kOfferGraceS);
  };
  MessageAnswer answer;
  const Status heard = group_.recv(
      {room_in(answer), request.root, tag, request.site, 0, {MessagePart::kAnswer, number, how.stop, &array}},
      how.left_s());
  if (!heard.is_ok()) {  // the other rank may still come
    (void)say(MessageGo::given_up(heard.message()));
    return heard;
  }
  switch (answer.word) {
    case Word::kReady: break;
    case Word::kThroughHost: {
      PC_TRY(say({1, {}}));
      CallOnGpu data = call;
      data.call.place = {MessagePart::kData, number};
      return through_host(data, how);
    }
    case Word::kRefused:
      return Status(Code::kMismatch, "rank " + std::to_string(request.root) + " expects " + answer.expects() +
                                         ", this rank sends " +
                                         array_text(request.in.dtype, request.in.count, nullptr))
          .with_rank(group_.rank())
          .with_peer(request.root);
  }
  return line.go([&](uint64_t turn) -> Status {
    PC_TRY(say({turn, {}}));
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<GroupOnGpus> way,
                        lines_.way_of(line, request.stream, how.agreed_s()));
    return how.launch(*way, on_line(call, true), how.agreed_s());
  });
}

Status DirectMessages::recv(const CallOnGpu& call, const FoundMessage& found, const Making& how) {
  CallOnGpu made = call;
  made.call.has_bundle = call.call.kind == UserCall::Kind::kRecv || call.call.has_bundle;
  made.call.kind = UserCall::Kind::kRecvFound;
  made.call.found = &found;
  made.call.tag = found.tag;
  if (!found.is_offer) return through_host(made, how);
  const Status taken = take(made, found, how);
  return taken.is_ok() ? taken : taken.with_operation(text_of(made.call));
}

Status DirectMessages::take(const CallOnGpu& call, const FoundMessage& found, const Making& how) {
  const Request& request = call.call.request;
  const ConstBuffer array = request.out;
  PC_TRY(group_.take_offer(found, request.out,
                           call.call.has_bundle ? std::optional(request.bundle) : std::nullopt));
  const std::span<const Rank> world = group_.world_ranks();
  std::shared_ptr<MessageLine> line;
  if (may_be_offered(request.out))
    line = lines_.between(world[static_cast<std::size_t>(found.peer)],
                          world[static_cast<std::size_t>(group_.rank())], context_.ordinal());
  const MessageAnswer answer{line == nullptr ? Word::kThroughHost : Word::kReady, {}};
  PC_TRY(group_.send({bytes_of(answer),
                      found.peer,
                      found.tag,
                      request.site,
                      {},
                      0,
                      {MessagePart::kAnswer, found.number, nullptr, &array}},
                     kOfferGraceS));
  MessageGo go;
  const Status heard = group_.recv({room_in(go),
                                    found.peer,
                                    found.tag,
                                    request.site,
                                    0,
                                    {MessagePart::kGo, found.number, how.stop, &array}},
                                   how.agreed_s());
  if (!heard.is_ok()) return line == nullptr ? heard : line->end(heard);  // the sender counts on this rank
  PC_TRY(go.status(found.peer).with_rank(group_.rank()));
  if (line == nullptr) {
    CallOnGpu data = call;
    data.call.kind = UserCall::Kind::kRecv;
    data.call.request.root = found.peer;
    data.call.place = {MessagePart::kData, found.number};
    return through_host(data, how);
  }
  WaitContext context = group_.waiting_until(Deadline::after(how.agreed_s()));
  if (how.stop != nullptr) context.interrupted = how.stop;
  return line->follow(go.turn, context, [&]() -> Status {
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<GroupOnGpus> way,
                        lines_.way_of(*line, request.stream, how.agreed_s()));
    return how.launch(*way, on_line(call, false), how.agreed_s());
  });
}

// Both ways at once: what is sent goes on by itself.
Status DirectMessages::sendrecv(const CallOnGpu& call, double timeout_s, bool has_stream) {
  CallOnGpu checked = call;
  PC_TRY(check_on_gpu(checked.call, context_.ordinal(), group_));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, group_.timeout_s()));
  const Deadline deadline = Deadline::after(seconds);
  const Request& request = checked.call.request;
  const bool is_small = !may_be_offered(request.in) && !may_be_offered(request.out);
  if (is_small || request.root == group_.rank()) return staged_->run(call, seconds);
  CallOnGpu out = checked, in = checked;
  out.call.kind = UserCall::Kind::kSend;
  out.call.request.out = {};
  in.call.kind = UserCall::Kind::kRecv;
  in.call.request.in = {};
  in.call.request.root = checked.call.source;
  PC_ASSIGN_OR_RETURN(const std::shared_ptr<StartedDeviceCall> sending, begin(out, seconds));
  const Status received = run(in, std::max(deadline.remaining_s(), 0.0), has_stream);
  // What failed here does not change what the other rank expects.
  const std::optional<Status> left =
      has_stream ? sending->precede_within(-1, static_cast<cuda::CUstream>(request.stream))
                 : std::optional(sending->wait(-1));
  const Status sent = left.value_or(Status(Code::kInterrupted, "interrupted"));
  return received.is_ok() ? sent : received;
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
      return Status(Code::kNotInitialized, "the group of this call was closed");  // stop_
    case WaitEnd::kTimeout: break;
  }
  return Status(Code::kTimeout, "what makes its array has not ended on the GPU").with_rank(group_.rank());
}

Result<std::shared_ptr<StartedDeviceCall>> DirectMessages::begin(const CallOnGpu& call, double timeout_s,
                                                                 std::function<void()> on_end) {
  CallOnGpu checked = call;
  PC_TRY(check_on_gpu(checked.call, context_.ordinal(), group_));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, group_.timeout_s()));
  const bool sends = checked.call.kind == UserCall::Kind::kSend;
  Request& request = checked.call.request;
  if (!may_be_offered(sends ? request.in : ConstBuffer(request.out)))
    return staged_->begin(call, seconds, std::move(on_end));
  PC_ASSIGN_OR_RETURN(cuda::EventPool::Lent made, events_.take());
  {
    PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, context_.enter());
    const cuda::CUstream theirs = static_cast<cuda::CUstream>(request.stream);
    PC_ASSIGN_OR_RETURN(const bool captured, cuda::is_capturing(context_.driver(), theirs));
    if (captured)
      return Status(Code::kUnsupported, "a message cannot be captured into a CUDA graph: make it outside");
    PC_TRY(cuda::record(context_.driver(), made.get(), theirs));
  }
  request.stream = stream_.get();
  const auto started =
      std::make_shared<Call>(*this, checked, Deadline::after(seconds), std::move(made), std::move(on_end));
  PC_TRY(start(started));
  return std::shared_ptr<StartedDeviceCall>(started);
}

Status DirectMessages::start(const std::shared_ptr<Call>& call) {
  const auto make_it = [this, call] {
    const Launch launch = [&](GroupOnGpus& way, const CallOnGpu& made, double left_s) {
      return call->begin(way, made, left_s);
    };
    WaitContext context = group_.waiting_until(call->deadline());
    context.interrupted = &stop_;
    const Status made = until_made(call->made(), context);
    call->set_queued(made.is_ok() ? make(call->what(), {call->deadline(), &stop_, launch}) : made);
  };
  const std::lock_guard lock(mutex_);
  if (stopping_) return Status(Code::kNotInitialized, "the group of this call was closed");
  join_ended();
  std::thread thread;
  PC_TRY(start_thread(thread, "pc-gpu-message", "starting the thread of a message between GPUs", make_it));
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
  std::vector<std::shared_ptr<Call>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const Thread& each : threads_)
      if (!each.call->is_queued()) all.push_back(each.call);
  }
  for (const std::shared_ptr<Call>& each : all) {
    const std::optional<Status> queued = each->until_queued(deadline);
    const Status ended = queued.value_or(Status(Code::kTimeout, "a message is still under way"));
    if (first.is_ok()) first = ended.is_ok() ? ended : ended.with_operation(each->operation());
  }
  const Status staged = staged_->close(std::max(deadline.remaining_s(), 0.0));
  return first.is_ok() ? staged : first;
}

}  // namespace pc
