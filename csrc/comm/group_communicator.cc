#include "comm/group_communicator.h"

#include <cstring>

#include "comm/arguments.h"
#include "comm/descriptor.h"
#include "comm/group_ending.h"
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

class FinishedWork final : public Work {
 public:
  bool done() const override { return true; }
  Status wait(const WaitContext&) override { return Status(); }
  std::string where() const override { return "ended"; }
};

}  // namespace

struct GroupCommunicator::Shared {
  GroupEnding ending;
  Reentry reentry = {};
};

// A launched collective whose outcome is told in the words of its group.
class GroupCommunicator::GroupWork final : public Work {
 public:
  GroupWork(std::shared_ptr<Shared> group, std::unique_ptr<Work> inner, std::string operation,
            TimePoint began)
      : group_(std::move(group)),
        inner_(std::move(inner)),
        operation_(std::move(operation)),
        began_(began) {}
  ~GroupWork() override {
    if (told_) return;
    // A failure that nobody asked for ends the group all the same; so does leaving a call that the others are in.
    const Status ended = inner_->done() ? inner_->wait({Deadline(began_)})
                                        : Status(Code::kAborted, "its Work was dropped before it was done");
    if (!ended.is_ok()) (void)group_->ending.conclude(ended, operation_, began_);
  }
  bool done() const override { return inner_->done(); }
  Status wait(const WaitContext& context) override {
    if (told_) return outcome_;
    PC_TRY(group_->reentry.check());
    outcome_ = group_->reentry.wait(*inner_, context, [this] { return operation_; });
    if (!outcome_.is_ok()) outcome_ = group_->ending.conclude(outcome_, operation_, began_);
    told_ = true;
    return outcome_;
  }
  std::string where() const override { return inner_->where(); }

 private:
  const std::shared_ptr<Shared> group_;
  const std::unique_ptr<Work> inner_;
  const std::string operation_;
  const TimePoint began_;
  bool told_ = false;
  Status outcome_;
};

GroupCommunicator::GroupCommunicator(const Parts& parts, uint32_t group, Rank rank,
                                     std::vector<Rank> world_ranks, double timeout_s,
                                     SelectionTable selection)
    : parts_(parts),
      group_(group),
      world_ranks_(std::move(world_ranks)),
      selection_(std::move(selection)),
      shared_(new Shared{
          GroupEnding({parts.transport, parts.reactor, parts.executor}, rank, world_ranks_, parts.hosts)}) {
  rank_ = rank;
  size_ = static_cast<Rank>(world_ranks_.size());
  timeout_s_ = timeout_s;
}

GroupCommunicator::~GroupCommunicator() { abort(Status(Code::kNotInitialized, "the group was closed")); }

Status GroupCommunicator::usable() const {
  PC_TRY(shared_->ending.before());
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
  PC_ASSIGN_OR_RETURN(const Started started, start(call, began));
  const auto operation = [&] { return operation_text(call, started.choice, started.sequence); };
  const Status ended = shared_->reentry.wait(*started.work, context_for(seconds, began), operation);
  return ended.is_ok() ? ended : shared_->ending.conclude(ended, operation(), began);
}

Result<std::unique_ptr<Work>> GroupCommunicator::launch(const Request& request) {
  Request call = request;
  PC_TRY(check_request(call, rank_, size_));
  if (size_ == 1) {
    PC_TRY(usable());
    copy_input(call);
    return std::unique_ptr<Work>(std::make_unique<FinishedWork>());
  }
  const TimePoint began = now();
  PC_ASSIGN_OR_RETURN(Started started, start(call, began));
  std::string operation = operation_text(call, started.choice, started.sequence);
  return std::unique_ptr<Work>(
      std::make_unique<GroupWork>(shared_, std::move(started.work), std::move(operation), began));
}

Status GroupCommunicator::leave(double timeout_s) {
  PC_TRY(usable());
  if (size_ == 1) return Status::ok();
  const TimePoint began = now();
  PC_ASSIGN_OR_RETURN(const Started started, start(Request{}, began, true));
  const auto operation = [] { return std::string("shutdown"); };
  const Status ended = shared_->reentry.wait(*started.work, context_for(timeout_s, began), operation);
  return ended.is_ok() ? ended : shared_->ending.told(ended, operation(), began);
}

