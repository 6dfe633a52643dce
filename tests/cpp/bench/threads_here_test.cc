// Ranks as threads: what went wrong decides the exit code, whichever rank it is.
#include "bench/threads_here.h"

#include <gtest/gtest.h>

#include <vector>

#include "bench/ended.h"

namespace pc::bench {
namespace {

// Ranks that end with these.
Ended run(const std::vector<Status>& ends) {
  return end_of([&] {
    return run_threads_here(static_cast<Rank>(ends.size()),
                            [&](const Place& place) { return ends[static_cast<std::size_t>(place.rank)]; });
  });
}

const Status kGone(Code::kPeerExited, "another rank is gone"), kNoGpu(Code::kUnsupported, "no GPU"),
    kNoMemory(Code::kSystem, "no memory");

TEST(BenchThreadsHere, the_cause_is_told_whichever_rank_has_it) {
  EXPECT_EQ(run({Status::ok(), Status::ok()}).code, 0);
  for (const std::vector<Status>& ends : {std::vector{kGone, kNoMemory}, std::vector{kNoMemory, kGone}}) {
    const Ended ended = run(ends);
    EXPECT_EQ(ended.code, 1);
    EXPECT_EQ(ended.told, "pycollective-bench: no memory\n");
  }
}

TEST(BenchThreadsHere, a_rank_that_fails_is_no_skip_though_another_cannot_measure_here) {
  for (const std::vector<Status>& ends :
       {std::vector{kNoGpu, kNoMemory, kGone}, std::vector{kGone, kNoMemory, kNoGpu}}) {
    const Ended ended = run(ends);
    EXPECT_EQ(ended.code, 1);
    EXPECT_EQ(ended.told, "pycollective-bench: no memory\n");
  }
}

TEST(BenchThreadsHere, what_none_can_measure_here_is_a_skip) {
  for (const std::vector<Status>& ends : {std::vector{kNoGpu, kNoGpu}, std::vector{kGone, kNoGpu}}) {
    const Ended ended = run(ends);
    EXPECT_EQ(ended.code, 77);
    EXPECT_EQ(ended.told, "pycollective-bench: no GPU\n");
  }
}

}  // namespace
}  // namespace pc::bench
