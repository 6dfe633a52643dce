#include "gpu/ipc/ipc_scratch.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/round_up.h"
#include "gpu/cuda/copy.h"
#include "gpu/staging/device_pieces.h"

namespace pc {
namespace {

bool are_one(const Request& request) {
  return is_there(request.in) && request.in.data == request.out.data && request.in.list == request.out.list &&
         request.in.count == request.out.count;
}

}  // namespace

Result<Request> IpcScratch::substitute(const Request& request, IpcMemory& memory, cuda::CUstream stream) {
  const bool moves_in = !memory.shows(request.in), moves_out = !memory.shows(request.out);
  Request made = request;
  constexpr std::size_t kAlignment = 256;
  const std::size_t out_at = moves_in && !are_one(request) ? round_up(request.in.nbytes(), kAlignment) : 0;
  PC_ASSIGN_OR_RETURN(
      std::byte* const begin,
      allocate(std::max(moves_in ? request.in.nbytes() : 0, moves_out ? out_at + request.out.nbytes() : 0)));
  const auto fill = [&](const ConstBuffer& array, std::byte* to) {
    return each_piece(array, [&](cuda::CUdeviceptr from, std::size_t place, std::size_t nbytes) {
      return cuda::copy_on_device(context_.driver(), reinterpret_cast<cuda::CUdeviceptr>(to + place), from,
                                  nbytes, stream);
    });
  };
  if (moves_in) {
    PC_TRY(fill(request.in, begin));
    made.in.data = begin;
    made.in.list = nullptr;
  }
  if (moves_out) {
    if (reads_output(request) && !are_one(request)) PC_TRY(fill(request.out, begin + out_at));
    made.out.data = begin + out_at;
    made.out.list = nullptr;
  }
  return made;
}

Status IpcScratch::give_back(const Request& request, const Request& made, Rank rank,
                             cuda::CUstream stream) const {
  if (made.out.data == request.out.data || !writes_output(request, rank)) return Status::ok();
  return each_piece(request.out, [&](cuda::CUdeviceptr to, std::size_t place, std::size_t nbytes) {
    return cuda::copy_on_device(context_.driver(), to,
                                reinterpret_cast<cuda::CUdeviceptr>(made.out.data + place), nbytes, stream);
  });
}

// Keeps the smaller blocks, because freeing a block waits for the GPU, and because other ranks have
// the blocks open.
Result<std::byte*> IpcScratch::allocate(std::size_t nbytes) {
  if (blocks_.empty() || blocks_.back().nbytes() < nbytes) {
    PC_ASSIGN_OR_RETURN(cuda::DeviceMemory more,
                        cuda::DeviceMemory::allocate(context_, std::bit_ceil(nbytes)));
    blocks_.push_back(std::move(more));
  }
  return reinterpret_cast<std::byte*>(blocks_.back().at());
}

}  // namespace pc
