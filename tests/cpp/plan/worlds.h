// Plans of all ranks of one call, and the calls that the tests run through.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "plan/contracts.h"

namespace pc {

inline std::vector<Plan> build_all(const Algorithm& algorithm, Rank size, Rank root = 0, uint32_t split = 1,
                                   bool even = true) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < size; ++rank) {
    plans.push_back(algorithm.build({algorithm.collective, rank, size, root, split, even}));
  }
  return plans;
}

// For example "ring_allreduce", for the names of tests.
inline std::string title_of(const Algorithm& algorithm) {
  return std::string(algorithm.name) + "_" + std::string(name_of(algorithm.collective));
}

// Plans that form one test, and its name.
struct Family {
  std::string name;
  std::vector<std::vector<Plan>> worlds;
  friend std::ostream& operator<<(std::ostream& out, const Family& family) { return out << family.name; }
};
// Returns, for every catalogued algorithm, all worlds of up to `sizes` ranks, with every root and
// up to `splits` chunks.
std::vector<Family> catalogued(Rank sizes, uint32_t splits);
// Returns plans with features that the catalog does not use, which check() must support as well:
// lanes, `after` between them, runs of chunks.
std::vector<Family> uncatalogued();

}  // namespace pc
