#include "bench/raw_nccl.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <utility>

#include "gpu/nccl/call_error.h"
#include "gpu/nccl/poll.h"
#include "gpu/nccl/types.h"
#include "gpu/nccl_id_exchange.h"

namespace pc::bench {
namespace {

// Returns NCCL's element type and operation, and the number of NCCL's elements in one element of
// pycollective.
nccl::Reduced in_nccls_words(const Case& what) {
  const nccl::Moved moved = nccl::moved(what.dtype);
  if (!what.operation->reduces()) return {moved.dtype, nccl::RedOp::kSum, moved.per_element};
  // pycollective's call has been queued, so NCCL supports it
  return nccl::reduced(what.dtype, {what.op}).value();
}

// Returns the first error of a sequence of calls: `code` so far, and `next` from the last call.
nccl::ReturnCode first_refusal(nccl::ReturnCode code, nccl::ReturnCode next) {
  return code == nccl::ReturnCode::kSuccess || code == nccl::ReturnCode::kInProgress ? next : code;
}

}  // namespace

bool has_raw(const Operation& operation) {
  constexpr std::array kTimed = {Collective::kAllreduce, Collective::kBroadcast,     Collective::kReduce,
                                 Collective::kAllgather, Collective::kReduceScatter, Collective::kAlltoall};
  return !operation.collective ||  // no collective: sendrecv
         std::find(kTimed.begin(), kTimed.end(), *operation.collective) != kTimed.end();
}

Result<std::unique_ptr<RawNccl>> RawNccl::join(Communicator& group, std::shared_ptr<const nccl::Api> api) {
  std::unique_ptr<RawNccl> raw(new RawNccl(group, std::move(api)));
  const Result<nccl::UniqueId> id = exchange_unique_id(group, *raw->api_, -1);
  if (id.status().code() == Code::kUnsupported)  // the ranks have connected already, so this is a failure
    return Status(Code::kInternal, "NCCL's own calls: " + id.status().message());
  PC_TRY(id.status());
  const Status begun = raw->init(id.value());
  if (begun.is_ok()) return raw;
  const Status end = group.alive();
  if (end.is_ok()) group.quit(begun);  // NCCL does not notify the other ranks when one rank does not join
  return end.is_ok() ? begun : end;
}

Status RawNccl::init(const nccl::UniqueId& id) {
  WaitContext context = group_.waiting_until(Deadline::after(group_.timeout_s()));
  const std::function<bool()> in_vain = [this] { return !group_.alive().is_ok(); };
  context.interrupted = &in_vain;
  const nccl::Resources resources{api_, &clock_};
  PC_ASSIGN_OR_RETURN(communicator_,
                      nccl::Communicator::init(resources, {id, group_.rank(), group_.size()}, {}, context));
  return communicator_->grouped(context, [this](nccl::Issue& issue) { handle_ = issue.comm(); });
}

nccl::ReturnCode RawNccl::call(const Case& what, Rank root, const Arrays& arrays,
                               cuda::CUstream stream) const {
  const nccl::Reduced as = in_nccls_words(what);
  const void* const in = arrays.in.data;
  void* const out = arrays.out.data;
  const std::size_t sent = arrays.in.count * as.per_element, got = arrays.out.count * as.per_element;
  switch (what.operation->collective.value_or(Collective::kBarrier)) {
    case Collective::kAllreduce: return api_->all_reduce(in, out, sent, as.dtype, as.op, handle_, stream);
    case Collective::kBroadcast: return api_->broadcast(in, out, sent, as.dtype, root, handle_, stream);
    case Collective::kReduce: return api_->reduce(in, out, sent, as.dtype, as.op, root, handle_, stream);
    case Collective::kAllgather: return api_->all_gather(in, out, sent, as.dtype, handle_, stream);
    case Collective::kReduceScatter:
      return api_->reduce_scatter(in, out, got, as.dtype, as.op, handle_, stream);
    case Collective::kAlltoall: return call_alltoall(arrays, as, stream);
    default: return nccl::ReturnCode::kInvalidUsage;  // excluded by has_raw()
  }
}

// NCCL before 2.28 has no call for alltoall. There it is a send to and a receive from every rank,
// in one group.
nccl::ReturnCode RawNccl::call_alltoall(const Arrays& arrays, const nccl::Reduced& as,
                                        cuda::CUstream stream) const {
  const std::size_t part = arrays.in.count / static_cast<std::size_t>(group_.size()),
                    each = part * as.per_element;
  const std::size_t nbytes = part * size_of(arrays.in.dtype);
  if (api_->supports(nccl::Feature::kAlltoall))
    return api_->all_to_all(arrays.in.data, arrays.out.data, each, as.dtype, handle_, stream);
  nccl::ReturnCode code = api_->group_start();
  for (Rank peer = 0; peer < group_.size(); ++peer) {
    const std::size_t at = nbytes * static_cast<std::size_t>(peer);
    code = first_refusal(code, api_->send(arrays.in.data + at, each, as.dtype, peer, handle_, stream));
    code = first_refusal(code, api_->recv(arrays.out.data + at, each, as.dtype, peer, handle_, stream));
  }
  return first_refusal(code, api_->group_end());
}

// Waits until the call that returned `code` is no longer in progress, because the next call must
// not begin before.
Status RawNccl::settled(nccl::ReturnCode code) {
  const std::atomic<bool> never = false;
  const WaitContext context = group_.waiting_until(Deadline::after(group_.timeout_s()));
  const WaitEnd end = nccl::poll_until(clock_, context, never, [&] {
    if (code != nccl::ReturnCode::kInProgress) return true;
    nccl::ReturnCode now = nccl::ReturnCode::kSuccess;
    const nccl::ReturnCode asked = api_->comm_get_async_error(handle_, &now);
    code = asked == nccl::ReturnCode::kSuccess ? now : asked;
    return code != nccl::ReturnCode::kInProgress;
  });
  if (end == WaitEnd::kReady && code == nccl::ReturnCode::kSuccess) return Status::ok();
  PC_TRY(group_.alive());
  if (end != WaitEnd::kReady) return ended_early(end, "NCCL's own call", -1);
  return nccl::call_error(*api_, handle_, "NCCL's own call", code);
}

// Queues one round trip between two ranks.
Status RawNccl::queue_messages(const Case& what, const Arrays& arrays, cuda::CUstream stream) {
  const nccl::Reduced as = in_nccls_words(what);
  const Rank rank = group_.rank(), mate = mate_of(rank, group_.size());
  if (mate == rank) return Status::ok();
  const std::size_t count = arrays.out.count * as.per_element;
  const auto send = [&](const std::byte* from) {
    return settled(api_->send(from, count, as.dtype, mate, handle_, stream));
  };
  if (rank < mate) PC_TRY(send(arrays.in.data));
  PC_TRY(settled(api_->recv(arrays.out.data, count, as.dtype, mate, handle_, stream)));
  return rank < mate ? Status::ok() : send(arrays.out.data);
}

Status RawNccl::queue(const Case& what, Rank root, std::span<const Arrays> arrays, cuda::CUstream stream) {
  if (!what.operation->collective) return queue_messages(what, arrays.front(), stream);
  if (arrays.size() == 1) return settled(call(what, root, arrays.front(), stream));
  PC_TRY(settled(api_->group_start()));
  nccl::ReturnCode code = nccl::ReturnCode::kSuccess;
  for (const Arrays& each : arrays) code = first_refusal(code, call(what, root, each, stream));
  return settled(first_refusal(code, api_->group_end()));
}

Status RawNccl::close() {
  return communicator_->close(group_.waiting_until(Deadline::after(group_.timeout_s())));
}

}  // namespace pc::bench
