#include "gpu/nccl/collectives.h"

#include <optional>
#include <span>
#include <string>

#include "gpu/nccl/types.h"

namespace pc::nccl {
namespace {

// Returns the dtype of the input or output, whichever this rank has: not every rank has both.
DType dtype_of(const Request& request) {
  return request.in.data != nullptr || request.in.list != nullptr ? request.in.dtype : request.out.dtype;
}

// Issues one request on one communicator, with counts in NCCL's elements.
class Translation {
 public:
  Translation(Communicator& communicator, const Request& request, Moved element)
      : request_(request),
        api_(communicator.api()),
        stream_(request.stream.value_or(nullptr)),
        rank_(communicator.rank()),
        size_(communicator.size()),
        element_(element),
        nbytes_(size_of(dtype_of(request))) {}
  void reduces_with(RedOp op) { op_ = op; }

  void allreduce(Issue& issue) const {
    issue.took("ncclAllReduce", api_.all_reduce(in(), out(), elements(request_.in.count), element_.dtype, op_,
                                                issue.comm(), stream_));
  }
  void reduce(Issue& issue) const {
    issue.took("ncclReduce", api_.reduce(in(), out(), elements(request_.in.count), element_.dtype, op_,
                                         request_.root, issue.comm(), stream_));
  }
  void broadcast(Issue& issue) const {
    const void* const from = rank_ == request_.root ? in() : out();
    issue.took("ncclBroadcast", api_.broadcast(from, out(), elements(request_.out.count), element_.dtype,
                                               request_.root, issue.comm(), stream_));
  }

  void allgather(Issue& issue) const {
    if (request_.counts.empty()) {
      issue.took("ncclAllGather", api_.all_gather(in(), out(), elements(request_.in.count), element_.dtype,
                                                  issue.comm(), stream_));
      return;
    }
    each_part(request_.counts, [&](Rank owner, std::size_t begin, std::size_t count) {
      std::byte* const place = out() + begin * nbytes_;
      const void* const from = owner == rank_ ? in() : place;
      return issue.took("ncclBroadcast", api_.broadcast(from, place, elements(count), element_.dtype, owner,
                                                        issue.comm(), stream_));
    });
  }
  void reduce_scatter(Issue& issue) const {
    if (request_.counts.empty()) {
      issue.took("ncclReduceScatter", api_.reduce_scatter(in(), out(), elements(request_.out.count),
                                                          element_.dtype, op_, issue.comm(), stream_));
      return;
    }
    each_part(request_.counts, [&](Rank owner, std::size_t begin, std::size_t count) {
      void* const into = owner == rank_ ? out() : nullptr;
      return issue.took("ncclReduce", api_.reduce(in() + begin * nbytes_, into, elements(count),
                                                  element_.dtype, op_, owner, issue.comm(), stream_));
    });
  }

  void alltoall(Issue& issue) const {
    const std::size_t equal = request_.in.count / static_cast<std::size_t>(size_);
    if (request_.counts.empty() && api_.supports(Feature::kAlltoall)) {
      issue.took("ncclAlltoAll",
                 api_.all_to_all(in(), out(), elements(equal), element_.dtype, issue.comm(), stream_));
      return;
    }
    if (!send_parts(issue, request_.counts, equal, std::nullopt)) return;
    (void)recv_parts(issue, request_.counts.empty() ? request_.counts : request_.recv_counts, equal,
                     std::nullopt);
  }
  void gather(Issue& issue) const {
    const std::size_t own = request_.in.count;
    if (request_.counts.empty() && api_.supports(Feature::kAlltoall)) {
      issue.took("ncclGather", api_.gather(in(), out(), elements(own), element_.dtype, request_.root,
                                           issue.comm(), stream_));
      return;
    }
    const bool at_root = rank_ == request_.root;
    const bool stays = at_root && in() == out() + own_part(own) * nbytes_;
    if (own != 0 && !stays && !send(issue, in(), own, request_.root)) return;
    if (at_root) (void)recv_parts(issue, request_.counts, own, stays ? std::optional(rank_) : std::nullopt);
  }
  void scatter(Issue& issue) const {
    const std::size_t own = request_.out.count;
    if (request_.counts.empty() && api_.supports(Feature::kAlltoall)) {
      issue.took("ncclScatter", api_.scatter(in(), out(), elements(own), element_.dtype, request_.root,
                                             issue.comm(), stream_));
      return;
    }
    const bool at_root = rank_ == request_.root;
    const bool stays = at_root && out() == in() + own_part(own) * nbytes_;
    if (at_root && !send_parts(issue, request_.counts, own, stays ? std::optional(rank_) : std::nullopt))
      return;
    if (own != 0 && !stays) (void)recv(issue, out(), own, request_.root);
  }

