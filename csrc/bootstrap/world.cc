#include "bootstrap/world.h"

#include <set>
#include <string_view>

namespace pc {

Rank HostMap::count(std::span<const Rank> of) const {
  std::set<std::string_view> different;
  for (const Rank rank : of) different.insert(ranks[static_cast<std::size_t>(rank)].host_key);
  return static_cast<Rank>(different.size());
}

}  // namespace pc
