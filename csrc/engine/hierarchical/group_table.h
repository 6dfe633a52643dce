// Where the ranks of one group are: which of them share memory with each other (an island, most often a host), and who of
// each island does what.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/request.h"

namespace pc::shm {

// What all ranks of a group know about its islands. One: nothing to divide.
struct Islands {
  Rank count = 1;
  Rank least = 1, most = 1;          // ranks of one
  std::vector<Rank> island_of = {};  // by rank: the number of its island
  bool worth_it() const { return count > 1 && most > 1; }
  bool even() const { return least == most; }
  bool operator==(const Islands&) const = default;
};

// Whether such a call goes through shared memory inside the islands and through plans between them: where that is possible, and
// not slower than a plan over all ranks. The same on all ranks. `nbytes`: of the whole array.
bool goes_by_islands(const Request& request, uint64_t nbytes, const Islands& islands);

// Whether one rank of each island speaks for it, in one exchange.
bool goes_through_leaders(Collective collective, std::size_t nbytes);

// Into how many parts the array of a larger one is cut, each for one rank of every island.
uint32_t slices_of(Collective collective, const Islands& islands);
std::string describe_by_islands(Collective collective, std::size_t nbytes,
                                const Islands& islands);  // for people

// How often what a binomial tree over all ranks carries goes from one island to another. At best once for each but the root's.
Rank crossings_of_tree(const Islands& islands, Rank root);

class GroupTable {
 public:
  // `island_of`: of each rank of the group, any number that only its island has.
  GroupTable(std::span<const Rank> island_of, Rank self);

  Islands shape() const;
  Rank own_island() const { return own_island_; }
  Rank own_place() const { return own_place_; }  // in its island
  const std::vector<Rank>& members() const { return islands_[static_cast<std::size_t>(own_island_)]; }
  // Of a rank of the group: -1 as a place in this rank's island if it is in another.
  Rank island_of(Rank rank) const;
  Rank place_here(Rank rank) const;
  std::vector<Rank> column(Rank place) const;  // one rank of each island, by island: the one with that place

 private:
  std::vector<std::vector<Rank>> islands_;  // by their first ranks; ranks of the group, in order
  Rank own_island_ = 0, own_place_ = 0;
};

}  // namespace pc::shm