  bool send(Issue& issue, const std::byte* from, std::size_t count, Rank peer) const {
    return issue.took("ncclSend",
                      api_.send(from, elements(count), element_.dtype, peer, issue.comm(), stream_));
  }
  bool recv(Issue& issue, std::byte* into, std::size_t count, Rank peer) const {
    return issue.took("ncclRecv",
                      api_.recv(into, elements(count), element_.dtype, peer, issue.comm(), stream_));
  }

 private:
  const std::byte* in() const { return request_.in.data; }
  std::byte* out() const { return request_.out.data; }
  std::size_t elements(std::size_t count) const { return count * element_.per_element; }

  // Returns where this rank's own part begins, in elements.
  std::size_t own_part(std::size_t equal) const {
    if (request_.counts.empty()) return equal * static_cast<std::size_t>(rank_);
    std::size_t before = 0;
    for (const uint64_t count : request_.counts.first(static_cast<std::size_t>(rank_))) before += count;
    return before;
  }
  // Calls `part(owner, begin, count)` for each part that has elements, until it returns false.
  template <class Part>
  bool each_part(std::span<const uint64_t> counts, Part&& part, std::size_t equal = 0) const {
    std::size_t begin = 0;
    for (Rank owner = 0; owner < size_; ++owner) {
      const std::size_t count = counts.empty() ? equal : counts[static_cast<std::size_t>(owner)];
      if (count != 0 && !part(owner, begin, count)) return false;
      begin += count;
    }
    return true;
  }
  bool send_parts(Issue& issue, std::span<const uint64_t> counts, std::size_t equal,
                  std::optional<Rank> without) const {
    return each_part(
        counts,
        [&](Rank to, std::size_t begin, std::size_t count) {
          return to == without || send(issue, in() + begin * nbytes_, count, to);
        },
        equal);
  }
  bool recv_parts(Issue& issue, std::span<const uint64_t> counts, std::size_t equal,
                  std::optional<Rank> without) const {
    return each_part(
        counts,
        [&](Rank from, std::size_t begin, std::size_t count) {
          return from == without || recv(issue, out() + begin * nbytes_, count, from);
        },
        equal);
  }

