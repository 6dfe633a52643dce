// Where the ranks of one group are: which of them share memory (a shared-memory domain, most often
// a host), and which role each rank has in its domain.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/request.h"

namespace pc::shm {

// What all ranks of a group know about its domains. With a single domain there is nothing to
// divide.
struct ShmDomains {
  Rank count = 1;
  Rank least = 1, most = 1;          // ranks of the smallest and of the largest domain
  std::vector<Rank> domain_of = {};  // by rank: the number of its domain
  bool worth_it() const { return count > 1 && most > 1; }
  bool even() const { return least == most; }
  bool operator==(const ShmDomains&) const = default;
};

// Returns whether such a call uses shared memory inside the domains and plans between them: where
// that is possible, and not slower than a plan over all ranks. The answer is the same on all ranks.
// `nbytes` is the size of the whole array.
bool is_hierarchical(const Request& request, uint64_t nbytes, const ShmDomains& domains);

// Returns whether a single rank of each domain exchanges the data of its domain with the other
// domains, in one exchange.
bool goes_through_leaders(Collective collective, std::size_t nbytes);

// Returns the number of slices into which the array of a larger call is cut. For each slice one
// rank of every domain takes part in the exchange.
uint32_t slices_of(Collective collective, const ShmDomains& domains);
std::string describe_hierarchical(Collective collective, std::size_t nbytes,
                                  const ShmDomains& domains);  // for users

// Counts the edges of a binomial tree over all ranks that connect different domains. The minimum is
// one for each domain except the root's.
Rank count_tree_edges_between(const ShmDomains& domains, Rank root);

class GroupTable {
 public:
  // `domain_of` has for each rank of the group a number that is unique to its domain.
  GroupTable(std::span<const Rank> domain_of, Rank self);

  ShmDomains shape() const;
  Rank own_domain() const { return own_domain_; }
  Rank own_place() const { return own_place_; }  // in its domain
  const std::vector<Rank>& members() const { return domains_[static_cast<std::size_t>(own_domain_)]; }
  // Both take a rank of the group. place_here() returns the rank's place in this rank's domain, or
  // -1 if it is in another domain.
  Rank domain_of(Rank rank) const;
  Rank place_here(Rank rank) const;
  std::vector<Rank> inter_group(Rank place) const;  // the rank with that place in each domain, by domain

 private:
  // ordered by their first ranks; each holds ranks of the group, in order
  std::vector<std::vector<Rank>> domains_;
  Rank own_domain_ = 0, own_place_ = 0;
};

}  // namespace pc::shm
