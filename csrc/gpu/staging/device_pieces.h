// An array of a GPU as pieces of its memory, and what a collective does with its arrays: for calls that move them elsewhere first.
#pragma once

#include <cstddef>
#include <span>

#include "base/io_vec.h"
#include "gpu/cuda/driver.h"
#include "gpu/staging/device_arguments.h"

namespace pc {

// copy(address, place, nbytes) of each piece; `place`: where it would begin if the array lay in one block.
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

// Not all of the output is written where no rank comes before this one, and what is not stays as it was.
inline bool reads_output(const Request& request) { return leaves_output(request.collective); }
// The root of a broadcast may have one that is its input.
inline bool writes_output(const Request& request, Rank rank) {
  return request.collective != Collective::kBroadcast || request.root != rank ||
         request.in.data != request.out.data || request.in.list != request.out.list;
}

}  // namespace pc
