#include "engine/shm/hier/group_table.h"

#include <algorithm>
#include <map>

namespace pc::shm {
namespace {

// Up to here one rank of each island speaks for it: more messages would cost more than they carry.
constexpr std::size_t kThroughLeaders = 8 * 1024;
constexpr Rank kMostPieces = 512;  // a message with a piece for each fits into the smallest ring

}  // namespace

bool goes_by_islands(const Request& request, const Islands& islands) {
  if (!islands.worth_it()) return false;
  switch (request.collective) {
    case Collective::kBarrier:
    case Collective::kBroadcast: return true;
    case Collective::kAllreduce:
    case Collective::kReduce:
      // A mean of means is the mean only where all are of as many.
      return request.op != ReduceOp::kAvg || islands.even();
    case Collective::kAllgather:
    case Collective::kReduceScatter:
      // Each rank stands for one part of each island.
      return islands.even() && request.counts.empty() && islands.count * islands.most <= kMostPieces;
    default: return false;
  }
}

uint32_t slices_of(Collective collective, std::size_t nbytes, const Islands& islands) {
  const bool one =
      collective == Collective::kBroadcast || (nbytes <= kThroughLeaders && !has_parts(collective));
  return one ? 1 : static_cast<uint32_t>(islands.least);
}

std::string describe_by_islands(Collective collective, std::size_t nbytes, const Islands& islands) {
  const uint32_t slices = slices_of(collective, nbytes, islands);
  if (slices == 1) return "one rank of each host exchanges the array with those of the others";
  return "cut into " + std::to_string(slices) +
         " slices; for each of them one rank of every host exchanges what its host has combined";
}

GroupTable::GroupTable(std::span<const Rank> island_of, Rank self) {
  std::map<Rank, std::size_t> known;
  for (std::size_t r = 0; r < island_of.size(); ++r) {
    const auto [at, is_new] = known.try_emplace(island_of[r], islands_.size());
    if (is_new) islands_.emplace_back();
    std::vector<Rank>& members = islands_[at->second];
    if (static_cast<Rank>(r) == self) {
      own_island_ = static_cast<Rank>(at->second);
      own_place_ = static_cast<Rank>(members.size());
    }
    members.push_back(static_cast<Rank>(r));
  }
}

Islands GroupTable::shape() const {
  Islands shape{static_cast<Rank>(islands_.size()), static_cast<Rank>(islands_.front().size()), 1};
  for (const std::vector<Rank>& members : islands_) {
    shape.least = std::min(shape.least, static_cast<Rank>(members.size()));
    shape.most = std::max(shape.most, static_cast<Rank>(members.size()));
  }
  return shape;
}

Rank GroupTable::island_of(Rank rank) const {
  for (std::size_t i = 0; i < islands_.size(); ++i) {
    if (std::find(islands_[i].begin(), islands_[i].end(), rank) != islands_[i].end())
      return static_cast<Rank>(i);
  }
  return -1;
}

Rank GroupTable::place_here(Rank rank) const {
  const std::vector<Rank>& here = members();
  const auto at = std::find(here.begin(), here.end(), rank);
  return at == here.end() ? -1 : static_cast<Rank>(at - here.begin());
}

std::vector<Rank> GroupTable::column(Rank place, Rank root) const {
  std::vector<Rank> ranks;
  for (const std::vector<Rank>& members : islands_) ranks.push_back(members[static_cast<std::size_t>(place)]);
  if (root >= 0) ranks[static_cast<std::size_t>(island_of(root))] = root;
  return ranks;
}

}  // namespace pc::shm
