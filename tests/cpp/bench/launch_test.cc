// Ranks as processes and as threads: the launcher waits for all of them, and the first failure
// decides the exit code and is printed last.
#include "bench/launch.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>
#include <vector>

#include "base/fd.h"
#include "bench/ended.h"

namespace pc::bench {
namespace {

Ended run_two(const std::function<Status(const Role&)>& run) {
  return end_of([&] {
    const pid_t parent = ::getpid();
    const int code = launch_processes(2, run);
    if (::getpid() != parent) ::_exit(code);
    return code;
  });
}

TEST(BenchProcesses, every_rank_learns_its_place_and_the_store) {
  const Ended ended = run_two([](const Role& role) {
    const bool right = role.size == 2 && role.stores.size() == 1 && role.stores[0].starts_with("127.0.0.1:");
    return right ? Status::ok() : Status(Code::kInternal, "wrong");
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.standard_error, "");
}

TEST(BenchProcesses, a_rank_that_fails_ends_the_others_and_is_reported) {
  const Ended ended = run_two([](const Role& role) {
    if (role.rank == 1) return Status(Code::kTimeout, "too late");
    for (;;) ::pause();
  });
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(ended.standard_error, "pycollective-bench: rank 1 failed first: too late\n");
}

TEST(BenchProcesses, a_rank_that_a_signal_kills_is_reported) {
  const Ended ended = run_two([](const Role& role) {
    if (role.rank == 1) ::raise(SIGKILL);
    for (;;) ::pause();
    return Status::ok();
  });
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.standard_error.find("rank 1 failed first: process "), std::string::npos)
      << ended.standard_error;
  EXPECT_NE(ended.standard_error.find("was killed by signal 9"), std::string::npos) << ended.standard_error;
}

// Returns when the process has ended.
void wait_for_the_end_of(pid_t pid) {
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd its_end = {process.get(), POLLIN, 0};
  (void)::poll(&its_end, 1, process.valid() ? -1 : 0);  // no such process: it has ended
}

// This rank ends with `first`. When its process has exited the other rank ends with `second`.
Ended run_one_after_the_other(Rank rank, const Status& first, const Status& second) {
  std::array<int, 2> ends = {};
  EXPECT_EQ(::pipe(ends.data()), 0);
  const Fd from_first(ends[0]), to_second(ends[1]);
  return run_two([&](const Role& role) {
    pid_t pid = ::getpid();
    if (role.rank == rank) {
      const bool written = ::write(to_second.get(), &pid, sizeof pid) == sizeof pid;
      return written ? first : Status(Code::kInternal, "write");
    }
    if (::read(from_first.get(), &pid, sizeof pid) != sizeof pid) return Status(Code::kInternal, "read");
    wait_for_the_end_of(pid);
    return second;
  });
}

TEST(BenchProcesses, a_rank_that_reports_the_end_of_another_did_not_fail_first) {
  const Ended ended = run_one_after_the_other(0, Status(Code::kPeerExited, "rank 1 is gone"),
                                              Status(Code::kSystem, "no memory"));
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(ended.standard_error,
            "pycollective-bench: rank 0: rank 1 is gone\n"
            "pycollective-bench: rank 1 failed first: no memory\n");
}

TEST(BenchProcesses, a_rank_that_fails_is_no_skip_though_another_cannot_measure_here) {
  for (const Rank skips : {0, 1}) {
    const Ended ended = run_one_after_the_other(skips, Status(Code::kUnsupported, "no GPU"),
                                                Status(Code::kSystem, "no memory"));
    EXPECT_EQ(ended.code, 1);
    EXPECT_EQ(ended.standard_error, "pycollective-bench: rank " + std::to_string(skips) +
                                        ": no GPU\n"
                                        "pycollective-bench: rank " +
                                        std::to_string(1 - skips) + " failed first: no memory\n");
  }
}

TEST(BenchProcesses, an_unsupported_benchmark_is_skipped_even_if_a_rank_only_sees_its_peer_exit) {
  const Status cannot(Code::kUnsupported, "no GPU");
  for (const Status& second : {cannot, Status(Code::kPeerExited, "rank 0 is gone")}) {
    const Ended ended = run_one_after_the_other(0, cannot, second);
    EXPECT_EQ(ended.code, 77);
    EXPECT_EQ(ended.standard_error, "pycollective-bench: no GPU\n");
  }
}

// ---- threads

// Runs ranks that end with these statuses.
Ended run_threads(const std::vector<Status>& ends) {
  return end_of([&] {
    return launch_threads(static_cast<Rank>(ends.size()),
                          [&](const Role& role) { return ends[static_cast<std::size_t>(role.rank)]; });
  });
}

const Status kGone(Code::kPeerExited, "another rank is gone"), kNoGpu(Code::kUnsupported, "no GPU"),
    kNoMemory(Code::kSystem, "no memory");

TEST(BenchThreads, the_cause_is_reported_whichever_rank_has_it) {
  EXPECT_EQ(run_threads({Status::ok(), Status::ok()}).code, 0);
  for (const std::vector<Status>& ends : {std::vector{kGone, kNoMemory}, std::vector{kNoMemory, kGone}}) {
    const Ended ended = run_threads(ends);
    EXPECT_EQ(ended.code, 1);
    EXPECT_EQ(ended.standard_error, "pycollective-bench: no memory\n");
  }
}

TEST(BenchThreads, a_rank_that_fails_is_no_skip_though_another_cannot_measure_here) {
  for (const std::vector<Status>& ends :
       {std::vector{kNoGpu, kNoMemory, kGone}, std::vector{kGone, kNoMemory, kNoGpu}}) {
    const Ended ended = run_threads(ends);
    EXPECT_EQ(ended.code, 1);
    EXPECT_EQ(ended.standard_error, "pycollective-bench: no memory\n");
  }
}

TEST(BenchThreads, what_none_can_measure_here_is_a_skip) {
  for (const std::vector<Status>& ends : {std::vector{kNoGpu, kNoGpu}, std::vector{kGone, kNoGpu}}) {
    const Ended ended = run_threads(ends);
    EXPECT_EQ(ended.code, 77);
    EXPECT_EQ(ended.standard_error, "pycollective-bench: no GPU\n");
  }
}

}  // namespace
}  // namespace pc::bench
