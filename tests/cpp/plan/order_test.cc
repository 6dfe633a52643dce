// In which order do algorithms sum? Plans run on symbols instead of numbers: a sum is a word that
// depends on its two operands, in either order, and so on the whole tree below them. Equal words
// mean the same tree and the same bits.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "plan/analysis.h"
#include "plan/contracts.h"
#include "plan/worlds.h"

namespace pc {
namespace {

uint64_t scrambled(uint64_t x) {  // splitmix64's finalizer
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
uint64_t number_of(Rank rank) { return scrambled(static_cast<uint64_t>(rank)); }
uint64_t sum(uint64_t a, uint64_t b) { return scrambled(a + b); }  // for three operands the order matters

// Every rank's output at the end, where each rank contributes one number in all elements.
class Symbols {
 public:
  explicit Symbols(const std::vector<Plan>& plans) : plans_(plans) {
    for (const Plan& plan : plans) {
      for (const Area area : {Area::kInput, Area::kOutput}) {
        for (uint32_t chunk = 0; chunk < plan.chunks; ++chunk)
          at({plan.shape.rank, area, chunk}) = number_of(plan.shape.rank);
      }
    }
    const Result<Schedule> schedule = make_schedule(plans);
    EXPECT_TRUE(schedule.is_ok()) << schedule.status().to_string();
    if (!schedule.is_ok()) return;
    for (const StepRef step : schedule.value().order) run(step, schedule.value());
  }
  std::set<uint64_t> outputs(Rank rank) {
    const Plan& plan = plans_[static_cast<std::size_t>(rank)];
    const Held own = held(plan.shape, plan.chunks, Area::kOutput);
    std::set<uint64_t> words;
    for (uint32_t place = 0; place < own.count; ++place)
      words.insert(at({rank, Area::kOutput, own.name(place)}));
    return words;
  }

 private:
  using Place = std::tuple<Rank, Area, uint32_t>;
  uint64_t& at(const Place& place) { return memory_[place]; }

  void run(StepRef ref, const Schedule& schedule) {
    const Step& step = plans_[static_cast<std::size_t>(ref.rank)].steps[ref.index];
    if (step.kind == StepKind::kSend) {
      for (uint32_t i = 0; i < step.src.count; ++i)
        sent_[{ref.rank, ref.index}].push_back(at({ref.rank, step.src_area, step.src.first + i}));
      return;
    }
    for (uint32_t i = 0; i < step.dst.count; ++i) {
      uint64_t& to = at({ref.rank, step.dst_area, step.dst.first + i});
      const uint64_t operand =
          is_receive(step.kind)
              ? sent_[{step.peer, schedule.partner[static_cast<std::size_t>(ref.rank)][ref.index]}][i]
              : at({ref.rank, step.src_area, step.src.first + i});
      to = is_reduction(step.kind) ? sum(to, operand) : operand;
    }
  }

  const std::vector<Plan>& plans_;
  std::map<Place, uint64_t> memory_;
  std::map<std::pair<Rank, uint32_t>, std::vector<uint64_t>> sent_;  // by sender and step
};

using Call =
    std::tuple<Collective, Rank, Rank, Rank>;  // size, root, and for a scan the rank that gets the result

void note_orders(const Algorithm& algorithm, const Shape& shape, std::map<Call, std::set<uint64_t>>& orders) {
  const std::vector<Plan> plans = build_all(algorithm, shape.size, shape.root, shape.split, shape.even);
  Symbols symbols(plans);
  const Collective collective =  // these two guarantee the same bits
      shape.collective == Collective::kReduceScatter ? Collective::kAllreduce : shape.collective;
  for (Rank rank = 0; rank < shape.size; ++rank)
    orders[{collective, shape.size, shape.root, is_scan(collective) ? rank : 0}].merge(symbols.outputs(rank));
}

std::map<Call, std::set<uint64_t>> orders_of(const Algorithm& algorithm, Rank size) {
  std::map<Call, std::set<uint64_t>> orders;
  for (const uint32_t split : {1U, 3U}) {
    for (const Rank root : {0, size / 2}) {
      for (const bool even : {true, false}) {
        const Shape shape{algorithm.collective, 0, size, root, split, even};
        if (root != 0 && !is_rooted(algorithm.collective)) continue;
        if (split > 1 && algorithm.pipelines == Pipelines::kNot) continue;
        if (algorithm.supports(shape)) note_orders(algorithm, shape, orders);
      }
    }
  }
  return orders;
}

TEST(FixedOrder, every_element_has_one_tree_of_sums_whatever_the_algorithm_chunk_and_rank) {
  for (const Rank size : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 31, 32}) {
    std::map<Call, std::set<uint64_t>> orders;
    for (const Algorithm& algorithm : algorithms()) {
      if (!algorithm.fixed_order) continue;
      for (auto& [call, words] : orders_of(algorithm, size)) {
        orders[call].insert(words.begin(), words.end());
        const Collective collective = std::get<0>(call);
        const bool has = !is_scan(collective) || has_output({collective, std::get<3>(call), size});
        EXPECT_EQ(orders[call].size(), has ? 1U : 0U)
            << algorithm.name << " " << name_of(algorithm.collective) << " of " << size << " ranks, root "
            << std::get<2>(call);
      }
    }
  }
}

TEST(FixedOrder, this_test_notices_algorithms_that_have_none) {
  for (const auto& [collective, name] : {std::pair{Collective::kAllreduce, "ring"},
                                         {Collective::kAllreduce, "double_binary_tree"},
                                         {Collective::kReduceScatter, "ring"},
                                         {Collective::kReduceScatter, "pairwise"}}) {
    const Algorithm& algorithm = *find_algorithm(collective, name);
    EXPECT_FALSE(algorithm.fixed_order);
    EXPECT_GT(orders_of(algorithm, 5).begin()->second.size(), 1U) << name;
  }
}

TEST(FixedOrder, there_is_an_algorithm_for_every_collective_that_reduces) {
  for (int c = 0; c < kCollectiveCount; ++c) {
    if (!reduces(static_cast<Collective>(c))) continue;
    bool found = false;
    for (const Algorithm& algorithm : algorithms())
      found |= algorithm.fixed_order && algorithm.collective == static_cast<Collective>(c);
    EXPECT_TRUE(found) << name_of(static_cast<Collective>(c));
  }
}

}  // namespace
}  // namespace pc
