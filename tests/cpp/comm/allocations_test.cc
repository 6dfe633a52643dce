// A blocking collective allocates nothing once the first calls have filled the pools.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string>
#include <tuple>
#include <vector>

#include "mixture.h"

// A sanitizer has an operator new of its own, with checks that this one would disable in the whole
// program.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

// Counts only in the thread that makes a call: allocations of other threads are not part of the
// call.
thread_local bool counts_allocations = false;
thread_local uint64_t allocations = 0;

void* allocate(std::size_t nbytes, std::size_t alignment) {
  if (counts_allocations) ++allocations;
  void* const memory = alignment == 0
                           ? std::malloc(std::max<std::size_t>(nbytes, 1))
                           : std::aligned_alloc(alignment, (nbytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// The other forms call these. They are not inline: gcc would compare the free() in them with the
// new of their callers.
void* operator new(std::size_t nbytes) { return allocate(nbytes, 0); }
void* operator new(std::size_t nbytes, std::align_val_t alignment) {
  return allocate(nbytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace pc::testing {
namespace {

constexpr int kWarmUps = 100;
struct WorldKind {
  Over over;
  Rank size;
};
struct CallKind {
  Collective collective;
  std::size_t count;
  int calls;
};

class Allocations : public ::testing::TestWithParam<std::tuple<WorldKind, CallKind>> {};

// Counts the calls of this rank that have allocated.
Status count_calls_that_allocate(Communicator& group, const CallKind& kind, int& count) {
  const std::size_t ranks = static_cast<std::size_t>(group.size());
  std::vector<float> in(kind.count, 1.0F);
  std::vector<float> out(kind.collective == Collective::kAllgather ? kind.count * ranks : kind.count);
  Request request = request_of(kind.collective, in, out, 0);
  if (kind.collective == Collective::kBroadcast && group.rank() != 0) request.in = {};
  for (int call = 0; call < kWarmUps + kind.calls; ++call) {
    allocations = 0;
    counts_allocations = true;
    const Status made = group.run(request);
    counts_allocations = false;
    PC_TRY(made);
    if (call == 0 && allocations == 0) return wrong("the first call makes what the others use again");
    if (call >= kWarmUps && allocations != 0) ++count;
    // A root does not wait for the other ranks: data that they have not taken yet would fill the
    // memory of its peers.
    if (kind.collective == Collective::kBroadcast) PC_TRY(group.run(Request{}));
  }
  return Status::ok();
}

TEST_P(Allocations, are_not_made_by_a_blocking_collective) {
  const auto& [world, kind] = GetParam();
  std::vector<int> counts(static_cast<std::size_t>(world.size));
  const Outcomes outcomes = run_world({.over = world.over, .size = world.size, .timeout_s = kManyCallsS},
                                      [&counts, &kind = kind](Runtime&, Communicator& group) {
                                        return count_calls_that_allocate(
                                            group, kind, counts[static_cast<std::size_t>(group.rank())]);
                                      });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  // Rare events allocate: a pool grows when a rank is further ahead than before, and a rank that
  // waits long requests reports from other ranks (wait_watch.h), more often on a busy machine. An
  // allocation of the call itself shows in every call.
  for (const int count : counts) EXPECT_LT(count, kind.calls / 2);
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<WorldKind, CallKind>>& each) {
  const auto& [world, kind] = each.param;
  return name_of(world.over) + "_" + std::to_string(world.size) + "_" +
         std::string(pc::name_of(kind.collective)) + "_" + std::to_string(kind.count);
}

constexpr CallKind kSmallCalls[] = {{Collective::kAllreduce, 2, 300},
                                    {Collective::kBroadcast, 2, 300},
                                    {Collective::kAllgather, 2, 300},
                                    {Collective::kBarrier, 0, 300}};
constexpr CallKind kLargeCalls[] = {{Collective::kAllreduce, 100'000, 100},
                                    {Collective::kBroadcast, 100'000, 100},
                                    {Collective::kAllgather, 100'000, 100}};
constexpr WorldKind kWorlds[] = {{Over::kTcp, 2},    {Over::kTcp, 4},    {Over::kShared, 2},
                                 {Over::kShared, 4}, {Over::kInproc, 2}, {Over::kInproc, 4}};
constexpr WorldKind kDomainWorlds[] = {{Over::kDomains, 3}, {Over::kDomains, 4}};

INSTANTIATE_TEST_SUITE_P(Small, Allocations,
                         ::testing::Combine(::testing::ValuesIn(kWorlds), ::testing::ValuesIn(kSmallCalls)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Large, Allocations,
                         ::testing::Combine(::testing::ValuesIn(kWorlds), ::testing::ValuesIn(kLargeCalls)),
                         name_of);
// Small calls only: in large calls the hosts exchange rounds in messages that arrive unrequested,
// and an early message is kept in newly allocated memory.
INSTANTIATE_TEST_SUITE_P(SmallDomains, Allocations,
                         ::testing::Combine(::testing::ValuesIn(kDomainWorlds),
                                            ::testing::ValuesIn(kSmallCalls)),
                         name_of);

}  // namespace
}  // namespace pc::testing

#endif
