#include "gpu/cuda/device_nodes.h"

#include <glob.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>

namespace pc::cuda {
namespace {

std::size_t count_matches(const std::string& pattern) {
  glob_t found = {};
  const bool any = ::glob(pattern.c_str(), 0, nullptr, &found) == 0;
  const std::size_t count = any ? found.gl_pathc : 0;
  ::globfree(&found);
  return count;
}

// Returns an upper bound on the number of GPUs of the machine.
std::size_t count_gpus(const std::string& folder) {
  // The Windows subsystem for Linux and Tegra have one node for all GPUs.
  for (const char* node : {"/dxg", "/nvhost-ctrl-gpu"}) {
    if (count_matches(folder + node) != 0) return std::numeric_limits<std::size_t>::max();
  }
  return count_matches(folder + "/nvidia[0-9]*");
}

// Returns true if CUDA accepts the first name in `visible` as a GPU: a number, or the beginning of
// an identifier.
bool names_gpu(std::string_view visible, std::size_t count) {
  const std::size_t begin = std::min(visible.find_first_not_of(' '), visible.size());
  const std::string_view first = visible.substr(begin, visible.find(',') - begin);
  if (first.starts_with("GPU-") || first.starts_with("MIG-")) return true;
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(first.data(), first.data() + first.size(), number);
  return error == std::errc() && end != first.data() && number < count;
}

}  // namespace

bool may_have_gpu(const std::string& library, const std::optional<std::string_view>& visible,
                  const std::string& folder) {
  const std::size_t count = library.empty() ? count_gpus(folder) : std::numeric_limits<std::size_t>::max();
  return count != 0 && (!visible || names_gpu(*visible, count));
}

}  // namespace pc::cuda
