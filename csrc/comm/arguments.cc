#include "comm/arguments.h"

#include <cfloat>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "kernels/reduce.h"

namespace pc {
namespace {

Status invalid(std::string message) { return Status(Code::kInvalidArgument, std::move(message)); }

Status check_buffer(const ConstBuffer& buffer, std::string_view name) {
  if (static_cast<int>(buffer.dtype) >= kDTypeCount)
    return invalid(std::string(name) + " has no known dtype");
  if (buffer.count > std::numeric_limits<std::size_t>::max() / 64)
    return invalid(std::string(name) + " is impossibly large");
  if (buffer.data == nullptr && buffer.count != 0) {
    return invalid(std::string(name) + " has " + std::to_string(buffer.count) + " elements but no memory");
  }
  if (buffer.device.type == DeviceType::kCpu) return Status::ok();
  return Status(
      Code::kUnsupported,
      std::string(name) + " lies in device memory; this group moves CPU memory only: copy it first");
}

bool overlap(const ConstBuffer& a, const ConstBuffer& b) {
  const std::less<const std::byte*> before;
  return before(a.data, b.data + b.nbytes()) && before(b.data, a.data + a.nbytes());
}

// Both are there: as large, of one dtype, and the same memory or memory apart.
Status check_pair(const Request& request) {
  if (request.in.count != request.out.count) {
    return invalid("input has " + std::to_string(request.in.count) + " elements and output " +
                   std::to_string(request.out.count));
  }
  if (request.in.dtype != request.out.dtype) {
    return invalid("input is " + std::string(name_of(request.in.dtype)) + " and output " +
                   std::string(name_of(request.out.dtype)));
  }
  if (request.in.layout != request.out.layout) {
    return invalid("input is " + text_of(request.in.dtype, request.in.layout) + " and output " +
                   text_of(request.out.dtype, request.out.layout));
  }
  if (request.in.data == request.out.data || !overlap(request.in, request.out)) return Status::ok();
  return invalid("input and output overlap without being the same memory");
}

std::string advice(DType dtype, ReduceOp op) {
  const bool is_float = can_reduce(dtype, ReduceOp::kAvg);
  if (op == ReduceOp::kAvg && can_reduce(dtype, ReduceOp::kSum) && !is_float)
    return ". An average would have to round: convert to a float dtype first, or use sum and divide";
  return "";
}

Status check_factor(DType dtype, const Reduction& how) {
  if (how.op != ReduceOp::kScaledSum) return Status::ok();
  if (!std::isfinite(how.factor)) return invalid("the factor of a scaled sum must be finite");
  if (std::abs(how.factor) <= double{FLT_MAX} || dtype == DType::kF64 || dtype == DType::kC128)
    return Status::ok();
  return invalid(text_of(how) + ": " + std::string(name_of(dtype)) +
                 " is computed in float32, in which this factor is infinite");
}

Status check_pairs(std::size_t count, ReduceOp op) {
  if (!takes_pairs(op) || count % 2 == 0) return Status::ok();
  return invalid(std::string(name_of(op)) + " takes pairs (value, location), and " + std::to_string(count) +
                 " elements are no whole number of pairs");
}

Status check_operator(const ConstBuffer& data, const Reduction& how) {
  const auto [op, dtype] = std::pair(how.op, data.dtype);
  if (static_cast<int>(op) >= kReduceOpCount) return invalid("unknown reduction operation");
  if (can_reduce(dtype, op)) {
    PC_TRY(check_pairs(data.count, op));
    return check_factor(dtype, how);
  }
  std::string ops, dtypes;
  for (int i = 0; i < kReduceOpCount; ++i) {
    const ReduceOp other = static_cast<ReduceOp>(i);
    if (can_reduce(dtype, other)) ops += (ops.empty() ? "" : ", ") + std::string(name_of(other));
  }
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType other = static_cast<DType>(i);
    if (can_reduce(other, op)) dtypes += (dtypes.empty() ? "" : ", ") + std::string(name_of(other));
  }
  return Status(Code::kUnsupported, "cannot reduce " + std::string(name_of(dtype)) + " with " +
                                        std::string(name_of(op)) + ": " + std::string(name_of(dtype)) +
                                        " has " + (ops.empty() ? "no operation" : ops) + ", and " +
                                        std::string(name_of(op)) + " takes " + dtypes + advice(dtype, op));
}

// Not given at all; an empty array says its dtype.
bool absent(const ConstBuffer& buffer) {
  return buffer.data == nullptr && buffer.count == 0 && buffer.dtype == ConstBuffer().dtype;
}

Status check_broadcast(Request& request, bool at_root) {
  if (!at_root) {
    request.in = {};
    return check_buffer(request.out, "the array to receive into");
  }
  if (absent(request.out) && !absent(request.in)) {
    // The root only sends, so nothing is written through this.
    request.out = {const_cast<std::byte*>(request.in.data), request.in.count, request.in.dtype,
                   request.in.device, request.in.layout};
  } else if (absent(request.in)) {
    request.in = request.out;
  }
  PC_TRY(check_buffer(request.in, "input"));
  PC_TRY(check_buffer(request.out, "output"));
  return check_pair(request);
}

Status check_root(const Request& request, Rank size) {
  if (request.root >= 0 && request.root < size) return Status::ok();
  return invalid("root " + std::to_string(request.root) + " is no rank of this group: 0 to " +
                 std::to_string(size - 1));
}

}  // namespace

Status check_request(Request& request, Rank rank, Rank size) {
  switch (request.collective) {
    case Collective::kBarrier:
      request.in = {};
      request.out = {};
      return Status::ok();
    case Collective::kBroadcast:
      PC_TRY(check_root(request, size));
      return check_broadcast(request, rank == request.root);
    case Collective::kReduce:
      PC_TRY(check_root(request, size));
      if (rank != request.root) request.out = {};
      break;
    case Collective::kAllreduce: break;
    default: return invalid("unknown collective");
  }
  PC_TRY(check_buffer(request.in, "input"));
  if (request.collective == Collective::kAllreduce || rank == request.root) {
    PC_TRY(check_buffer(request.out, "output"));
    PC_TRY(check_pair(request));
  }
  return check_operator(request.in, request.op);
}

Status check_message(const ConstBuffer& data, Rank peer, Rank rank, Rank size, std::string_view verb) {
  PC_TRY(check_buffer(data, "the array"));
  if (peer == rank)
    return invalid(std::string(verb) + " rank " + std::to_string(peer) + ": that is this rank itself");
  if (peer >= 0 && peer < size) return Status::ok();
  return invalid(std::string(verb) + " rank " + std::to_string(peer) + ": the ranks of this group are 0 to " +
                 std::to_string(size - 1));
}

Result<double> check_timeout(double timeout_s, double group_timeout_s) {
  if (std::isnan(timeout_s)) return invalid("the timeout is not a number");
  return timeout_s < 0 ? group_timeout_s : timeout_s;
}

}  // namespace pc
