#include "bench/options.h"

#include <algorithm>

#include "bench/groups.h"

namespace pc::bench {
namespace {

constexpr uint64_t kFewestBySize = 20, kMostBySize = 1000, kBytesPerRow = 256 << 20, kFewestWarmUp = 5;

}  // namespace

Status check(const Options& options, Rank size) {
  if (options.ranks && *options.ranks != size) {
    return invalid_argument("-n " + std::to_string(*options.ranks) + ": the launcher has started " +
                            std::to_string(size) + " ranks; leave -n out");
  }
  PC_ASSIGN_OR_RETURN(const std::vector<std::vector<Rank>> found, groups(options.group, size));
  Rank fewest = size;
  for (const std::vector<Rank>& group : found) fewest = std::min(fewest, static_cast<Rank>(group.size()));
  for (const Case& what : options.cases) {
    if (what.operation->rooted() && what.root.value_or(0) >= fewest)
      return invalid_argument("--root " + std::to_string(*what.root) + ": there are only " +
                              std::to_string(fewest) + " ranks" +
                              (options.group.empty() ? "" : " in a group of --group " + options.group));
  }
  return Status::ok();
}

Effort effort(const Options& options, uint64_t nbytes) {
  const uint64_t by_size =
      std::clamp(kBytesPerRow / std::max<uint64_t>(nbytes, 1), kFewestBySize, kMostBySize);
  const uint64_t iterations = options.iterations.value_or(by_size);
  return {options.warm_up.value_or(std::max(kFewestWarmUp, by_size / 10)), iterations, options.checks};
}

}  // namespace pc::bench
