//   Idea     Ranks that differ in bit k swap halves: each sends one half of the chunks that it
//            still reduces and adds what it receives to the other half (reduce-scatter). At the end
//            each rank has one chunk of the whole sum. The same swaps backwards, without adding,
//            spread the chunks (all-gather). Let p be the largest power of two <= n. An extra rank
//            r >= p only sends its contribution to rank r - p before the swaps, and receives the
//            result after them.
//   Cost     2 log2(p) rounds, 2 more if n is no power of two. Each of the p ranks sends 2(p-1)/p
//            of the array, as little as a ring. An extra rank sends the whole array once; rank
//            r - p sends it back, in addition to its own chunks. No scratch.
//   n = 4    halves of c0..c3:  round 0   0 <-> 1   0 keeps c0 c1, 1 keeps c2 c3; so do 2 and 3
//                               round 1   0 <-> 2   0 keeps c0, 2 keeps c1; 1 and 3: c2, c3
//                               round 2   0 <-> 2   round 3   0 <-> 1: the finished chunks go back
//   Source   R. Rabenseifner, Optimization of collective reduction operations, ICCS 2004.
//   Limits   For arrays of middle size: fewer rounds than a ring, less data than recursive
//            doubling. It is not pipelined. It sums every element in the order of recursive
//            doubling, near ranks first, so both algorithms give the same bits.
#include <algorithm>
#include <bit>

#include "plan/builder.h"

namespace pc {

Plan rabenseifner_allreduce(const Shape& shape) {
  const Rank power = static_cast<Rank>(std::bit_floor(static_cast<uint32_t>(shape.size)));
  const Rank extra = shape.size - power;  // number of extra ranks
  const Rank self = shape.rank;
  const Chunks all = {0, static_cast<uint32_t>(power)};

  PlanBuilder plan("rabenseifner", shape, all.count);
  if (self >= power) {
    plan.send(self - power, outputs(all));
    plan.recv(self - power, outputs(all));
    return plan.take();
  }
  if (self < extra) plan.recv_reduce(self + power, outputs(all), {.dst = 1, .src = 1});
  Chunks mine = all;
  for (Rank distance = 1; distance < power; distance *= 2) {
    const auto held = [&](Rank rank) {  // number of contributions, as in recursive_doubling_allreduce.cc
      return distance + std::clamp(extra - (rank & ~(distance - 1)), 0, distance);
    };
    const Rank peer = self ^ distance;
    const uint32_t half = mine.count / 2;
    const Chunks lower = {mine.first, half}, upper = {mine.first + half, half};
    mine = (self & distance) == 0 ? lower : upper;
    plan.send(peer, outputs(mine == lower ? upper : lower));
    plan.recv_reduce(peer, outputs(mine), {.dst = held(self), .src = held(peer)});
  }
  for (Rank distance = power / 2; distance > 0; distance /= 2) {
    const Rank peer = self ^ distance;
    const bool is_lower = (self & distance) == 0;
    const Chunks theirs = {is_lower ? mine.first + mine.count : mine.first - mine.count, mine.count};
    plan.send(peer, outputs(mine));
    plan.recv(peer, outputs(theirs));
    mine = {std::min(mine.first, theirs.first), 2 * mine.count};
  }
  if (self < extra) plan.send(self + power, outputs(all));
  return plan.take();
}

}  // namespace pc
