// Splits an array on a GPU into the pieces of its memory, and tells which arrays a collective reads
// and writes, for calls that first move them elsewhere.
#pragma once

#include <cstddef>
#include <span>

#include "base/io_vec.h"
#include "gpu/cuda/driver.h"
#include "gpu/staging/device_arguments.h"

namespace pc {

// Calls copy(address, place, nbytes) for each piece. `place` is the piece's offset if the array
// were contiguous.
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

// Returns true if a rank that no other rank precedes does not write its output (exscan). The output
// must then keep its old contents.
inline bool reads_output(const Request& request) { return leaves_output(request.collective); }
// Returns false for the root of a broadcast if its output is its input.
inline bool writes_output(const Request& request, Rank rank) {
  return request.collective != Collective::kBroadcast || request.root != rank ||
         request.in.data != request.out.data || request.in.list != request.out.list;
}

}  // namespace pc
