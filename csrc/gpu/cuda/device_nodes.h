// Whether a process may find a GPU, without opening the driver: that starts threads, and forbids a later fork.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pc::cuda {

// `library`: a driver that somebody named, which needs no device nodes; empty: nobody did. `visible`: CUDA_VISIBLE_DEVICES, from
// which CUDA takes GPUs up to the first that it does not know. `folder`: where device nodes are.
bool may_have_gpu(const std::string& library, const std::optional<std::string_view>& visible,
                  const std::string& folder = "/dev");

}  // namespace pc::cuda
