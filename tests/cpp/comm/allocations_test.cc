// A blocking collective allocates nothing, once its pools are filled: what it needs has been kept from earlier calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "mixture.h"

// The sanitizers bring an operator new of their own, which finds what this one would hide.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

// Of this thread. A call may also run code of other threads (listeners, for example), whose allocations are not the caller's.
thread_local bool counts_allocations = false;
thread_local uint64_t allocations = 0;

void* allocate(std::size_t nbytes, std::size_t alignment) noexcept {
  if (counts_allocations) ++allocations;
  if (alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) return std::malloc(std::max<std::size_t>(nbytes, 1));
  return std::aligned_alloc(alignment, (nbytes + alignment - 1) / alignment * alignment);
}
void* allocate_or_throw(std::size_t nbytes, std::size_t alignment) {
  if (void* const memory = allocate(nbytes, alignment); memory != nullptr) return memory;
  throw std::bad_alloc();
}

}  // namespace

// The forms that are not here call these.
void* operator new(std::size_t nbytes) { return allocate_or_throw(nbytes, 0); }
void* operator new(std::size_t nbytes, std::align_val_t alignment) {
  return allocate_or_throw(nbytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace pc::testing {
namespace {

constexpr int kWarmUps = 20, kCounted = 1000;

struct CountedWorld {
  Over over;
  Rank size;
};

class Allocations : public ::testing::TestWithParam<CountedWorld> {
 protected:
  // How many of the counted calls have allocated, on the rank where most have.
  Status count(Collective collective, std::size_t count, std::vector<int>& by_rank) {
    const WorldOptions world = {.over = GetParam().over, .size = GetParam().size, .timeout_s = kManyCallsS};
    const Outcomes outcomes = run_world(world, [&](Runtime&, Communicator& group) -> Status {
      const bool gathers = collective == Collective::kAllgather;
      std::vector<float> in(count, 1.0F),
          out(gathers ? count * static_cast<std::size_t>(group.size()) : count);
      Request request = request_of(collective, in, out, 0);
      if (collective == Collective::kBarrier) request = Request{};
      if (collective == Collective::kBroadcast && group.rank() != 0) request.in = {};
      int calls = 0;
      for (int call = 0; call < kWarmUps + kCounted; ++call) {
        allocations = 0;
        counts_allocations = call >= kWarmUps;
        const Status made = group.run(request);
        counts_allocations = false;
        PC_TRY(made);
        calls += allocations != 0 ? 1 : 0;
      }
      by_rank[static_cast<std::size_t>(group.rank())] = calls;
      return Status::ok();
    });
    return all_ok(outcomes) ? Status::ok() : Status(Code::kInternal, text_of(outcomes));
  }
};

INSTANTIATE_TEST_SUITE_P(Worlds, Allocations,
                         ::testing::Values(CountedWorld{Over::kTcp, 2}, CountedWorld{Over::kTcp, 4},
                                           CountedWorld{Over::kShared, 2}, CountedWorld{Over::kShared, 4},
                                           CountedWorld{Over::kInproc, 2}, CountedWorld{Over::kInproc, 4},
                                           CountedWorld{Over::kIslands, 3}, CountedWorld{Over::kIslands, 4}),
                         [](const ::testing::TestParamInfo<CountedWorld>& each) {
                           return pc::testing::name_of(each.param.over) + "_" +
                                  std::to_string(each.param.size);
                         });

TEST_P(Allocations, a_blocking_collective_makes_none) {
  for (const Collective collective :
       {Collective::kAllreduce, Collective::kBroadcast, Collective::kAllgather, Collective::kBarrier}) {
    for (const std::size_t elements : {2UL, 100'000UL}) {
      std::vector<int> by_rank(static_cast<std::size_t>(GetParam().size));
      const Status ended = count(collective, elements, by_rank);
      ASSERT_TRUE(ended.is_ok()) << ended.to_string();
      std::string text;
      for (int each : by_rank) text += " " + std::to_string(each);
      printf("%s_%d %s %zu:%s\n", pc::testing::name_of(GetParam().over).c_str(), GetParam().size,
             std::string(pc::name_of(collective)).c_str(), elements, text.c_str());
    }
  }
}

}  // namespace
}  // namespace pc::testing

#endif
