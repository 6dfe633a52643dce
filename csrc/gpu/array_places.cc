// Determines on which GPU, and in which allocations, the arrays of a call are.
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "gpu/cuda/pointer.h"
#include "gpu/device_groups.h"
#include "gpu/staging/device_arguments.h"

namespace pc {

Result<int> DeviceGroups::device_of(const void* array) {
  PC_ASSIGN_OR_RETURN(const std::shared_ptr<const cuda::Driver> driver, this->driver());
  PC_ASSIGN_OR_RETURN(const cuda::PointerInfo found,
                      cuda::classify_pointer(*driver, reinterpret_cast<cuda::CUdeviceptr>(array)));
  if (found.kind == cuda::MemoryKind::kDevice || found.kind == cuda::MemoryKind::kManaged)
    return found.device;
  return Status(Code::kInvalidArgument, "the array says that it lies on a GPU, but its memory is " +
                                            std::string(name_of(found.kind)));
}

Result<std::unique_ptr<const IoVec>> DeviceGroups::within_allocations(const IoVec& list) {
  PC_ASSIGN_OR_RETURN(const std::shared_ptr<const cuda::Driver> driver, this->driver());
  auto cut = std::make_unique<IoVec>();
  while (cut->nbytes() < list.nbytes()) {
    const std::span<std::byte> piece = list.at(cut->nbytes(), list.nbytes() - cut->nbytes());
    const auto at = reinterpret_cast<cuda::CUdeviceptr>(piece.data());
    PC_ASSIGN_OR_RETURN(const cuda::PointerInfo found, cuda::classify_pointer(*driver, at));
    const std::size_t remaining = found.base == 0 ? piece.size() : found.base + found.nbytes - at;
    cut->add_separate(piece.data(), std::min(piece.size(), remaining));
  }
  if (cut->pieces() == list.pieces()) return std::unique_ptr<const IoVec>();
  return std::unique_ptr<const IoVec>(std::move(cut));
}

Result<int> DeviceGroups::current_device() {
  PC_ASSIGN_OR_RETURN(const std::shared_ptr<const cuda::Driver> driver, this->driver());
  cuda::CUcontext context = nullptr;
  PC_TRY(driver->check(driver->cuCtxGetCurrent(&context), "cuCtxGetCurrent"));
  cuda::CUdevice device = 0;
  if (context != nullptr) PC_TRY(driver->check(driver->cuCtxGetDevice(&device), "cuCtxGetDevice"));
  return device;  // the driver's device handles are ordinals
}

// Returns the GPU of a buffer. The arrays of a list must all be on one GPU.
Result<int> DeviceGroups::device_of(const ConstBuffer& buffer) {
  if (buffer.list == nullptr) return device_of(buffer.data);
  int found = kUnknownGpu;
  for (std::size_t begin = 0; begin < buffer.list->nbytes();) {
    const std::span<std::byte> piece = buffer.list->at(begin, buffer.list->nbytes());
    PC_ASSIGN_OR_RETURN(const int its, device_of(piece.data()));
    if (found != kUnknownGpu && its != found)
      return Status(Code::kInvalidArgument, "the arrays of the list lie on GPU " + std::to_string(found) +
                                                " and GPU " + std::to_string(its) + ": they must lie on one");
    found = its;
    begin += piece.size();
  }
  return found;
}

// Sets the GPU of each array that does not report its own, by a query to the driver. An array
// without elements has no memory to query; it gets the GPU of the call's other array, or the
// current GPU.
Result<int> DeviceGroups::place(Request& request) {
  const auto locate = [&](auto& buffer) -> Status {
    Device& its = buffer.device;
    if (!is_there(buffer) || its.type != DeviceType::kCuda || its.index != kUnknownGpu || buffer.count == 0)
      return Status::ok();
    PC_ASSIGN_OR_RETURN(const int found, device_of(buffer));
    its.index = static_cast<int16_t>(found);
    return Status::ok();
  };
  PC_TRY(locate(request.in));
  PC_TRY(locate(request.out));
  Device* const both[] = {is_there(request.in) ? &request.in.device : nullptr,
                          is_there(request.out) ? &request.out.device : nullptr};
  int device = kUnknownGpu;
  for (const Device* its : both) {
    if (its != nullptr && its->type == DeviceType::kCuda && its->index != kUnknownGpu) device = its->index;
  }
  if (device == kUnknownGpu) {
    PC_ASSIGN_OR_RETURN(device, current_device());
  }
  for (Device* its : both) {
    if (its != nullptr && its->index == kUnknownGpu) its->index = static_cast<int16_t>(device);
  }
  return device;
}

Result<std::unique_ptr<const IoVec>> DeviceGroups::cut_at_allocations(UserCall& call) {
  Request& request = call.request;
  const IoVec* const list = call.joined != nullptr       ? call.joined
                            : request.in.list != nullptr ? request.in.list
                                                         : request.out.list;
  std::unique_ptr<const IoVec> cut;
  if (list == nullptr || !list->has_joined()) return cut;
  PC_ASSIGN_OR_RETURN(cut, within_allocations(*list));
  if (cut == nullptr) return cut;
  const std::byte* const together = list->pieces() == 1 ? list->at(0, 1).data() : nullptr;
  const auto replace = [&](auto& buffer) {
    if (buffer.list != list && (together == nullptr || buffer.data != together)) return;
    buffer.data = nullptr;
    buffer.list = cut.get();
  };
  replace(request.in);
  replace(request.out);
  return cut;
}

}  // namespace pc
