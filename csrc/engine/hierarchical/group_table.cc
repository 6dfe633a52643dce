#include "engine/hierarchical/group_table.h"

#include <algorithm>
#include <map>

namespace pc::shm {
namespace {

// Up to this size a single rank of each domain exchanges the data with the other domains: messages
// of further ranks would cost more than they would gain.
constexpr std::size_t kThroughLeaders = 8UL * 1024;
// Above this size, a tree over all ranks is as fast as the hierarchical algorithm if the tree has
// as few edges between domains as possible. Its messages are then large enough for rendezvous, so
// ranks that disagree about the root notice the mismatch.
constexpr uint64_t kThroughTrees = 64UL * 1024;
constexpr Rank kMostPieces = 512;  // a message with this many pieces fits into the smallest ring

}  // namespace

Rank count_tree_edges_between(const ShmDomains& domains, Rank root) {
  const auto domain = [&](uint32_t place) {
    return domains.domain_of[(place + static_cast<uint32_t>(root)) % domains.domain_of.size()];
  };
  Rank edges = 0;
  for (uint32_t place = 1; place < domains.domain_of.size(); ++place)
    edges += domain(place) != domain(place & (place - 1)) ? 1 : 0;
  return edges;
}

bool is_hierarchical(const Request& request, uint64_t nbytes, const ShmDomains& domains) {
  if (!domains.worth_it()) return false;
  // A mean of means is the mean only if all domains have the same number of ranks.
  const bool combines = request.op != ReduceOp::kAvg || domains.even();
  const auto tree_is_worse = [&] {
    return nbytes <= kThroughTrees || count_tree_edges_between(domains, request.root) > domains.count - 1;
  };
  switch (request.collective) {
    case Collective::kBarrier: return true;
    case Collective::kBroadcast: return tree_is_worse();
    case Collective::kAllreduce: return combines;
    case Collective::kReduce: return combines && tree_is_worse();
    case Collective::kAllgather:
    case Collective::kReduceScatter:
      // Each rank exchanges one part of each domain, so all domains need the same number of ranks,
      // and all parts the same size.
      return domains.even() && request.counts.empty() && domains.count * domains.most <= kMostPieces;
    default: return false;
  }
}

bool goes_through_leaders(Collective collective, std::size_t nbytes) {
  return nbytes <= kThroughLeaders && !has_parts(collective);
}

uint32_t slices_of(Collective collective, const ShmDomains& domains) {
  return collective == Collective::kBroadcast ? 1 : static_cast<uint32_t>(domains.least);
}

std::string describe_hierarchical(Collective collective, std::size_t nbytes, const ShmDomains& domains) {
  if (goes_through_leaders(collective, nbytes))
    return "one rank of each host combines the array there, exchanges it with those of the others, and "
           "passes the result on; "
           "one exchange";
  const uint32_t slices = slices_of(collective, domains);
  if (slices == 1) return "one rank of each host exchanges the array with those of the others";
  return "cut into " + std::to_string(slices) +
         " slices; for each of them one rank of every host exchanges what its host has combined";
}

GroupTable::GroupTable(std::span<const Rank> domain_of, Rank self) {
  std::map<Rank, std::size_t> known;
  for (std::size_t r = 0; r < domain_of.size(); ++r) {
    const auto [at, is_new] = known.try_emplace(domain_of[r], domains_.size());
    if (is_new) domains_.emplace_back();
    std::vector<Rank>& members = domains_[at->second];
    if (static_cast<Rank>(r) == self) {
      own_domain_ = static_cast<Rank>(at->second);
      own_place_ = static_cast<Rank>(members.size());
    }
    members.push_back(static_cast<Rank>(r));
  }
}

ShmDomains GroupTable::shape() const {
  ShmDomains shape{static_cast<Rank>(domains_.size()), static_cast<Rank>(domains_.front().size()), 1};
  for (std::size_t i = 0; i < domains_.size(); ++i) {
    const std::vector<Rank>& members = domains_[i];
    shape.least = std::min(shape.least, static_cast<Rank>(members.size()));
    shape.most = std::max(shape.most, static_cast<Rank>(members.size()));
    for (const Rank rank : members) {
      shape.domain_of.resize(std::max(shape.domain_of.size(), static_cast<std::size_t>(rank) + 1));
      shape.domain_of[static_cast<std::size_t>(rank)] = static_cast<Rank>(i);
    }
  }
  return shape;
}

Rank GroupTable::domain_of(Rank rank) const {
  for (std::size_t i = 0; i < domains_.size(); ++i) {
    if (std::find(domains_[i].begin(), domains_[i].end(), rank) != domains_[i].end())
      return static_cast<Rank>(i);
  }
  return -1;
}

Rank GroupTable::place_here(Rank rank) const {
  const std::vector<Rank>& here = members();
  const auto at = std::find(here.begin(), here.end(), rank);
  return at == here.end() ? -1 : static_cast<Rank>(at - here.begin());
}

std::vector<Rank> GroupTable::inter_group(Rank place) const {
  std::vector<Rank> ranks;
  for (const std::vector<Rank>& members : domains_) ranks.push_back(members[static_cast<std::size_t>(place)]);
  return ranks;
}

}  // namespace pc::shm
