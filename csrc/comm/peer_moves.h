// What each rank does in a collective whose ranks reach each other's arrays: a pure function. Between two barriers every rank
// makes its moves, in any order among the ranks.
//
//   reductions are cut by rank: rank r reduces the r-th piece of all inputs, in the order of ranks, and writes it wherever it is
//   wanted, so every element is read once, written once per output, and has the same bits on all ranks
//
//       in 0  [ a | b | c | d ]     rank 0 reduces all a's, rank 1 all b's, ...        out 0  [ A | B | C | D ]
//       in 1  [ a | b | c | d ]                                                        out 1  [ A | B | C | D ]
//       ...
//
//   parts are written by the rank that has them; what one rank has for all is copied by all, a piece each
//
// In place is fine: what a rank writes into another's input is what nobody else reads. A scan goes from the last rank down.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/request.h"

namespace pc {

// One rank's arrays, where this rank reaches them. Null: it has none.
struct PeerArrays {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::span<const uint64_t> counts = {}, recv_counts = {};  // of an alltoall with uneven parts, its own
};

struct PeerMove {
  std::vector<const std::byte*> from;  // several, or one: reduced in this order. Else one: copied
  std::vector<std::byte*> to;          // all get the same
  std::size_t count = 0;               // elements
  bool reduces = false;
};

// `request` has been checked, and is the same on all ranks; `arrays` by rank.
std::vector<PeerMove> peer_moves(const Request& request, Rank rank, std::span<const PeerArrays> arrays);

}  // namespace pc
