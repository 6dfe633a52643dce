#include "comm/group_communicator.h"

#include <cstring>

#include "comm/arguments.h"
#include "comm/descriptor.h"
#include "engine/point_to_point.h"

namespace pc {
namespace {

double seconds_since(TimePoint began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

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

// A launched collective whose outcome is told in the words of its group.
class GroupWork final : public Work {
 public:
  GroupWork(GroupCommunicator& group, std::unique_ptr<Work> inner, std::string operation)
      : group_(group),
        inner_(std::move(inner)),
        operation_(std::move(operation)) {}
  ~GroupWork() override {
    if (inner_->done()) return;  // else this rank leaves a call that the others are in
    const Status dropped(Code::kAborted, "its Work was dropped before it was done");
    concluded_ = group_.conclude(dropped, operation_, seconds_since(began_));
  }
  bool done() const override { return inner_->done(); }
  Status wait(const WaitContext& context) override {
    const Status ended = inner_->wait(context);
    if (ended.is_ok()) return ended;
    if (concluded_.is_ok()) concluded_ = group_.conclude(ended, operation_, seconds_since(began_));
    return concluded_;
  }
  std::string where() const override { return inner_->where(); }

 private:
  GroupCommunicator& group_;
  const std::unique_ptr<Work> inner_;
  const std::string operation_;
  const TimePoint began_ = std::chrono::steady_clock::now();
  Status concluded_;
};

}  // namespace

GroupCommunicator::GroupCommunicator(const Parts& parts, uint32_t group, Rank rank,
                                     std::vector<Rank> world_ranks, double timeout_s,
                                     SelectionTable selection)
    : parts_(parts),
      group_(group),
      world_ranks_(std::move(world_ranks)),
      selection_(std::move(selection)) {
  rank_ = rank;
  size_ = static_cast<Rank>(world_ranks_.size());
  timeout_s_ = timeout_s;
}

Status GroupCommunicator::run(const Request& request, double timeout_s) {
  Request call = request;
  PC_TRY(check_request(call, rank_, size_));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, timeout_s_));
  if (size_ == 1) {
    PC_TRY(ended_before());
    copy_input(call);
    return Status::ok();
  }
  const WaitContext context = context_for(seconds);
  PC_ASSIGN_OR_RETURN(const Started started, start(call));
  const Status ended = started.work->wait(context);
  if (ended.is_ok()) return ended;
  return conclude(ended, operation_text(call, started.choice, started.sequence),
                  seconds - context.deadline.remaining_s());
}

Result<std::unique_ptr<Work>> GroupCommunicator::launch(const Request& request) {
  Request call = request;
  PC_TRY(check_request(call, rank_, size_));
  if (size_ == 1) {
    PC_TRY(ended_before());
    copy_input(call);
    return std::unique_ptr<Work>(std::make_unique<FinishedWork>());
  }
  PC_ASSIGN_OR_RETURN(Started started, start(call));
  std::string operation = operation_text(call, started.choice, started.sequence);
  return std::unique_ptr<Work>(
      std::make_unique<GroupWork>(*this, std::move(started.work), std::move(operation)));
}

Result<GroupCommunicator::Started> GroupCommunicator::start(const Request& request) {
  Started started;
  started.choice = selection_.choose(request.collective, elements_of(request).nbytes(), size_);
  const std::lock_guard<std::mutex> lock(turn_mutex_);
  PC_TRY(ended_before());
  started.sequence = ++sequence_;
  const uint64_t digest = digest_of(request, started.choice, group_, started.sequence);
  const Launch launch{group_,
                      started.sequence,
                      digest,
                      rank_,
                      size_,
                      world_ranks_.data(),
                      started.choice.algorithm,
                      started.choice.split};
  Result<std::unique_ptr<Work>> launched = parts_.executor->launch(request, launch);
  if (!launched.is_ok()) {
    return conclude(launched.status(), operation_text(request, started.choice, started.sequence), 0);
  }
  started.work = std::move(launched).value();
  return started;
}

Status GroupCommunicator::send(ConstBuffer data, Rank peer, uint32_t tag, double timeout_s) {
  PC_TRY(check_message(data, peer, rank_, size_, "send to"));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, timeout_s_));
  PC_TRY(ended_before());
  const WaitContext context = context_for(seconds);
  std::unique_lock<std::mutex> lock(messages_mutex_);
  const MessageId id = next_message(peer, tag, true, data.dtype, data.count);
  const std::unique_ptr<Work> work =
      post_send(*parts_.transport, *parts_.reactor, world_rank(peer), id, data);
  lock.unlock();
  const Status ended = work->wait(context);
  if (ended.is_ok()) return ended;
  return conclude(ended, message_text("send to", peer, tag, data), seconds - context.deadline.remaining_s());
}

