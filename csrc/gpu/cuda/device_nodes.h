// Whether a process may find a GPU, determined without opening the driver: opening it starts
// threads and rules out a later fork.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pc::cuda {

// `library` is a driver that the user named, which needs no device nodes; it is empty if the user
// named none. `visible` is CUDA_VISIBLE_DEVICES, of which CUDA uses the GPUs up to the first
// unknown name. `folder` is the folder of the device nodes.
bool may_have_gpu(const std::string& library, const std::optional<std::string_view>& visible,
                  const std::string& folder = "/dev");

}  // namespace pc::cuda
