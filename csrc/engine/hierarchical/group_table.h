// Where the ranks of one group are: which of them share memory with each other (a shared-memory domain, most
// often a host), and who of each domain does what.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/request.h"

namespace pc::shm {

// What all ranks of a group know about its domains. One: nothing to divide.
struct ShmDomains {
  Rank count = 1;
  Rank least = 1, most = 1;          // ranks of one
  std::vector<Rank> domain_of = {};  // by rank: the number of its domain
  bool worth_it() const { return count > 1 && most > 1; }
  bool even() const { return least == most; }
  bool operator==(const ShmDomains&) const = default;
};

// Whether such a call goes through shared memory inside the domains and through plans between them: where
// that is possible, and not slower than a plan over all ranks. The same on all ranks. `nbytes`: of the whole
// array.
bool is_hierarchical(const Request& request, uint64_t nbytes, const ShmDomains& domains);

// Whether one rank of each domain speaks for it, in one exchange.
bool goes_through_leaders(Collective collective, std::size_t nbytes);

// Into how many parts the array of a larger one is cut, each for one rank of every domain.
uint32_t slices_of(Collective collective, const ShmDomains& domains);
std::string describe_hierarchical(Collective collective, std::size_t nbytes,
                                  const ShmDomains& domains);  // for people

// How often what a binomial tree over all ranks carries goes from one domain to another. At best once for
// each but the root's.
Rank count_tree_edges_between(const ShmDomains& domains, Rank root);

class GroupTable {
 public:
  // `domain_of`: of each rank of the group, any number that only its domain has.
  GroupTable(std::span<const Rank> domain_of, Rank self);

  ShmDomains shape() const;
  Rank own_domain() const { return own_domain_; }
  Rank own_place() const { return own_place_; }  // in its domain
  const std::vector<Rank>& members() const { return domains_[static_cast<std::size_t>(own_domain_)]; }
  // Of a rank of the group: -1 as a place in this rank's domain if it is in another.
  Rank domain_of(Rank rank) const;
  Rank place_here(Rank rank) const;
  std::vector<Rank> inter_group(
      Rank place) const;  // one rank of each domain, by domain: the one with that place

 private:
  std::vector<std::vector<Rank>> domains_;  // by their first ranks; ranks of the group, in order
  Rank own_domain_ = 0, own_place_ = 0;
};

}  // namespace pc::shm
