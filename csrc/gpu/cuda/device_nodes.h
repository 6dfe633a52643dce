// Determines whether this process may find a GPU, without opening the driver, because opening it
// starts threads and rules out a later fork.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pc::cuda {

// Returns false only if this process cannot have a GPU. `library` is a driver library that the user
// has specified, or empty; a specified library needs no device nodes. `visible` is
// CUDA_VISIBLE_DEVICES; CUDA uses the GPUs that it lists before the first unknown name. `folder`
// contains the device nodes.
bool may_have_gpu(const std::string& library, const std::optional<std::string_view>& visible,
                  const std::string& folder = "/dev");

}  // namespace pc::cuda