  const Request& request_;
  const Api& api_;
  StreamHandle stream_;
  Rank rank_, size_;
  Moved element_;
  std::size_t nbytes_;  // size of one element of the request
  RedOp op_ = RedOp::kSum;
};

void call(const Translation& translation, Collective collective, Issue& issue) {
  switch (collective) {
    case Collective::kAllreduce: return translation.allreduce(issue);
    case Collective::kBroadcast: return translation.broadcast(issue);
    case Collective::kReduce: return translation.reduce(issue);
    case Collective::kAllgather: return translation.allgather(issue);
    case Collective::kReduceScatter: return translation.reduce_scatter(issue);
    case Collective::kAlltoall: return translation.alltoall(issue);
    case Collective::kGather: return translation.gather(issue);
    case Collective::kScatter: return translation.scatter(issue);
    case Collective::kBarrier:
    case Collective::kScan:
    case Collective::kExscan: break;
  }
}

// For a list, issues one call for each of its blocks. The calls are in one NCCL group, so NCCL runs
// them as one.
template <class Each>
void each_block(const Request& request, const Issue& issue, Each&& each) {
  const IoVec* const list = request.in.list != nullptr ? request.in.list : request.out.list;
  if (list == nullptr) return each(request);
  for (std::size_t begin = 0; begin < list->nbytes() && issue.goes_on();) {
    const std::span<std::byte> bytes = list->at(begin, list->nbytes());
    const auto narrow = [&](auto& side) {
      if (side.list == nullptr) return;
      side.data = bytes.data();
      side.count = bytes.size() / size_of(side.dtype);
      side.list = nullptr;
    };
    Request piece = request;
    narrow(piece.in);
    narrow(piece.out);
    each(piece);
    begin += bytes.size();
  }
}

Status barrier(Communicator& communicator, void* word, StreamHandle stream, const WaitContext& context) {
  if (word == nullptr) return Status(Code::kInternal, "a barrier through NCCL needs 4 bytes on the GPU");
  return communicator.grouped(context, [&](Issue& issue) {
    issue.took("ncclAllReduce",
               issue.api().all_reduce(word, word, 1, DataType::kInt32, RedOp::kMax, issue.comm(), stream));
  });
}

// Returns true if all `size` ranks have 0 elements, so that nothing moves.
bool is_empty(const Request& request, Rank size) {
  return knows_size(request) ? elements_of(request, size).count == 0
                             : request.in.count == 0 && request.out.count == 0;
}

// The first version in which a communicator of one rank scales every element. Older versions leave
// the last elements unscaled if the array does not divide evenly among the blocks of their kernel.
constexpr Version kScalesAlone{2, 29, 7};

Status reduce_by(Communicator& communicator, const Request& request, const WaitContext& context) {
  PC_ASSIGN_OR_RETURN(const Reduced how, reduced(request.in.dtype, request.op));
  RedOp op = how.op;
  // avoids the bug of older versions: the average over one rank needs no multiplication
  if (op == RedOp::kAvg && communicator.size() == 1) op = RedOp::kSum;
  if (how.is_scaled()) {
    PC_ASSIGN_OR_RETURN(op, communicator.make_scaled_sum(how.dtype, &how.scalar, context));
  }
  const Status status = communicator.grouped(context, [&](Issue& issue) {
    each_block(request, issue, [&](const Request& block) {
      Translation translation(communicator, block, {how.dtype, how.per_element});
      translation.reduces_with(op);
      call(translation, request.collective, issue);
    });
  });
  if (!how.is_scaled() || communicator.state() != State::kReady) return status;
  const Status destroyed = communicator.destroy_op(op, context);  // allowed once the call has settled
  return status.is_ok() ? destroyed : status;
}

Request of_message(StreamHandle stream) {
  Request request;
  request.stream = stream;
  return request;
}

Status check_peer(const Communicator& communicator, Rank peer) {
  if (peer >= 0 && peer < communicator.size()) return Status::ok();
  return Status(Code::kInvalidArgument, rank_text(peer) + " is no rank of this communicator: 0 to " +
                                            std::to_string(communicator.size() - 1));
}

}  // namespace

Status can_issue(const Request& request) {
  const Collective collective = request.collective;
  if (is_scan(collective))
    return Status(Code::kUnsupported, "NCCL has no " + std::string(name_of(collective)));
  const bool is_list = request.in.list != nullptr || request.out.list != nullptr;
  if (is_list && collective != Collective::kAllreduce && collective != Collective::kReduce &&
      collective != Collective::kBroadcast)
    return Status(Code::kUnsupported,
                  "lists of arrays go through NCCL in allreduce, reduce and broadcast alone");
  if (request.fixed_order)
    return Status(Code::kUnsupported, "NCCL decides itself in which order it combines the ranks");
  return reduces(collective) ? reduced(request.in.dtype, request.op).status() : Status::ok();
}

Status can_issue_to(const Communicator& communicator, const Request& request) {
  const bool scales = reduces(request.collective) && request.op.op == ReduceOp::kScaledSum;
  if (!scales || communicator.size() > 1 || communicator.api().version >= kScalesAlone) return Status::ok();
  return Status(Code::kUnsupported, "NCCL " + text_of(communicator.api().version) +
                                        " with one rank multiplies not every element; " +
                                        text_of(kScalesAlone) + " does");
}

Status issue(Communicator& communicator, const Request& request, void* barrier_word,
             const WaitContext& context) {
  PC_TRY(can_issue(request));
  if (request.collective == Collective::kBarrier)
    return barrier(communicator, barrier_word, request.stream.value_or(nullptr), context);
  if (is_empty(request, communicator.size())) return communicator.check();
  if (reduces(request.collective)) return reduce_by(communicator, request, context);
  return communicator.grouped(context, [&](Issue& all) {
    each_block(request, all, [&](const Request& block) {
      call(Translation(communicator, block, moved(dtype_of(request))), request.collective, all);
    });
  });
}

Status issue_send(Communicator& communicator, const ConstBuffer& data, Rank peer, StreamHandle stream,
                  const WaitContext& context) {
  PC_TRY(check_peer(communicator, peer));
  if (data.count == 0) return communicator.check();
  const Request request = of_message(stream);
  const Translation translation(communicator, request, moved(data.dtype));
  return communicator.grouped(
      context, [&](Issue& issue) { (void)translation.send(issue, data.data, data.count, peer); });
}

Status issue_recv(Communicator& communicator, const Buffer& data, Rank peer, StreamHandle stream,
                  const WaitContext& context) {
  PC_TRY(check_peer(communicator, peer));
  if (data.count == 0) return communicator.check();
  const Request request = of_message(stream);
  const Translation translation(communicator, request, moved(data.dtype));
  return communicator.grouped(
      context, [&](Issue& issue) { (void)translation.recv(issue, data.data, data.count, peer); });
}

Status issue_sendrecv(Communicator& communicator, const ConstBuffer& out, Rank dest, const Buffer& in,
                      Rank source, StreamHandle stream, const WaitContext& context) {
  PC_TRY(check_peer(communicator, dest));
  PC_TRY(check_peer(communicator, source));
  const Request request = of_message(stream);
  const Translation sent(communicator, request, moved(out.dtype));
  const Translation received(communicator, request, moved(in.dtype));
  return communicator.grouped(context, [&](Issue& issue) {
    if (out.count != 0 && !sent.send(issue, out.data, out.count, dest)) return;
    if (in.count != 0) (void)received.recv(issue, in.data, in.count, source);
  });
}

}  // namespace pc::nccl
