// Both paths are tried, another path replaces the ring only if it is clearly faster, and a change
// of speed is detected.
#include "engine/shm/copy_path_tuner.h"

#include <gtest/gtest.h>

namespace pc::shm {
namespace {

using Times = std::array<int, kCopyPathCount>;  // in microseconds
constexpr CopyPathTuner::Kind kWhat = {Collective::kAllgather, false, 1 << 20};

// Returns how many of `calls` calls take each path.
Times make(CopyPathTuner& copy_paths, int calls, const Times& take, const CopyPathTuner::Kind& what = kWhat) {
  Times count = {};
  for (int i = 0; i < calls; ++i) {
    const auto [path, on_trial] = copy_paths.next(what);
    const std::size_t at = static_cast<std::size_t>(path);
    if (on_trial) copy_paths.took(path, what, std::chrono::microseconds(take[at]));
    ++count[at];
  }
  return count;
}

TEST(CopyPathTuner, the_ring_is_left_for_what_is_clearly_faster) {
  CopyPathTuner cma_is_faster, cma_is_slower, they_are_close;
  EXPECT_GT(make(cma_is_faster, 1000, {100, 50})[1], 950);
  EXPECT_GT(make(cma_is_slower, 1000, {50, 100})[0], 950);
  EXPECT_GT(make(they_are_close, 1000, {100, 90})[0], 950);
}

TEST(CopyPathTuner, both_are_tried_but_not_in_the_first_call) {
  CopyPathTuner copy_paths;
  EXPECT_FALSE(copy_paths.next(kWhat).on_trial);  // its arrays have not been touched before
  EXPECT_EQ(make(copy_paths, 4, {50, 100}), (Times{2, 2}));
  EXPECT_EQ(make(copy_paths, 200, {50, 100})[1], 0);
}

TEST(CopyPathTuner, one_disturbed_call_changes_nothing) {
  CopyPathTuner copy_paths;
  make(copy_paths, 100, {100, 50});
  copy_paths.took(CopyPath::kPrivateMemory, kWhat, std::chrono::seconds(5));
  EXPECT_EQ(make(copy_paths, 10, {100, 50})[1], 10);
}

TEST(CopyPathTuner, it_changes_over_when_the_machine_does) {
  CopyPathTuner copy_paths;
  make(copy_paths, 100, {100, 50});
  make(copy_paths, 10'000, {100, 200});
  EXPECT_GT(make(copy_paths, 100, {100, 200})[0], 95);
}

TEST(CopyPathTuner, sizes_collectives_and_roles_are_apart) {
  CopyPathTuner copy_paths;
  make(copy_paths, 100, {100, 50});
  for (const CopyPathTuner::Kind& other : {CopyPathTuner::Kind{kWhat.collective, false, 64 * kWhat.nbytes},
                                           CopyPathTuner::Kind{Collective::kAlltoall, false, kWhat.nbytes},
                                           CopyPathTuner::Kind{kWhat.collective, true, kWhat.nbytes}}) {
    EXPECT_FALSE(copy_paths.next(other).on_trial);  // the first call
    EXPECT_TRUE(copy_paths.next(other).on_trial);
  }
}

TEST(CopyPathTuner, a_path_that_is_not_possible_is_not_chosen) {
  CopyPathTuner copy_paths;
  for (int i = 0; i < 100; ++i) {
    const auto [path, on_trial] = copy_paths.next(kWhat);
    if (on_trial && path == CopyPath::kRing) copy_paths.took(path, kWhat, std::chrono::microseconds(50));
    EXPECT_TRUE(on_trial || path == CopyPath::kRing);
  }
}

TEST(CopyPathTuner, a_trial_is_two_calls_because_the_first_is_slow) {
  CopyPathTuner copy_paths;
  CopyPath last = CopyPath::kRing;
  int in_a_row = 0;
  // the kernel's copy is the fastest, but not in the first call that uses it
  for (int i = 0; i < 1000; ++i) {
    const auto [path, on_trial] = copy_paths.next(kWhat);
    in_a_row = path == last ? in_a_row + 1 : 1;
    last = path;
    const int took = path != CopyPath::kPrivateMemory ? 50 : in_a_row == 1 ? 200 : 30;
    if (on_trial) copy_paths.took(path, kWhat, std::chrono::microseconds(took));
  }
  EXPECT_GT(make(copy_paths, 100, {50, 30})[1], 90);
}

}  // namespace
}  // namespace pc::shm