Status GroupCommunicator::recv(Buffer data, Rank peer, uint32_t tag, double timeout_s) {
  PC_TRY(check_message(data, peer, rank_, size_, "recv from"));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, timeout_s_));
  PC_TRY(ended_before());
  const WaitContext context = context_for(seconds);
  std::unique_lock<std::mutex> lock(messages_mutex_);
  const MessageId id = next_message(peer, tag, false, data.dtype, data.count);
  const std::unique_ptr<Work> work =
      post_recv(*parts_.transport, *parts_.reactor, world_rank(peer), id, data);
  lock.unlock();
  const Status ended = work->wait(context);
  if (ended.is_ok()) return ended;
  return conclude(ended, message_text("recv from", peer, tag, data),
                  seconds - context.deadline.remaining_s());
}

MessageId GroupCommunicator::next_message(Rank peer, uint32_t tag, bool sends, DType dtype,
                                          std::size_t count) {
  const uint64_t key = uint64_t{static_cast<uint32_t>(peer)} << 33 | uint64_t{tag} << 1 | (sends ? 1 : 0);
  const uint64_t sequence = ++messages_[key];
  const uint64_t digest = digest_of_message(group_, tag, sequence, dtype, count);
  return {Stream{group_, StreamClass::kPointToPoint, tag}, sequence, 0, digest};
}

WaitContext GroupCommunicator::context_for(double timeout_s) const {
  return {Deadline::after(timeout_s), &ended_word_, parts_.interrupted};
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

void GroupCommunicator::abort(const Status& why) noexcept {
  {
    const std::lock_guard<std::mutex> lock(cause_mutex_);
    if (!cause_.is_ok()) return;
    cause_ = why;
  }
  ended_word_.store(1, std::memory_order_release);
  if (size_ == 1) return;
  parts_.executor->abort(why);
  parts_.transport->abort(why);  // peers see broken connections and need not wait for their own deadlines
  parts_.reactor->wake();
}

Status GroupCommunicator::ended_before() const {
  if (ended_word_.load(std::memory_order_acquire) == 0) return Status::ok();
  const std::lock_guard<std::mutex> lock(cause_mutex_);
  const Code code = cause_.code() == Code::kNotInitialized ? Code::kNotInitialized : Code::kAborted;
  return Status(code, "this group ended earlier: " + cause_.to_string())
      .with_rank(rank_)
      .with_peer(cause_.peer());
}

Status GroupCommunicator::conclude(const Status& ended, const std::string& operation, double elapsed_s) {
  if (const Status before = ended_before(); !before.is_ok() && ended.code() == Code::kAborted) {
    return before.with_operation(operation).with_elapsed(elapsed_s);
  }
  const Status told = Status(ended.code(), ended.message() + advice(ended))
                          .with_rank(rank_)
                          .with_peer(ended.peer())
                          .with_operation(operation)
                          .with_elapsed(elapsed_s);
  abort(told);
  return told;
}

std::string GroupCommunicator::name_of_peer(Rank peer) const {
  std::string name = "rank " + std::to_string(peer);
  const std::size_t world = static_cast<std::size_t>(world_rank(peer));
  if (parts_.hosts == nullptr || world >= parts_.hosts->ranks.size()) return name;
  const HostMap::Entry& entry = parts_.hosts->ranks[world];
  return name + " (host " + entry.host_name + ", pid " + std::to_string(entry.pid) + ")";
}

std::string GroupCommunicator::advice(const Status& ended) const {
  const Rank peer = ended.peer();
  const std::string who = peer >= 0 && peer < size_ ? name_of_peer(peer) : "a rank of this group";
  switch (ended.code()) {
    case Code::kTimeout:
      return ". Look whether " + who +
             " hangs, made fewer calls or is only slow; then a longer timeout helps";
    case Code::kPeerFailure:
    case Code::kPeerExited: return ". Look at the output of " + who + " for the cause";
    case Code::kMismatch:
      return ". All ranks must make the same calls in the same order with equal dtype, count, op and root; "
             "compare with " +
             who;
    default: return "";
  }
}

}  // namespace pc
