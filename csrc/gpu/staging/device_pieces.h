// Splits an array on a GPU into the contiguous pieces of its memory, and determines which arrays a
// collective reads and writes. For calls that first copy their arrays to other memory.
#pragma once

#include <cstddef>
#include <span>

#include "base/io_vec.h"
#include "gpu/cuda/driver.h"
#include "gpu/staging/device_arguments.h"

namespace pc {

// Calls copy(address, offset, nbytes) for each piece. `offset` is the position that the piece would
// have in a contiguous array.
template <class Copy>
Status each_piece(const ConstBuffer& array, Copy&& copy) {
  if (!is_there(array)) return Status::ok();
  Status status;
  std::size_t begin = 0;
  const Location place{const_cast<std::byte*>(array.data), array.list};
  ConstIoVec(place, array.nbytes()).each([&](std::span<const std::byte> piece) {
    if (status.is_ok()) status = copy(reinterpret_cast<cuda::CUdeviceptr>(piece.data()), begin, piece.size());
    begin += piece.size();
  });
  return status;
}

// Returns true for exscan: rank 0 does not write its output, so the old contents must be copied as
// well.
inline bool reads_output(const Request& request) { return leaves_output(request.collective); }
// Returns false only for the root of a broadcast in place.
inline bool writes_output(const Request& request, Rank rank) {
  return request.collective != Collective::kBroadcast || request.root != rank ||
         request.in.data != request.out.data || request.in.list != request.out.list;
}

}  // namespace pc
