// Calls on arrays of which every rank has a part, compared with their definition: for the executor
// suite.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "conformance/elements.h"

namespace pc::testing {

struct PartsCall {
  Collective collective = Collective::kAllgather;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  std::vector<uint64_t> counts = {};  // of each rank's part
  bool even = true;                   // all counts are equal, and the call gets no list of counts
  Rank root = 0;
  bool in_place = false;
};

inline std::string text_of(const PartsCall& call) {
  std::string text = std::string(name_of(call.collective)) + " " + std::string(name_of(call.dtype)) + " " +
                     std::string(name_of(call.op)) + " root " + std::to_string(call.root);
  for (const uint64_t count : call.counts) text += " " + std::to_string(count);
  return text + (call.even ? " even" : " uneven") + (call.in_place ? " in place" : "");
}

inline Elements slice(const Elements& whole, uint64_t first, uint64_t count) {
  const std::size_t width = size_of(whole.dtype);
  const auto from = whole.bytes.begin() + static_cast<std::ptrdiff_t>(first * width);
  return {whole.dtype, count, {from, from + static_cast<std::ptrdiff_t>(count * width)}};
}
inline void append(Elements& to, const Elements& more) {
  to.count += more.count;
  to.bytes.insert(to.bytes.end(), more.bytes.begin(), more.bytes.end());
}
inline uint64_t sum_of(const std::vector<uint64_t>& counts, std::size_t first = ~std::size_t{0}) {
  const auto end = counts.begin() + static_cast<std::ptrdiff_t>(std::min(first, counts.size()));
  return std::accumulate(counts.begin(), end, uint64_t{0});
}

// Computes input and result of one rank from the definitions.
class PartsOracle {
 public:
  PartsOracle(const PartsCall& call, Rank rank, Rank size) : call_(call), rank_(rank), size_(size) {
    total_ = sum_of(call.counts);
    for (Rank peer = 0; peer < size; ++peer) {
      to_.push_back(between(rank, peer));
      from_.push_back(between(peer, rank));
    }
  }
  const std::vector<uint64_t>& to() const { return to_; }
  const std::vector<uint64_t>& from() const { return from_; }
  bool has_whole() const { return !is_rooted(call_.collective) || rank_ == call_.root; }
  uint64_t own_first() const { return sum_of(call_.counts, index(rank_)); }

  Elements input() const {
    switch (call_.collective) {
      case Collective::kAllgather:
      case Collective::kGather: return part_of(whole(rank_), rank_);
      case Collective::kAlltoall: return contribution(call_.dtype, sum_of(to_), rank_, size_);
      default: return whole(rank_);
    }
  }
  Elements result() const {
    Elements all{call_.dtype, 0, {}};
    switch (call_.collective) {
      case Collective::kAllgather:
      case Collective::kGather:
        for (Rank r = 0; r < size_; ++r) append(all, part_of(whole(r), r));
        return all;
      case Collective::kScatter: return part_of(whole(call_.root), rank_);
      case Collective::kReduceScatter: return part_of(reduced(call_.dtype, call_.op, total_, size_), rank_);
      default:
        for (Rank r = 0; r < size_; ++r) {
          uint64_t first = 0;
          std::vector<uint64_t> row;
          for (Rank peer = 0; peer < size_; ++peer) row.push_back(between(r, peer));
          first = sum_of(row, index(rank_));
          append(all, slice(contribution(call_.dtype, sum_of(row), r, size_), first, row[index(rank_)]));
        }
        return all;
    }
  }

 private:
  static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }
  uint64_t between(Rank from, Rank to) const {
    return call_.counts[call_.even ? 0 : index((from + 2 * to) % size_)];
  }
  Elements whole(Rank rank) const { return contribution(call_.dtype, total_, rank, size_); }
  Elements part_of(const Elements& whole, Rank rank) const {
    return slice(whole, sum_of(call_.counts, index(rank)), call_.counts[index(rank)]);
  }

  const PartsCall& call_;
  const Rank rank_, size_;
  uint64_t total_ = 0;
  std::vector<uint64_t> to_, from_;
};

inline Status run_and_compare(Communicator& group, const PartsCall& call) {
  const PartsOracle oracle(call, group.rank(), group.size());
  const bool gathers = call.collective == Collective::kAllgather || call.collective == Collective::kGather;
  const bool scatters =
      call.collective == Collective::kScatter || call.collective == Collective::kReduceScatter;
  const Elements before = oracle.input(), want = oracle.result();
  const std::size_t own = oracle.own_first() * size_of(call.dtype);
  Elements in = before, out = garbage(call.dtype, want.count);
  if (gathers && call.in_place && oracle.has_whole())
    std::copy(in.bytes.begin(), in.bytes.end(), out.bytes.begin() + static_cast<std::ptrdiff_t>(own));

  Request request;
  request.collective = call.collective;
  request.op = call.op;
  request.root = call.root;
  if (!call.even) request.counts = call.counts;
  if (!call.even && call.collective == Collective::kAlltoall) {
    request.counts = oracle.to();
    request.recv_counts = oracle.from();
  }
  if (oracle.has_whole() || gathers) request.in = in.view();
  if (oracle.has_whole() || scatters) request.out = out.buffer();
  if (call.in_place && oracle.has_whole()) {
    if (gathers) request.in = {out.bytes.data() + own, in.count, call.dtype};
    if (scatters) request.out = {in.bytes.data() + own, want.count, call.dtype};
  }
  PC_TRY(group.run(request));
  const auto wrong = [&](const std::string& what) {
    return Status(Code::kInternal, text_of(call) + ": " + what + " on rank " + std::to_string(group.rank()));
  };
  if (gathers && !oracle.has_whole())
    return in.bytes == before.bytes ? Status::ok() : wrong("touched the input");
  const bool inside = call.in_place && scatters && oracle.has_whole();
  const Elements got = inside ? slice(in, oracle.own_first(), want.count) : out;
  const std::size_t at = first_difference(got, want, call.op == ReduceOp::kAvg);
  if (at != want.count) return wrong("element " + std::to_string(at) + " is wrong");
  const auto written = before.bytes.begin() + static_cast<std::ptrdiff_t>(own);
  if (inside) std::copy_n(written, got.bytes.size(), in.bytes.begin() + static_cast<std::ptrdiff_t>(own));
  return in.bytes == before.bytes ? Status::ok() : wrong("touched the input");
}

}  // namespace pc::testing
