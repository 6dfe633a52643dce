// Lists of arrays that one call sends, compared with the same elements in one array.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "base/io_vec.h"
#include "comm/communicator.h"
#include "conformance/elements.h"

namespace pc::testing {

// Elements in pieces of many lengths: large, single, empty, and some that are contiguous.
class Pieces {
 public:
  explicit Pieces(const Elements& whole) : all_(whole) {
    const std::size_t width = size_of(whole.dtype);
    std::mt19937 random(static_cast<uint32_t>(whole.count));
    for (std::size_t done = 0; done < whole.count;) {
      const std::size_t lengths[] = {0, 2, 4, 100, 2 * (random() % 20'000)};
      const std::size_t count = std::min(lengths[random() % std::size(lengths)], whole.count - done);
      const auto from = whole.bytes.begin() + static_cast<std::ptrdiff_t>(done * width);
      memory_.emplace_back(from, from + static_cast<std::ptrdiff_t>(count * width));
      done += count;
    }
    for (std::vector<std::byte>& piece : memory_) {
      const std::size_t half = piece.size() / width / 4 * 2 * width;  // pairs stay together
      list_.add(piece.data(), half);
      list_.add(piece.data() + half, piece.size() - half);
    }
  }
  Buffer buffer() const { return {nullptr, all_.count, all_.dtype, {}, nullptr, &list_}; }
  Elements joined() const {
    Elements result = all_;
    result.bytes.clear();
    for (const auto& piece : memory_) result.bytes.insert(result.bytes.end(), piece.begin(), piece.end());
    return result;
  }

 private:
  const Elements all_;
  std::vector<std::vector<std::byte>> memory_;
  IoVec list_;
};

struct ListCall {
  Collective collective = Collective::kAllreduce;
  DType dtype = DType::kF32;
  Reduction op;
  std::size_t count = 0;
  Rank root = 0;
};

inline Status run_and_compare(Communicator& group, const ListCall& call) {
  const Rank rank = group.rank();
  const Elements before = contribution(call.dtype, call.count, rank, group.size());
  Elements flat = before;
  Pieces pieces(before);
  Request request;
  request.collective = call.collective;
  request.op = call.op;
  request.root = call.root;
  const bool sends_only = call.collective == Collective::kBroadcast && rank == call.root;
  request.in = flat.view();
  if (!sends_only) request.out = flat.buffer();
  PC_TRY(group.run(request));
  request.in = pieces.buffer();
  request.out = sends_only ? Buffer{} : pieces.buffer();
  PC_TRY(group.run(request));
  if (pieces.joined().bytes == flat.bytes) return Status::ok();
  return Status(Code::kInternal, std::string(name_of(call.collective)) + " " +
                                     std::string(name_of(call.dtype)) + " " + text_of(call.op) + " of " +
                                     std::to_string(call.count) + " elements in a list, root " +
                                     std::to_string(call.root) + ": wrong on rank " + std::to_string(rank));
}

}  // namespace pc::testing
