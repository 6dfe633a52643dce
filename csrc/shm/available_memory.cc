#include "shm/available_memory.h"

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <string_view>

namespace pc {
namespace {

constexpr uint64_t kUnknown = UINT64_MAX;

// The file names of one version of control groups.
struct Files {
  const char* limit;
  const char* usage;
  std::initializer_list<std::string_view>
      cache;  // rows of memory.stat that count pages of files, which the kernel can reclaim
};
const Files kVersion1 = {
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};
const Files kVersion2 = {"memory.max", "memory.current", {"inactive_file", "active_file"}};

std::optional<uint64_t> number_in(const std::string& path) {  // nullopt: no such file, or "max"
  std::ifstream file(path);
  uint64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

// Returns the sum of the numbers in the rows `names` of a file of rows "name number ...".
uint64_t sum_in(const std::string& path, std::initializer_list<std::string_view> names) {
  std::ifstream file(path);
  uint64_t sum = 0, number = 0;
  for (std::string name, rest; file >> name >> number; std::getline(file, rest)) {
    if (std::find(names.begin(), names.end(), name) != names.end()) sum += number;
  }
  return sum;
}

uint64_t available_on_machine(const std::string& root) {
  const uint64_t kib = sum_in(root + "/proc/meminfo", {"MemAvailable:", "SwapFree:"});
  return kib == 0 ? kUnknown : kib * 1024;
}

uint64_t available_to_group(const std::string& folder, const Files& files) {
  const std::optional<uint64_t> limit = number_in(folder + "/" + files.limit);
  const std::optional<uint64_t> usage = number_in(folder + "/" + files.usage);
  if (!limit || !usage) return kUnknown;
  const uint64_t cache = std::min(sum_in(folder + "/memory.stat", files.cache), *usage);
  const uint64_t used = *usage - cache;
  return *limit > used ? *limit - used : 0;
}

// Returns the minimum over a group and all groups that contain it, because each has its own limit.
// In a container `path` may be the path outside the container; then only the limit of the mounted
// folder counts.
uint64_t available_to_groups(const std::string& mount, std::string path, const Files& files) {
  uint64_t available = available_to_group(mount, files);
  while (path.size() > 1) {
    available = std::min(available, available_to_group(mount + path, files));
    path.resize(path.rfind('/'));
  }
  return available;
}

}  // namespace

uint64_t available_memory(const std::string& root) {
  uint64_t available = available_on_machine(root);
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:cpu,memory:/job/7" or "0::/job/7"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string kinds = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1), mounts = root + "/sys/fs/cgroup";
    if (path.empty() || path.front() != '/') continue;
    if (kinds == ",,") {
      available = std::min({available, available_to_groups(mounts, path, kVersion2),
                            available_to_groups(mounts + "/unified", path, kVersion2)});
    } else if (kinds.find(",memory,") != std::string::npos) {
      available = std::min(available, available_to_groups(mounts + "/memory", path, kVersion1));
    }
  }
  return available;
}

}  // namespace pc
