#include "comm/arguments.h"

#include <cfloat>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "kernels/reduce.h"

namespace pc {
namespace {

Status check_buffer(const ConstBuffer& buffer, std::string_view name) {
  if (static_cast<int>(buffer.dtype) >= kDTypeCount)
    return invalid_argument(std::string(name) + " has no known dtype");
  if (buffer.count > std::numeric_limits<std::size_t>::max() / 64)
    return invalid_argument(std::string(name) + " is impossibly large");
  if (buffer.list != nullptr && (buffer.data != nullptr || buffer.list->nbytes() != buffer.nbytes())) {
    return invalid_argument(std::string(name) + " has another size than the arrays that it is made of");
  }
  if (buffer.list != nullptr && !buffer.list->holds_whole(size_of(buffer.dtype)))
    return invalid_argument(std::string(name) + " is made of arrays that do not hold whole elements");
  if (buffer.data == nullptr && buffer.count != 0 && buffer.list == nullptr) {
    return invalid_argument(std::string(name) + " has " + std::to_string(buffer.count) +
                            " elements but no memory");
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

Status check_dtypes(const Request& request) {
  if (request.in.dtype == request.out.dtype && request.in.layout == request.out.layout) return Status::ok();
  return invalid_argument("input is " + text_of(request.in.dtype, request.in.layout) + " and output " +
                          text_of(request.out.dtype, request.out.layout));
}

// Checks a call that has both input and output: they must have the same count and dtype, and must
// be either the same memory or disjoint.
Status check_pair(const Request& request) {
  if (request.in.count != request.out.count) {
    return invalid_argument("input has " + std::to_string(request.in.count) + " elements and output " +
                            std::to_string(request.out.count));
  }
  PC_TRY(check_dtypes(request));
  if (request.in.list != request.out.list)
    return invalid_argument("a list of arrays is input and output in one");
  if (request.in.data == request.out.data || !overlap(request.in, request.out)) return Status::ok();
  return invalid_argument("input and output overlap without being the same memory");
}

// Returns the sum of `counts`, or an error if `counts` does not have one entry for each of the
// `size` ranks.
Result<std::size_t> total_of(std::span<const uint64_t> counts, Rank size, std::string_view name) {
  if (counts.size() != static_cast<std::size_t>(size)) {
    return invalid_argument(std::string(name) + " has " + std::to_string(counts.size()) +
                            " entries: give one for each of the " + std::to_string(size) + " ranks");
  }
  uint64_t total = 0;
  for (const uint64_t count : counts) {
    constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max() / 64;
    if (count > kMost || total > kMost - count)
      return invalid_argument(std::string(name) + " are impossibly large");
    total += count;
  }
  return total;
}

// Checks `whole` (the array that has a part for every rank) against `part` (the array of this
// rank's own part).
Status check_whole(const Request& request, const ConstBuffer& part, std::string_view part_name,
                   const ConstBuffer& whole, std::string_view whole_name, Rank rank, Rank size) {
  const std::size_t ranks = static_cast<std::size_t>(size);
  PC_TRY(check_dtypes(request));
  if (request.counts.empty() && part.count * ranks != whole.count) {
    return invalid_argument(std::string(whole_name) + " has " + std::to_string(whole.count) +
                            " elements and " + std::string(part_name) + " " + std::to_string(part.count) +
                            ": that is not " + std::to_string(size) +
                            " equal parts; uneven ones need counts=");
  }
  if (!request.counts.empty()) {
    PC_ASSIGN_OR_RETURN(const std::size_t total, total_of(request.counts, size, "counts"));
    if (total != whole.count) {
      return invalid_argument("counts add up to " + std::to_string(total) + " elements, and " +
                              std::string(whole_name) + " has " + std::to_string(whole.count));
    }
  }
  if (!overlap(part, whole)) return Status::ok();
  std::size_t before = part.count * static_cast<std::size_t>(rank);
  if (!request.counts.empty()) {
    before = 0;
    for (Rank r = 0; r < rank; ++r) before += request.counts[static_cast<std::size_t>(r)];
  }
  if (part.data == whole.data + before * size_of(whole.dtype)) return Status::ok();
  return invalid_argument(std::string(part_name) + " and " + std::string(whole_name) +
                          " overlap: in place, the part must be this rank's own part of the whole");
}

// Checks the array of this rank's part. If `counts` is given, its entry for this rank must be the
// size of that array.
Status check_part(const Request& request, const ConstBuffer& part, std::string_view name, Rank rank,
                  Rank size) {
  PC_TRY(check_buffer(part, name));
  if (request.counts.empty()) {
    if (part.count <= std::numeric_limits<std::size_t>::max() / 64 / static_cast<std::size_t>(size))
      return Status::ok();
    return invalid_argument(std::string(name) + " is impossibly large");
  }
  PC_TRY(total_of(request.counts, size, "counts").status());
  const uint64_t wanted = request.counts[static_cast<std::size_t>(rank)];
  if (wanted == part.count) return Status::ok();
  return invalid_argument(std::string(name) + " has " + std::to_string(part.count) +
                          " elements, and counts says " + std::to_string(wanted) + " for this rank");
}

Status check_alltoall(const Request& request, Rank rank, Rank size) {
  PC_TRY(check_buffer(request.in, "input"));
  PC_TRY(check_buffer(request.out, "output"));
  PC_TRY(check_dtypes(request));
  if (request.in.data != nullptr && overlap(request.in, request.out))
    return invalid_argument("input and output overlap: alltoall needs an output of its own");
  if (request.counts.empty() != request.recv_counts.empty())
    return invalid_argument("alltoall needs the counts of both directions, or of none");
  if (request.counts.empty()) {
    if (request.in.count != request.out.count)
      return invalid_argument("input has " + std::to_string(request.in.count) + " elements and output " +
                              std::to_string(request.out.count));
    if (request.in.count % static_cast<std::size_t>(size) == 0) return Status::ok();
    return invalid_argument("input has " + std::to_string(request.in.count) + " elements: that is not " +
                            std::to_string(size) + " equal parts; uneven ones need counts=");
  }
  PC_ASSIGN_OR_RETURN(const std::size_t sent, total_of(request.counts, size, "counts"));
  PC_ASSIGN_OR_RETURN(const std::size_t received, total_of(request.recv_counts, size, "recv_counts"));
  if (sent != request.in.count || received != request.out.count)
    return invalid_argument("counts add up to " + std::to_string(sent) + " and " + std::to_string(received) +
                            " elements; input has " + std::to_string(request.in.count) + " and output " +
                            std::to_string(request.out.count));
  const std::size_t self = static_cast<std::size_t>(rank);
  if (request.counts[self] == request.recv_counts[self]) return Status::ok();
  return invalid_argument("this rank sends itself " + std::to_string(request.counts[self]) +
                          " elements and expects " + std::to_string(request.recv_counts[self]));
}

std::string advice(DType dtype, ReduceOp op) {
  const bool is_float = can_reduce(dtype, ReduceOp::kAvg);
  if (op == ReduceOp::kAvg && can_reduce(dtype, ReduceOp::kSum) && !is_float)
    return ". An average would have to round: convert to a float dtype first, or use sum and divide";
  return "";
}

Status check_factor(DType dtype, const Reduction& how) {
  if (how.op != ReduceOp::kScaledSum) return Status::ok();
  if (!std::isfinite(how.factor)) return invalid_argument("the factor of a scaled sum must be finite");
  if (std::abs(how.factor) <= double{FLT_MAX} || dtype == DType::kF64 || dtype == DType::kC128)
    return Status::ok();
  return invalid_argument(text_of(how) + ": " + std::string(name_of(dtype)) +
                          " is computed in float32, in which this factor is infinite");
}

Status check_pairs(std::size_t count, ReduceOp op) {
  if (!takes_pairs(op) || count % 2 == 0) return Status::ok();
  return invalid_argument(std::string(name_of(op)) + " takes pairs (value, location), and " +
                          std::to_string(count) + " elements are no whole number of pairs");
}

Status check_operator(const ConstBuffer& data, const Reduction& how) {
  const auto [op, dtype] = std::pair(how.op, data.dtype);
  if (static_cast<int>(op) >= kReduceOpCount) return invalid_argument("unknown reduction operation");
  if (can_reduce(dtype, op)) {
    PC_TRY(check_pairs(data.count, op));
    if (takes_pairs(op) && data.list != nullptr && !data.list->holds_whole(2 * size_of(dtype)))
      return invalid_argument("the arrays of a list do not hold whole pairs");
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

// Returns true if no array was given. An empty array of another dtype than the default counts as
// given.
bool absent(const ConstBuffer& buffer) {
  return buffer.data == nullptr && buffer.list == nullptr && buffer.count == 0 &&
         buffer.dtype == ConstBuffer().dtype;
}

Status check_broadcast(Request& request, bool at_root) {
  if (!at_root) {
    request.in = {};
    return check_buffer(request.out, "the array to receive into");
  }
  if (absent(request.out) && !absent(request.in)) {
    // The output aliases the input. The root only sends, so nothing is written through the output.
    request.out = {const_cast<std::byte*>(request.in.data),
                   request.in.count,
                   request.in.dtype,
                   request.in.device,
                   request.in.layout,
                   request.in.list};
  } else if (absent(request.in)) {
    request.in = request.out;
  }
  PC_TRY(check_buffer(request.in, "input"));
  PC_TRY(check_buffer(request.out, "output"));
  return check_pair(request);
}

Status check_root(const Request& request, Rank size) {
  if (request.root >= 0 && request.root < size) return Status::ok();
  return invalid_argument("root " + std::to_string(request.root) + " is no rank of this group: 0 to " +
                          std::to_string(size - 1));
}

// Checks a collective that divides an array into one part per rank, except alltoall.
Status check_parts(Request& request, Rank rank, Rank size) {
  const bool whole_at_root = is_rooted(request.collective);
  const bool has_whole = !whole_at_root || rank == request.root;
  const bool gathers =
      request.collective == Collective::kGather || request.collective == Collective::kAllgather;
  if (!has_whole && gathers) request.out = {};
  if (!has_whole && !gathers) request.in = {};
  const ConstBuffer in = request.in, out = request.out;
  PC_TRY(check_part(request, gathers ? in : out, gathers ? "input" : "output", rank, size));
  if (!has_whole) return Status::ok();
  PC_TRY(check_buffer(gathers ? out : in, gathers ? "output" : "input"));
  return gathers ? check_whole(request, in, "input", out, "output", rank, size)
                 : check_whole(request, out, "output", in, "input", rank, size);
}

Status check_scan(const Request& request) {
  PC_TRY(check_buffer(request.in, "input"));
  PC_TRY(check_buffer(request.out, "output"));
  PC_TRY(check_pair(request));
  if (request.op != ReduceOp::kAvg) return check_operator(request.in, request.op);
  return Status(Code::kUnsupported, "avg is over all ranks, and " + std::string(name_of(request.collective)) +
                                        " over some: take sum, and divide");
}

// Returns true for an in-place allreduce of one contiguous block on the host by an elementwise
// operation. Such a request needs no further checks.
bool is_plain(const Request& request) {
  const ConstBuffer& in = request.in;
  const Buffer& out = request.out;
  return request.collective == Collective::kAllreduce && in.data == out.data && in.data != nullptr &&
         in.count == out.count && in.count <= std::numeric_limits<std::size_t>::max() / 64 &&
         in.dtype == out.dtype && in.layout == nullptr && out.layout == nullptr && in.list == nullptr &&
         out.list == nullptr && in.device.type == DeviceType::kCpu && out.device.type == DeviceType::kCpu &&
         request.counts.empty() && request.recv_counts.empty() && request.op.op <= ReduceOp::kMax &&
         static_cast<int>(in.dtype) < kDTypeCount && can_reduce(in.dtype, request.op);
}

}  // namespace

Status check_request(Request& request, Rank rank, Rank size) {
  if (is_plain(request)) [[likely]]
    return Status::ok();
  if (!has_parts(request.collective)) request.counts = {};
  if (request.collective != Collective::kAlltoall) request.recv_counts = {};
  if (is_rooted(request.collective)) PC_TRY(check_root(request, size));
  if (has_parts(request.collective) && (request.in.list != nullptr || request.out.list != nullptr))
    return invalid_argument("a list of arrays has no parts");
  if (!reduces(request.collective)) request.fixed_order = false;
  if (is_scan(request.collective)) return check_scan(request);
  switch (request.collective) {
    case Collective::kBarrier:
      request.in = {};
      request.out = {};
      return Status::ok();
    case Collective::kBroadcast: return check_broadcast(request, rank == request.root);
    case Collective::kReduce:
      if (rank != request.root) request.out = {};
      break;
    case Collective::kAllreduce: break;
    case Collective::kAlltoall: return check_alltoall(request, rank, size);
    case Collective::kAllgather:
    case Collective::kGather:
    case Collective::kScatter: return check_parts(request, rank, size);
    case Collective::kReduceScatter:
      PC_TRY(check_parts(request, rank, size));
      PC_TRY(check_operator(request.in, request.op));
      for (const uint64_t count : request.counts) PC_TRY(check_pairs(count, request.op));
      return check_pairs(request.out.count, request.op);
    default: return invalid_argument("unknown collective");
  }
  PC_TRY(check_buffer(request.in, "input"));
  if (request.collective == Collective::kAllreduce || rank == request.root) {
    PC_TRY(check_buffer(request.out, "output"));
    PC_TRY(check_pair(request));
  }
  return check_operator(request.in, request.op);
}

Status check_reduction(const ConstBuffer& data, const Reduction& how) { return check_operator(data, how); }

Status check_message(const ConstBuffer& data, Rank peer, Rank size, std::string_view verb) {
  PC_TRY(check_buffer(data, "the array"));
  if (peer >= 0 && peer < size) return Status::ok();
  return invalid_argument(std::string(verb) + " rank " + std::to_string(peer) +
                          ": the ranks of this group are 0 to " + std::to_string(size - 1));
}

Status check_sendrecv(const ConstBuffer& out, Rank dest, const Buffer& in, Rank source, Rank rank,
                      Rank size) {
  if (out.list != nullptr || in.list != nullptr) return invalid_argument("sendrecv takes no lists of arrays");
  if (overlap(out, in)) return invalid_argument("sendrecv: what is sent and what is received overlap");
  if ((dest == rank) != (source == rank))
    return invalid_argument("sendrecv: to rank " + std::to_string(dest) + ", from rank " +
                            std::to_string(source) + ": that is this rank itself on one side alone");
  if (dest != rank) {
    PC_TRY(check_message(out, dest, size, "send to"));
    return check_message(in, source, size, "recv from");
  }
  PC_TRY(check_buffer(out, "x"));
  PC_TRY(check_buffer(in, "out"));
  if (out.dtype == in.dtype && out.count == in.count && out.layout == in.layout) return Status::ok();
  return invalid_argument("sendrecv: this rank sends itself " + array_text(out.dtype, out.count, out.layout) +
                          " and expects " + array_text(in.dtype, in.count, in.layout));
}

Result<double> check_timeout(double timeout_s, double group_timeout_s) {
  if (std::isnan(timeout_s)) return invalid_argument("the timeout is not a number");
  return timeout_s < 0 ? group_timeout_s : timeout_s;
}

}  // namespace pc
