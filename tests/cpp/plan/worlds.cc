#include "plan/worlds.h"

#include "plan/builder.h"

namespace pc {

std::vector<Family> catalogued(Rank sizes, uint32_t splits) {
  std::vector<Family> families;
  for (const Algorithm& algorithm : algorithms()) {
    Family family{std::string(algorithm.name) + "_" + std::string(name_of(algorithm.collective)), {}};
    const bool rooted = is_rooted(algorithm.collective);
    for (Rank size = 1; size <= sizes; ++size) {
      for (Rank root = 0; root < (rooted ? size : 1); ++root) {
        for (uint32_t split = 1; split <= (rooted && algorithm.pipelines != Pipelines::kNot ? splits : 1U);
             ++split) {
          for (const bool even : {true, false}) {
            if (!even && !has_parts(algorithm.collective)) continue;
            if (!algorithm.supports({algorithm.collective, 0, size, root, split, even})) continue;
            family.worlds.push_back(build_all(algorithm, size, root, split, even));
          }
        }
      }
    }
    families.push_back(std::move(family));
  }
  return families;
}

namespace {

// A ring to the right in lane 0 and one to the left in lane 1, each over half of the chunks.
std::vector<Plan> two_rings(Rank n) {
  std::vector<Plan> plans;
  for (Rank self = 0; self < n; ++self) {
    PlanBuilder plan("two_rings", {Collective::kAllreduce, self, n}, static_cast<uint32_t>(2 * n));
    const auto step = [&](uint8_t lane, Rank round, bool last) {
      const Rank way = lane == 0 ? 1 : -1;
      const Rank to = (self + way + n) % n, from = (self - way + n) % n;
      const auto chunk = [&](Rank back) {
        return output(static_cast<uint32_t>(lane * n + (self + 2 * n - way * back) % n));
      };
      plan.lane(lane).send(to, chunk(round - (last ? 1 : 0)));
      if (last) plan.recv(from, chunk(round));
      if (!last) plan.recv_reduce(from, chunk(round + 1), {.dst = 1, .src = round + 1});
    };
    for (const bool last : {false, true}) {
      for (Rank round = 0; round < n - 1; ++round) {
        step(0, round, last);
        step(1, round, last);
      }
    }
    plans.push_back(plan.take());
  }
  return plans;
}

// 0 -> 1 -> 2: chunks that arrive in lane 0 are forwarded in lane 1.
std::vector<Plan> chain_broadcast(uint32_t split) {
  std::vector<Plan> plans;
  for (Rank self = 0; self < 3; ++self) {
    PlanBuilder plan("chain", {Collective::kBroadcast, self, 3, 0, split}, split);
    for (uint32_t c = 0; c < split; ++c) {
      if (self == 0) plan.send(1, output(c));
      if (self == 1) {
        const uint32_t received = plan.lane(0).recv(0, output(c));
        plan.lane(1).after(received).send(2, output(c));
      }
      if (self == 2) plan.lane(1).recv(1, output(c));
    }
    plans.push_back(plan.take());
  }
  return plans;
}

// 2 -> 1 -> 0: lane 1 fills one slot of scratch while lane 0 uses the other.
std::vector<Plan> chain_reduce(uint32_t split) {
  std::vector<Plan> plans;
  for (Rank self = 0; self < 3; ++self) {
    PlanBuilder plan("chain", {Collective::kReduce, self, 3, 0, split}, split, self == 1 ? 2 : 0);
    uint32_t sent[2] = {};
    for (uint32_t c = 0; c < split; ++c) {
      if (self == 0) plan.recv_reduce(1, output(c), {.dst = 1, .src = 2});
      if (self == 1) {
        const uint32_t copied = plan.lane(1).after(sent[c % 2]).copy(input(c), scratch(c % 2, c));
        plan.lane(0).after(copied).recv_reduce(2, scratch(c % 2, c), {.dst = 1, .src = 1});
        sent[c % 2] = plan.send(0, scratch(c % 2, c));
      }
      if (self == 2) plan.send(1, input(c));
    }
    plans.push_back(plan.take());
  }
  return plans;
}

// Two ranks swap inputs in lane 0 and add in lane 1. The sum must wait for both: the operand must
// have arrived, and the input, which is the output if in place, must have been read.
std::vector<Plan> swap_and_add(uint32_t chunks) {
  std::vector<Plan> plans;
  for (Rank self = 0; self < 2; ++self) {
    PlanBuilder plan("swap", {Collective::kAllreduce, self, 2}, chunks, chunks + 1);
    for (uint32_t c = 0; c < chunks; ++c) {
      const uint32_t sent = plan.lane(0).send(1 - self, input(c));
      const uint32_t received = plan.recv(1 - self, scratch(c, c));
      plan.lane(1).after(sent).copy(input(c), scratch(chunks, c));  // has no use but to wait for the send
      plan.after(received).reduce(scratch(c, c), output(c), {.dst = 1, .src = 1});
    }
    plans.push_back(plan.take());
  }
  return plans;
}

Place run(uint32_t first, uint32_t count) { return {Area::kOutput, {first, count}, {first, count}}; }

// Two ranks sum one half each and swap halves. Messages of two chunks.
std::vector<Plan> halves() {
  std::vector<Plan> plans;
  for (Rank self = 0; self < 2; ++self) {
    const Rank peer = 1 - self;
    const Place mine = run(static_cast<uint32_t>(2 * self), 2),
                theirs = run(static_cast<uint32_t>(2 * peer), 2);
    PlanBuilder plan("halves", {Collective::kAllreduce, self, 2}, 4);
    plan.send(peer, theirs);
    plan.recv_reduce(peer, mine, {.dst = 1, .src = 1});
    plan.send(peer, mine);
    plan.recv(peer, theirs);
    plans.push_back(plan.take());
  }
  return plans;
}

}  // namespace

std::vector<Family> uncatalogued() {
  return {{"two_rings", {two_rings(2)}},
          {"chain_broadcast", {chain_broadcast(1), chain_broadcast(3)}},
          {"chain_reduce", {chain_reduce(1), chain_reduce(3)}},
          {"swap_and_add", {swap_and_add(1), swap_and_add(2)}},
          {"halves", {halves()}}};
}

}  // namespace pc