Result<GroupCommunicator::Started> GroupCommunicator::start(const Request& request, TimePoint began,
                                                            bool leaving) {
  if (!parts_.executor->supports(request, size_)) {
    return Status(Code::kUnsupported, "the executor '" + std::string(parts_.executor->name()) +
                                          "' of this group cannot run this " +
                                          std::string(name_of(request.collective)));
  }
  Started started;
  started.choice = selection_.choose(request.collective, elements_of(request).nbytes(), size_);
  const std::lock_guard<std::mutex> lock(turn_mutex_);
  PC_TRY(usable());
  started.sequence = ++sequence_;
  const uint64_t left = digest_of_leaving(group_, started.sequence);
  const uint64_t digest = leaving ? left : digest_of(request, started.choice, group_, started.sequence);
  const Launch launch{group_,
                      started.sequence,
                      digest,
                      rank_,
                      size_,
                      world_ranks_.data(),
                      started.choice.algorithm,
                      started.choice.split,
                      left};
  Result<std::unique_ptr<Work>> launched = parts_.executor->launch(request, launch);
  if (!launched.is_ok()) {
    const std::string operation = operation_text(request, started.choice, started.sequence);
    return shared_->ending.conclude(launched.status(), operation, began);
  }
  started.work = std::move(launched).value();
  return started;
}

// send and recv differ in what `post` does with (world rank of the peer, name of the message).
template <class Post>
Status GroupCommunicator::exchange(const ConstBuffer& data, Rank peer, uint32_t tag, bool sends,
                                   double timeout_s, Post&& post) {
  const std::string_view verb = sends ? "send to" : "recv from";
  PC_TRY(check_message(data, peer, rank_, size_, verb));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, timeout_s_));
  PC_TRY(usable());
  const TimePoint began = now();
  std::unique_lock<std::mutex> lock(messages_mutex_);
  const MessageId id = next_message(peer, tag, sends, data.dtype, data.count);
  const std::unique_ptr<Work> work = post(world_ranks_[static_cast<std::size_t>(peer)], id);
  lock.unlock();
  const auto operation = [&] { return message_text(verb, peer, tag, data); };
  const Status ended = shared_->reentry.wait(*work, context_for(seconds, began), operation);
  return ended.is_ok() ? ended : shared_->ending.conclude(ended.with_peer(peer), operation(), began);
}

Status GroupCommunicator::send(ConstBuffer data, Rank peer, uint32_t tag, double timeout_s) {
  return exchange(data, peer, tag, true, timeout_s, [&](Rank world_rank, const MessageId& id) {
    return post_send(*parts_.transport, *parts_.reactor, world_rank, id, data);
  });
}

Status GroupCommunicator::recv(Buffer data, Rank peer, uint32_t tag, double timeout_s) {
  return exchange(data, peer, tag, false, timeout_s, [&](Rank world_rank, const MessageId& id) {
    return post_recv(*parts_.transport, *parts_.reactor, world_rank, id, data);
  });
}

MessageId GroupCommunicator::next_message(Rank peer, uint32_t tag, bool sends, DType dtype,
                                          std::size_t count) {
  const uint64_t key = uint64_t{static_cast<uint32_t>(peer)} << 33 | uint64_t{tag} << 1 | (sends ? 1 : 0);
  const uint64_t sequence = ++messages_[key];
  const uint64_t digest = digest_of_message(group_, tag, sequence, dtype, count);
  return {Stream{group_, StreamClass::kPointToPoint, tag}, sequence, 0, digest};
}

WaitContext GroupCommunicator::context_for(double timeout_s, TimePoint began) const {
  return {Deadline::after(timeout_s, began), shared_->ending.word(), parts_.interrupted};
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

void GroupCommunicator::abort(const Status& why) noexcept { shared_->ending.abort(why); }

}  // namespace pc
