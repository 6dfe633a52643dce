// Which ranks of one group share memory, and which role each rank has among them. The ranks that
// share memory form a shared-memory domain, most often a host.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/request.h"

namespace pc::shm {

// What all ranks of a group know about its domains.
struct ShmDomains {
  Rank count = 1;
  Rank least = 1, most = 1;          // number of ranks of the smallest and of the largest domain
  std::vector<Rank> domain_of = {};  // by rank: the index of its domain
  bool worth_it() const { return count > 1 && most > 1; }
  bool even() const { return least == most; }
  bool operator==(const ShmDomains&) const = default;
};

// Returns true if the call uses shared memory inside the domains and plans between them, because
// this is possible and not slower than a plan over all ranks. The result is the same on all ranks.
// `nbytes` is the size of the whole array.
bool is_hierarchical(const Request& request, uint64_t nbytes, const ShmDomains& domains);

// Returns whether a single rank of each domain exchanges the data of its domain with the other
// domains, in one exchange.
bool goes_through_leaders(Collective collective, std::size_t nbytes);

// Returns the number of slices into which the array is cut if goes_through_leaders() is false. For
// each slice, one rank of every domain takes part in the exchange.
uint32_t slices_of(Collective collective, const ShmDomains& domains);
// Returns a text for users about how a hierarchical call of this size runs.
std::string describe_hierarchical(Collective collective, std::size_t nbytes, const ShmDomains& domains);

// Counts the edges between different domains in a binomial tree over all ranks with that root. The
// minimum is one for each domain except the root's.
Rank count_tree_edges_between(const ShmDomains& domains, Rank root);

class GroupTable {
 public:
  // `domain_of` has for each rank of the group a number that is unique to the domain of the rank.
  GroupTable(std::span<const Rank> domain_of, Rank self);

  ShmDomains shape() const;
  Rank own_domain() const { return own_domain_; }
  Rank own_place() const { return own_place_; }  // index of this rank in its domain
  const std::vector<Rank>& members() const { return domains_[static_cast<std::size_t>(own_domain_)]; }
  // `rank` is a rank of the group. place_here() returns its index in this rank's domain, or -1 if
  // it is in another domain.
  Rank domain_of(Rank rank) const;
  Rank place_here(Rank rank) const;
  std::vector<Rank> inter_group(Rank place) const;  // for each domain, its rank with index `place`

 private:
  // the ranks of each domain in ascending order; the domains are ordered by their first ranks
  std::vector<std::vector<Rank>> domains_;
  Rank own_domain_ = 0, own_place_ = 0;
};

}  // namespace pc::shm
