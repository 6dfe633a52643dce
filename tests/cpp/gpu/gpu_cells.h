// Calls that a group makes twice: on arrays on the CPU, and on arrays on GPUs.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "device_world.h"
#include "gpu/staging/staged_calls.h"

namespace pc::testing {

struct Cell {
  Collective collective;
  ReduceOp op;
  DType dtype;
  bool in_place = false, uneven = false;
  std::string text() const {
    return std::string(name_of(collective)) + " " + std::string(name_of(op)) + " " +
           std::string(name_of(dtype)) + (in_place ? " in place" : "") + (uneven ? " uneven" : "");
  }
};

// One rank's part in a call: numbers of elements, and the offset of the smaller array in the larger
// one if in place.
struct Sizes {
  std::size_t in = 0, out = 0, part_begin = 0;
  bool has_in = true, has_out = true;
  std::vector<uint64_t> counts = {};
};

inline Sizes sizes_of(const Cell& cell, Rank rank, Rank size, std::size_t count) {
  const std::size_t ranks = static_cast<std::size_t>(size);
  const bool at_root = rank == size - 1;
  std::vector<uint64_t> parts(ranks, count);
  if (cell.uneven) std::iota(parts.begin(), parts.end(), count);
  const auto part = parts.begin() + rank;
  Sizes sizes;
  sizes.part_begin = std::accumulate(parts.begin(), part, std::size_t{0});
  if (cell.uneven) sizes.counts = parts;
  const std::size_t whole = std::accumulate(parts.begin(), parts.end(), std::size_t{0});
  switch (cell.collective) {
    case Collective::kAllgather: sizes.in = *part, sizes.out = whole; break;
    case Collective::kGather: sizes.in = *part, sizes.out = whole, sizes.has_out = at_root; break;
    case Collective::kReduceScatter: sizes.in = whole, sizes.out = *part; break;
    case Collective::kScatter: sizes.in = whole, sizes.out = *part, sizes.has_in = at_root; break;
    case Collective::kAlltoall: sizes.in = sizes.out = ranks * count; break;
    case Collective::kReduce: sizes.in = sizes.out = count, sizes.has_out = at_root; break;
    case Collective::kBroadcast: sizes.in = sizes.out = count, sizes.has_in = at_root; break;
    default: sizes.in = sizes.out = count;
  }
  return sizes;
}

inline void fill(std::byte* at, std::size_t count, DType dtype, Rank rank) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t value = (i + 7 * static_cast<std::size_t>(rank)) % 5;
    const float f = static_cast<float>(value);
    const int16_t s = static_cast<int16_t>(value);
    if (dtype == DType::kF32) std::memcpy(at + i * sizeof f, &f, sizeof f);
    if (dtype == DType::kI16) std::memcpy(at + i * sizeof s, &s, sizeof s);
    if (dtype == DType::kU8) at[i] = static_cast<std::byte>(value);
  }
}

// The arrays in one block of memory at `memory`: the input, followed by the output if not in place.
inline Request request_of(const Cell& cell, const Sizes& sizes, std::byte* memory, Device device, Rank root) {
  const std::size_t element = size_of(cell.dtype);
  const bool in_is_part = sizes.in < sizes.out || cell.collective == Collective::kGather ||
                          cell.collective == Collective::kAllgather;
  const std::size_t shift = sizes.in == sizes.out && cell.collective != Collective::kGather &&
                                    cell.collective != Collective::kAllgather
                                ? 0
                                : sizes.part_begin * element;
  std::byte *in = memory, *out = memory + sizes.in * element;
  if (cell.in_place) {
    in = memory + (in_is_part ? shift : 0);
    out = memory + (in_is_part ? 0 : shift);
  }
  Request request;
  request.collective = cell.collective;
  request.op = cell.op;
  request.root = root;
  request.counts = sizes.counts;
  if (sizes.has_in) request.in = {in, sizes.in, cell.dtype, device};
  if (sizes.has_out) request.out = {out, sizes.out, cell.dtype, device};
  return request;
}

inline std::vector<Cell> cells_of_every_kind() {
  std::vector<Cell> cells;
  for (const DType dtype : {DType::kF32, DType::kI16, DType::kU8}) {
    for (const bool in_place : {false, true}) {
      for (const Collective each : {Collective::kAllreduce, Collective::kReduce, Collective::kReduceScatter,
                                    Collective::kScan, Collective::kExscan})
        cells.push_back({each, dtype == DType::kF32 ? ReduceOp::kMin : ReduceOp::kBXor, dtype, in_place});
      for (const Collective each :
           {Collective::kBroadcast, Collective::kAllgather, Collective::kGather, Collective::kScatter})
        cells.push_back({each, ReduceOp::kSum, dtype, in_place});
    }
    cells.push_back({Collective::kAlltoall, ReduceOp::kSum, dtype});
  }
  std::erase_if(cells, [](const Cell& cell) {
    // floats have a minimum of their own
    return cell.op == ReduceOp::kMin && cell.collective == Collective::kExscan;
  });
  for (const Collective each :
       {Collective::kAllgather, Collective::kGather, Collective::kScatter, Collective::kReduceScatter})
    cells.push_back({each, ReduceOp::kSum, DType::kF32, false, true});
  return cells;
}

// Runs every call on the CPU's group and, with the same arrays on this rank's GPU, through `make`.
// The results must have the same bits.
inline Status expect_as_on_cpu(Communicator& group, const std::vector<Cell>& cells, std::byte* there,
                               int device, cuda::CUstream stream,
                               const std::function<Status(const UserCall&)>& make) {
  const std::size_t n = static_cast<std::size_t>(group.size());
  for (const Cell& cell : cells) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, n - 1, n, n + 1, std::size_t{1000}}) {
      const Sizes sizes = sizes_of(cell, group.rank(), group.size(), count);
      const std::size_t elements = std::max(sizes.in, sizes.out) * (cell.in_place ? 1 : 2);
      std::vector<std::byte> host(elements * size_of(cell.dtype) + 1);
      for (std::byte* at : {host.data(), there}) fill(at, elements, cell.dtype, group.rank());
      PC_TRY(group.run(request_of(cell, sizes, host.data(), {}, group.size() - 1)));
      UserCall call;
      call.request =
          request_of(cell, sizes, there, {DeviceType::kCuda, static_cast<int16_t>(device)}, group.size() - 1);
      call.request.stream = stream;
      PC_TRY(make(call));
      if (std::memcmp(host.data(), there, elements * size_of(cell.dtype)) != 0)
        return wrong(cell.text() + " of " + std::to_string(count));
    }
  }
  return Status::ok();
}

}  // namespace pc::testing
