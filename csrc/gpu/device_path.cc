#include "gpu/device_path.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "plan/plan.h"

namespace pc {
namespace {

template <std::size_t size>
void put(char (&into)[size], const std::string& text) {
  const std::size_t length = std::min(text.size(), size - 1);
  std::memcpy(into, text.data(), length);
  into[length] = '\0';
}
// Text from another rank may lack the terminating null.
template <std::size_t size>
std::string text_in(const char (&from)[size]) {
  return {from, strnlen(from, size)};
}

std::string version_text(const DeviceFacts& facts) {
  return std::to_string(facts.nccl_major) + "." + std::to_string(facts.nccl_minor) + "." +
         std::to_string(facts.nccl_patch);
}
Status not_by_nccl(const std::string& why) {
  return Status(Code::kUnsupported, "these ranks cannot go by NCCL: " + why);
}

}  // namespace

void DeviceFacts::set_gpu(const std::string& uuid, const std::string& host_id) {
  put(gpu, uuid);
  host = host_id.empty() ? 0 : fnv1a(host_id);
}
void DeviceFacts::lacks(const std::string& why) {
  if (why_not[0] == '\0') put(why_not, why);
}

Status can_go_by_nccl(std::span<const DeviceFacts> by_rank) {
  std::map<std::pair<std::string, uint64_t>, Rank> owners;
  for (std::size_t i = 0; i < by_rank.size(); ++i) {
    const Rank rank = static_cast<Rank>(i);
    const DeviceFacts& facts = by_rank[i];
    if (const std::string why = text_in(facts.why_not); !why.empty())
      return not_by_nccl(rank_text(rank) + ": " + why);
    const auto [owner, is_first] = owners.emplace(std::pair(text_in(facts.gpu), facts.host), rank);
    if (!is_first)
      return not_by_nccl(rank_text(owner->second) + " and " + rank_text(rank) + " share one GPU, " +
                         owner->first.first + ", which NCCL refuses");
    if (version_text(facts) != version_text(by_rank[0]))
      return not_by_nccl("rank 0 has NCCL " + version_text(by_rank[0]) + " and " + rank_text(rank) + " " +
                         version_text(facts) + ", and NCCL wants one version everywhere");
  }
  return Status::ok();
}

}  // namespace pc
