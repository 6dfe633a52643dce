// Runs plans in every order that a machine could, by brute force. It judges check() and shares only
// the contracts with it: no happens-before, no matching, no schedule.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "plan/plan.h"

namespace pc {

struct ExploreOptions {
  // False: sends are read at any moment after they were posted, and are complete then (sockets, and
  // slower). True: they are read once the receive is posted, and complete when it completes
  // (zero-copy, rendezvous).
  bool rendezvous = false;
  bool in_place = true;  // input and output are the same memory where a rank has both
  // Takes a transition with which no later one can interfere immediately and alone (a persistent
  // set of one). The same ends are reached through fewer states.
  bool reduced = true;
  std::size_t max_states = 2'000'000;
};

struct Exploration {
  std::string bad;  // empty if in every order all ranks end, with the contract's outputs and right weights
  std::size_t states = 0;
};

// The chunks of a message are read and delivered one by one, in any order.
Exploration explore(std::span<const Plan> plans, const ExploreOptions& options);

}  // namespace pc
