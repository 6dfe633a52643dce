#include "comm/group_communicator.h"

#include <algorithm>
#include <cstring>

#include "comm/arguments.h"
#include "comm/descriptor.h"
#include "comm/group_calls.h"
#include "comm/reentry.h"
#include "engine/point_to_point.h"

namespace pc {
namespace {

TimePoint now() { return std::chrono::steady_clock::now(); }

// With one rank every collective leaves the input in the output.
void copy_input(const Request& request) {
  const std::size_t nbytes = request.in.nbytes();
  if (nbytes != 0 && request.out.data != nullptr && request.out.data != request.in.data) {
    std::memcpy(request.out.data, request.in.data, nbytes);
  }
}

int64_t to_ns(TimePoint at) { return at.time_since_epoch() / std::chrono::nanoseconds(1); }

CallRecord record_of(const Request& request, const Choice& choice, uint32_t group, uint64_t sequence,
                     uint64_t digest, bool leaving, TimePoint began) {
  CallRecord record;
  record.kind = leaving ? CallRecord::Kind::kShutdown : CallRecord::Kind::kCollective;
  record.collective = request.collective;
  const auto [count, dtype] = elements_of(request);
  record.dtype = dtype;
  record.count = count;
  record.op = request.op;
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

struct GroupCommunicator::Shared {
  GroupCalls calls;
  Reentry reentry = {};
};

// Notices that a call waits long: looks after it every now and then, and has one warning written.
class GroupCommunicator::Watch : public WaitWatch {
 public:
  Watch(GroupCalls& calls, const GroupCalls::Call& call, Work& work)
      : calls_(calls),
        work_(work),
        began_(call.began),
        look_at_(call.began + kFirst) {}
  void look(TimePoint now) final {
    if (now < look_at_) return;
    look_at_ = now + kNext;
    look_after(work_.waits_for());
    const std::chrono::duration<double> waited = now - began_;
    if (warned_ || waited.count() < calls_.parts().warn_after_s) return;
    warned_ = true;
    warn();
  }

 protected:
  ~Watch() = default;
  virtual void look_after(Rank peer) = 0;
  virtual void warn() = 0;
  GroupCalls& calls_;
  Work& work_;

 private:
  static constexpr std::chrono::milliseconds kFirst{100}, kNext{250};
  const TimePoint began_;
  TimePoint look_at_;
  bool warned_ = false;
};

// Asks the rank that the call waits for, which finds a disagreement that shows in no message.
class GroupCommunicator::CallWatch final : public Watch {
 public:
  CallWatch(GroupCalls& calls, const GroupCalls::Call& call, Work& work)
      : Watch(calls, call, work),
        id_(calls.id(call.sequence)) {}

 private:
  void look_after(Rank peer) override {
    if (peer >= 0) calls_.parts().control->stalled(id_, calls_.names().to_world(peer));
  }
  void warn() override { calls_.parts().control->survey(id_); }
  const CallId id_;
};

// Gives a message up whose other end has left.
class GroupCommunicator::MessageWatch final : public Watch {
 public:
  MessageWatch(GroupCalls& calls, const GroupCalls::Call& call, Work& work, Rank peer, std::string_view verb)
      : Watch(calls, call, work),
        peer_(peer),
        verb_(verb) {}
  bool peer_has_left() const { return left_; }

 private:
  void look_after(Rank) override {
    if (left_ || !calls_.peer_has_left(peer_)) return;
    left_ = true;
    work_.cancel();
  }
  void warn() override {
    calls_.parts().log.warning([&] {
      return std::string(verb_) + " " + calls_.names().full(peer_) + " waits for long: it has not " +
             (verb_.starts_with("send") ? "posted its recv" : "sent");
    });
  }
  const Rank peer_;
  const std::string_view verb_;
  bool left_ = false;
};

// A launched collective whose outcome is told in the words of its group.
class GroupCommunicator::GroupWork final : public Work {
 public:
  GroupWork(std::shared_ptr<Shared> group, Started started, std::string operation)
      : group_(std::move(group)),
        inner_(std::move(started.work)),
        call_(started.call),
        operation_(std::move(operation)) {}
  ~GroupWork() override {
    if (told_) return;
    // Nobody has asked how it ended. If it has not, this rank leaves a call that the others are in.
    if (!inner_->done()) inner_->cancel();
    const Status ended = inner_->wait({Deadline(call_.began)});
    ended.is_ok() ? group_->calls.done(call_) : group_->calls.forsake(ended, call_);
  }
  bool done() const override { return inner_->done(); }
  Status wait(const WaitContext& context) override {
    if (told_) return outcome_;
    PC_TRY(group_->reentry.check());
    CallWatch watch(group_->calls, call_, *inner_);
    WaitContext watched = context;
    watched.watch = &watch;
    tell(group_->reentry.wait(*inner_, watched, [this] { return operation_; }), context.interrupted);
    return outcome_;
  }
  void cancel() override { inner_->cancel(); }
  Rank waits_for() const override { return inner_->waits_for(); }
  std::string where() const override { return inner_->where(); }

 private:
  void tell(const Status& ended, const std::function<bool()>* probe) {
    told_ = true;
    if (ended.is_ok()) return group_->calls.done(call_);
    outcome_ = group_->calls.conclude(ended, call_, operation_, probe);
  }

  const std::shared_ptr<Shared> group_;
  const std::unique_ptr<Work> inner_;
  const GroupCalls::Call call_;
  const std::string operation_;
  bool told_ = false;
  Status outcome_;
};

GroupCommunicator::GroupCommunicator(const Parts& parts, uint32_t group, GroupNames names, double timeout_s,
                                     SelectionTable selection)
    : parts_(parts),
      group_(group),
      selection_(std::move(selection)),
      shared_(new Shared{GroupCalls(parts.calls, group, std::move(names))}) {
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
  if (size_ == 1) {
    PC_TRY(usable());
    copy_input(call);
    return Status::ok();
  }
  const TimePoint began = now();
  PC_TRY(usable());
  PC_ASSIGN_OR_RETURN(Started started, start(call, began));
  const Status ended = finish(call, started, seconds);
  const bool rooted = call.collective == Collective::kBroadcast || call.collective == Collective::kReduce;
  return parts_.check == Check::kStrict && rooted ? confirm(ended, seconds, began) : ended;
}

// Whoever was done early waits until all have made the call, and hears if one made another: that one gives the
// confirmation up, which every rank numbers in any case.
Status GroupCommunicator::confirm(const Status& ended, double timeout_s, TimePoint began) {
  if (this->ended()) return ended;
  if (!ended.is_ok()) return skip(ended, began), ended;
  Result<Started> confirmation = start(Request{}, began);
  const Status confirmed =
      confirmation.is_ok() ? finish(Request{}, confirmation.value(), timeout_s) : confirmation.status();
  const Status wrong =
      shared_->calls.take_deferred();  // about the call itself: better than the confirmation's
  return wrong.is_ok() ? confirmed : wrong;
}

std::string GroupCommunicator::operation_of(const Request& request, const Started& started) {
  return started.call.leaving ? "shutdown" : operation_text(request, started.choice, started.call.sequence);
}

// Gives the next call up without making it.
void GroupCommunicator::skip(const Status& why, TimePoint began) {
  GroupCalls& calls = shared_->calls;
  std::unique_lock turn = calls.turn();
  const uint64_t sequence = calls.next_number();
  const Choice choice = selection_.choose(Collective::kBarrier, 0, size_);
  const GroupCalls::Call call{
      sequence, calls.record(record_of(Request{}, choice, group_, sequence, 0, false, began)), began};
  parts_.calls.executor->cancel(group_, sequence, why);
  turn.unlock();
  calls.forsake(why, call);
}

Status GroupCommunicator::finish(const Request& request, Started& started, double timeout_s) {
  GroupCalls& calls = shared_->calls;
  const auto operation = [&] { return operation_of(request, started); };
  CallWatch watch(calls, started.call, *started.work);
  WaitContext context = context_for(timeout_s, started.call.began);
  context.watch = &watch;
  const Status ended = shared_->reentry.wait(*started.work, context, operation);
  if (!ended.is_ok()) return calls.conclude(ended, started.call, operation(), parts_.interrupted);
  calls.done(started.call);
  return Status::ok();
}

Result<std::unique_ptr<Work>> GroupCommunicator::launch(const Request& request) {
  Request call = request;
  PC_TRY(check_request(call, rank_, size_));
  PC_TRY(usable());
  if (size_ == 1) {
    copy_input(call);
    return std::unique_ptr<Work>(std::make_unique<FinishedWork>());
  }
  PC_ASSIGN_OR_RETURN(Started started, start(call, now()));
  std::string operation = operation_text(call, started.choice, started.call.sequence);
  return std::unique_ptr<Work>(
      std::make_unique<GroupWork>(shared_, std::move(started), std::move(operation)));
}

Status GroupCommunicator::leave(double timeout_s) {
  if (Status before = usable(); !before.is_ok()) {
    if (*shared_->calls.word() != 0 || before.code() == Code::kInvalidArgument) return before;
    parts_.calls.log.warning(before.to_string());  // about an earlier call; there is no next one to raise it
  }
  if (size_ == 1) return Status::ok();
  PC_ASSIGN_OR_RETURN(Started started, start(Request{}, now(), true));
  const Status left = finish(Request{}, started, timeout_s);
  if (left.is_ok()) return shared_->calls.take_deferred();  // there is no next call to raise it
  return left.code() == Code::kPeerExited ? Status::ok()
                                          : left;  // who has gone already need not be waited for
}

Status GroupCommunicator::resync(double timeout_s) {
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, timeout_s_));
  const Deadline deadline = Deadline::after(seconds);
  for (;;) {
    const Status status = run(Request{}, std::max(deadline.remaining_s(), 0.0));
    if (status.is_ok()) shared_->calls.settle();
    const bool out_of_step = status.code() == Code::kMismatch || status.code() == Code::kTimeout ||
                             status.code() == Code::kPeerInterrupted || status.code() == Code::kAborted;
    if (!out_of_step || *shared_->calls.word() != 0 || deadline.expired()) return status;
  }
}

Result<GroupCommunicator::Started> GroupCommunicator::start(const Request& request, TimePoint began,
                                                            bool leaving) {
  Executor& executor = *parts_.calls.executor;
  if (!executor.supports(request, size_)) {
    return Status(Code::kUnsupported, "the executor '" + std::string(executor.name()) +
                                          "' of this group cannot run this " +
                                          std::string(name_of(request.collective)));
  }
  GroupCalls& calls = shared_->calls;
  Started started;
  started.choice = selection_.choose(request.collective, elements_of(request).nbytes(), size_);
  std::unique_lock turn = calls.turn();
  const uint64_t sequence = calls.next_number();
  const uint64_t left = digest_of_leaving(group_, sequence);
  const bool compared = parts_.check != Check::kOff;
  const uint64_t digest = leaving    ? left
                          : compared ? digest_of(request, started.choice, group_, sequence)
                                     : 0;
  started.call = {sequence,
                  calls.record(record_of(request, started.choice, group_, sequence, digest, leaving, began)),
                  began, leaving};
  Result<std::unique_ptr<Work>> launched =
      Status(Code::kAborted, "other ranks gave this call up before it was made here");
  if (calls.given_up_before(sequence)) {
    parts_.calls.control->came_late(calls.id(sequence));
  } else {
    const Launch launch{group_,
                        sequence,
                        digest,
                        rank_,
                        size_,
                        calls.names().world_ranks().data(),
                        started.choice.algorithm,
                        started.choice.split,
                        &calls,
                        left};
    launched = executor.launch(request, launch);
  }
  if (!launched.is_ok()) executor.cancel(group_, sequence, launched.status());  // peers may send for it
  turn.unlock();
  if (!launched.is_ok()) {
    return calls.conclude(launched.status(), started.call, operation_of(request, started),
                          parts_.interrupted);
  }
  started.work = std::move(launched).value();
  return started;
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
  const uint64_t digest =
      parts_.check == Check::kOff ? 0 : digest_of_message(group_, tag, sequence, data.dtype, data.count);
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
    said =
        Status(Code::kMismatch, "rank " + std::to_string(peer) + (sends ? " expects " : " sent ") + theirs);
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

Result<std::string> GroupCommunicator::explain(Collective collective, uint64_t nbytes, Rank root) const {
  if (root < 0 || root >= size_) {
    return Status(Code::kInvalidArgument, "root " + std::to_string(root) + " is no rank of this group");
  }
  const Choice choice = selection_.choose(collective, nbytes, size_);
  const std::string transport(parts_.transport != nullptr ? parts_.transport->name() : "none, one rank only");
  std::string text = "transport: " + transport + "\nalgorithm: " + std::string(choice.algorithm->name) +
                     "\nsplit:     " + std::to_string(choice.split) + "\n";
  const Plan plan = choice.algorithm->build(Shape{collective, rank_, size_, root, choice.split});
  return text + pc::explain(plan);
}

bool GroupCommunicator::ended() const { return *shared_->calls.word() != 0; }

void GroupCommunicator::abort(const Status& why) noexcept { shared_->calls.abort(why); }

}  // namespace pc
