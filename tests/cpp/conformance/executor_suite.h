// The contract of every executor of collectives: exact results for every collective, dtype,
// operation, count, root and both placements. An executor or transport joins with one
// INSTANTIATE_TEST_SUITE_P and a function that runs a world on it.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "../world.h"  // not world.h of this directory, which is for transports
#include "conformance/elements.h"
#include "conformance/lists.h"
#include "conformance/parts.h"
#include "kernels/reduce.h"

namespace pc::testing {

struct ExecutorCase {
  std::string name;
  Rank size;
  std::function<Outcomes(Rank size, const Body& body)> run;
};
inline void PrintTo(const ExecutorCase& each, std::ostream* to) { *to << each.name; }

class ExecutorSuite : public ::testing::TestWithParam<ExecutorCase> {
 protected:
  // Runs `body` on every rank. Any outcome but OK fails the test with every rank's error.
  void expect_ok(const Body& body) {
    const Outcomes outcomes = GetParam().run(GetParam().size, body);
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  }
  static std::vector<std::size_t> counts() {
    const std::size_t n = static_cast<std::size_t>(GetParam().size);
    return {0, 1, n - 1, n, n + 1, 1000};
  }
};

// Under a sanitizer fewer calls run, because they take minutes there. Under ThreadSanitizer the
// threads interact in the same way for every dtype. Under AddressSanitizer all dtypes of one width
// use memory in the same way, and the kernels have tests of their own.
#if defined(__SANITIZE_THREAD__)
inline constexpr std::size_t kLargeCount = 70'001;
inline constexpr DType kTypes[] = {DType::kU8, DType::kF32};
inline constexpr DType kLargeTypes[] = {DType::kF32}, kTypesAtEveryRoot[] = {DType::kF32};
inline constexpr DType kTypesOfParts[] = {DType::kU8, DType::kF32};
inline constexpr DType kTypesOfLists[] = {DType::kF32};
inline constexpr ReduceOp kOpsOfLists[] = {ReduceOp::kSum};
inline constexpr uint64_t kUnevenCounts[] = {3, 4'000};
#else
#if defined(__SANITIZE_ADDRESS__)
inline constexpr DType kTypes[] = {DType::kU8, DType::kBF16, DType::kF32, DType::kI64, DType::kC128};
#else
inline constexpr std::array<DType, kDTypeCount> kTypes = [] {
  std::array<DType, kDTypeCount> all{};
  for (int d = 0; d < kDTypeCount; ++d) all[static_cast<std::size_t>(d)] = static_cast<DType>(d);
  return all;
}();
#endif
inline constexpr std::size_t kLargeCount = 300'001;
inline constexpr DType kLargeTypes[] = {DType::kF32, DType::kBF16, DType::kI64};
inline constexpr DType kTypesAtEveryRoot[] = {DType::kF32, DType::kF16, DType::kI32};
inline constexpr DType kTypesOfParts[] = {DType::kU8, DType::kF16, DType::kF32, DType::kF64, DType::kC128};
inline constexpr DType kTypesOfLists[] = {DType::kF32, DType::kBF16, DType::kBool, DType::kC128, DType::kI64};
inline constexpr ReduceOp kOpsOfLists[] = {ReduceOp::kSum, ReduceOp::kScaledSum, ReduceOp::kLXor,
                                           ReduceOp::kMinLoc, ReduceOp::kAvg};
inline constexpr uint64_t kUnevenCounts[] = {3, 20'000};
#endif
inline std::vector<Collective> every(bool (*kind)(Collective)) {
  std::vector<Collective> all;
  for (int c = 0; c < kCollectiveCount; ++c)
    if (kind(static_cast<Collective>(c))) all.push_back(static_cast<Collective>(c));
  return all;
}
inline bool has_one_array(Collective collective) { return moves_data(collective) && !has_parts(collective); }

// Makes one call and compares every rank's result element by element. Returns OK or a description
// of the error.
struct Call {
  Collective collective = Collective::kAllreduce;
  DType dtype = DType::kF32;
  Reduction op;
  std::size_t count = 0;
  Rank root = 0;
  bool in_place = false;
};

inline Reduction every_op(int number) {
  const ReduceOp op = static_cast<ReduceOp>(number);
  return {op, op == ReduceOp::kScaledSum ? 0.5 : 1};
}

inline Status wrong(const Call& call, const std::string& what) {
  return Status(Code::kInternal, std::string(name_of(call.collective)) + " " +
                                     std::string(name_of(call.dtype)) + " " + text_of(call.op) + " count " +
                                     std::to_string(call.count) + " root " + std::to_string(call.root) +
                                     (call.in_place ? " in place" : "") + ": " + what);
}

inline Status run_and_compare(Communicator& group, const Call& call) {
  const Rank rank = group.rank(), size = group.size();
  const bool broadcast = call.collective == Collective::kBroadcast;
  const bool gets_result = has_output({call.collective, rank, size, call.root});
  const Elements before = contribution(call.dtype, call.count, rank, size);
  Elements in = before, out = garbage(call.dtype, call.count);
  Request request;
  request.collective = call.collective;
  request.op = call.op;
  request.root = call.root;
  request.in = in.view();
  request.out = call.in_place ? in.buffer() : out.buffer();
  if (broadcast && rank != call.root) request.in = {};
  PC_TRY(group.run(request));
  const Elements& result = call.in_place ? in : out;
  if (!gets_result)
    return in.bytes == before.bytes ? Status::ok() : wrong(call, "touched the input off the root");
  if (!call.in_place && in.bytes != before.bytes) return wrong(call, "touched the input");
  const Contributors ranks = contributors({call.collective, rank, size, call.root}, 1, 0);
  const Elements want = broadcast ? contribution(call.dtype, call.count, call.root, size)
                                  : reduced(call.dtype, call.op, call.count, ranks);
  const std::size_t at = first_difference(result, want, call.op == ReduceOp::kAvg && !broadcast);
  if (at == call.count) return Status::ok();
  return wrong(call, "element " + std::to_string(at) + " is wrong on rank " + std::to_string(rank));
}

TEST_P(ExecutorSuite, allreduce_is_exact_for_every_dtype_op_and_count) {
  expect_ok([](Runtime&, Communicator& group) -> Status {
    for (const DType dtype : kTypes) {
      for (int o = 0; o < kReduceOpCount; ++o) {
        Call call{Collective::kAllreduce, dtype, every_op(o)};
        if (!can_reduce(call.dtype, call.op)) continue;
        for (const std::size_t count : counts()) {
          if (takes_pairs(call.op) && count % 2 != 0) continue;
          call.count = count;
          for (const bool in_place : {false, true}) {
            call.in_place = in_place;
            PC_TRY(run_and_compare(group, call));
          }
        }
      }
    }
    return Status::ok();
  });
}

TEST_P(ExecutorSuite, large_arrays_are_exact) {
  expect_ok([](Runtime&, Communicator& group) -> Status {
    for (const DType dtype : kLargeTypes) {
      for (const bool in_place : {false, true}) {
        const Rank root = group.size() - 1;
        PC_TRY(run_and_compare(group,
                               {Collective::kAllreduce, dtype, ReduceOp::kSum, kLargeCount, 0, in_place}));
        PC_TRY(run_and_compare(group,
                               {Collective::kReduce, dtype, ReduceOp::kSum, kLargeCount, root, in_place}));
        PC_TRY(run_and_compare(group,
                               {Collective::kBroadcast, dtype, ReduceOp::kSum, kLargeCount, root, in_place}));
      }
    }
    return Status::ok();
  });
}

TEST_P(ExecutorSuite, broadcast_delivers_every_dtype_from_every_root) {
  expect_ok([](Runtime&, Communicator& group) -> Status {
    for (const DType dtype : kTypes) {
      const bool in_place = static_cast<int>(dtype) % 2 == 0;
      for (const std::size_t count : counts()) {
        for (Rank root = 0; root < group.size(); ++root) {
          PC_TRY(
              run_and_compare(group, {Collective::kBroadcast, dtype, ReduceOp::kSum, count, root, in_place}));
        }
      }
    }
    return Status::ok();
  });
}

TEST_P(ExecutorSuite, reduce_is_exact_at_every_root_and_leaves_the_input_untouched_elsewhere) {
  expect_ok([](Runtime&, Communicator& group) -> Status {
    for (const DType dtype : kTypesAtEveryRoot) {
      for (int o = 0; o < kReduceOpCount; ++o) {
        const Reduction op = every_op(o);
        if (!can_reduce(dtype, op)) continue;
        for (const std::size_t count : counts()) {
          if (takes_pairs(op) && count % 2 != 0) continue;
          for (Rank root = 0; root < group.size(); ++root) {
            for (const bool in_place : {false, true}) {
              PC_TRY(run_and_compare(group, {Collective::kReduce, dtype, op, count, root, in_place}));
            }
          }
        }
      }
    }
    return Status::ok();
  });
}

TEST_P(ExecutorSuite, reduce_is_exact_for_every_dtype_op_and_count) {  // each with one root
  expect_ok([](Runtime&, Communicator& group) -> Status {
    Rank next_root = 0;
    for (const DType dtype : kTypes) {
      for (int o = 0; o < kReduceOpCount; ++o) {
        const Reduction op = every_op(o);
        if (!can_reduce(dtype, op)) continue;
        for (const std::size_t count : counts()) {
          if (takes_pairs(op) && count % 2 != 0) continue;
          const Rank root = next_root++ % group.size();
          PC_TRY(run_and_compare(group, {Collective::kReduce, dtype, op, count, root, next_root % 3 == 0}));
        }
      }
    }
    return Status::ok();
  });
}

TEST_P(ExecutorSuite, scans_are_exact_for_every_dtype_op_and_count) {
  expect_ok([](Runtime&, Communicator& group) -> Status {
    for (const Collective collective : every(is_scan)) {
      for (const DType dtype : kTypes) {
        for (int o = 0; o < kReduceOpCount; ++o) {
          const Reduction op = every_op(o);
          if (op == ReduceOp::kAvg || !can_reduce(dtype, op)) continue;
          for (const std::size_t count : counts()) {
            if (takes_pairs(op) && count % 2 != 0) continue;
            for (const bool in_place : {false, true})
              PC_TRY(run_and_compare(group, Call{collective, dtype, op, count, 0, in_place}));
          }
        }
      }
      PC_TRY(run_and_compare(group, Call{collective, DType::kF32, ReduceOp::kSum, kLargeCount, 0, true}));
      PC_TRY(run_and_compare(group, Call{collective, DType::kF32, ReduceOp::kSum, kLargeCount, 0, false}));
    }
    return Status::ok();
  });
}

TEST_P(ExecutorSuite, equal_parts_are_exact_for_every_width_count_and_root) {
  expect_ok([](Runtime&, Communicator& group) -> Status {
    const std::size_t ranks = static_cast<std::size_t>(group.size());
    for (const Collective collective : every(has_parts)) {
      for (const DType dtype : kTypesOfParts) {
        if (reduces(collective) && !can_reduce(dtype, ReduceOp::kSum)) continue;  // one dtype of each width
        for (const std::size_t count : counts()) {
          for (Rank root = 0; root < (is_rooted(collective) ? group.size() : 1); ++root) {
            for (const bool in_place : {false, true}) {
              PC_TRY(run_and_compare(
                  group, PartsCall{collective, dtype, ReduceOp::kSum, std::vector<uint64_t>(ranks, count),
                                   true, root, in_place}));
            }
          }
        }
      }
      const std::vector<uint64_t> large(ranks, kLargeCount / ranks);
      PC_TRY(run_and_compare(group, PartsCall{collective, DType::kF32, ReduceOp::kSum, large}));
    }
    return Status::ok();
  });
}

TEST_P(ExecutorSuite, uneven_parts_are_exact_for_every_root) {
  expect_ok([](Runtime&, Communicator& group) -> Status {
    for (const Collective collective : every(has_parts)) {
      for (const uint64_t base : kUnevenCounts) {
        std::vector<uint64_t> counts;
        for (Rank r = 0; r < group.size(); ++r)
          counts.push_back((base + 1) * static_cast<uint64_t>(r * 5 % 7) / 2);
        for (Rank root = 0; root < (is_rooted(collective) ? group.size() : 1); ++root) {
          for (const bool in_place : {false, true}) {
            PC_TRY(run_and_compare(
                group, PartsCall{collective, DType::kI32, ReduceOp::kMax, counts, false, root, in_place}));
          }
        }
      }
    }
    return Status::ok();
  });
}

TEST_P(ExecutorSuite, every_op_scatters_what_it_reduces_in_every_dtype) {
  expect_ok([](Runtime&, Communicator& group) -> Status {
    const std::size_t ranks = static_cast<std::size_t>(group.size());
    for (const DType dtype : kTypes) {
      for (int o = 0; o < kReduceOpCount; ++o) {
        const ReduceOp op = static_cast<ReduceOp>(o);
        if (!can_reduce(dtype, op)) continue;
        const std::vector<uint64_t> equal(ranks, 100);
        PC_TRY(run_and_compare(group, PartsCall{Collective::kReduceScatter, dtype, op, equal}));
        std::vector<uint64_t> uneven;
        for (std::size_t r = 0; r < ranks; ++r) uneven.push_back(2 * (r % 3));
        PC_TRY(run_and_compare(group, PartsCall{Collective::kReduceScatter, dtype, op, uneven, false}));
      }
    }
    return Status::ok();
  });
}

TEST_P(ExecutorSuite, lists_have_the_bits_of_one_array) {
  expect_ok([](Runtime&, Communicator& group) -> Status {
    const std::size_t ranks = static_cast<std::size_t>(group.size());
    for (const Collective collective : every(has_one_array)) {
      for (const DType dtype : kTypesOfLists) {
        for (const ReduceOp each : kOpsOfLists) {
          const Reduction op = every_op(static_cast<int>(each));
          if (!can_reduce(dtype, op) || (is_scan(collective) && op == ReduceOp::kAvg)) continue;
          if (!reduces(collective) && op != ReduceOp::kSum) continue;
          const std::size_t unpacked = (std::size_t{1} << 20) / size_of(dtype) + 10;  // sent without packing
          if (dtype == DType::kF32 || (dtype == DType::kC128 && op == ReduceOp::kSum))
            PC_TRY(run_and_compare(group, ListCall{collective, dtype, op, unpacked, group.size() - 1}));
          for (const std::size_t count : {std::size_t{0}, std::size_t{2}, 2 * ranks, std::size_t{1000}})
            PC_TRY(run_and_compare(group, ListCall{collective, dtype, op, count, group.size() - 1}));
        }
      }
    }
    return Status::ok();
  });
}

TEST_P(ExecutorSuite, no_rank_leaves_a_barrier_before_all_ranks_have_entered_it) {
  std::atomic<int> arrived{0};
  expect_ok([&](Runtime&, Communicator& group) -> Status {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      PC_TRY(group.run(Request{}));
      if (arrived.load() < round * group.size()) return Status(Code::kInternal, "left the barrier early");
      PC_TRY(group.run(Request{}));  // no rank enters the next round while others still check this one
    }
    return Status::ok();
  });
}

TEST_P(ExecutorSuite, launched_calls_complete_in_issue_order_whichever_is_waited_for_first) {
  expect_ok([](Runtime&, Communicator& group) -> Status {
    constexpr std::size_t kCount = 20'000;  // above the eager limit
    Elements first = contribution(DType::kF32, kCount, group.rank(), group.size());
    Elements second = contribution(DType::kF32, 3, group.rank(), group.size());
    const auto launch = [&](Elements& elements) {
      Request request;
      request.collective = Collective::kAllreduce;
      request.in = elements.view();
      request.out = elements.buffer();
      return group.launch(request);
    };
    PC_ASSIGN_OR_RETURN(const WorkPtr one, launch(first));
    PC_ASSIGN_OR_RETURN(const WorkPtr two, launch(second));
    const WaitContext context{Deadline::after(20)};
    const bool backwards = group.rank() % 2 == 1;
    const auto wait = [&](const WorkPtr& work) {  // null if it has completed
      return work == nullptr ? Status::ok() : work->wait(context);
    };
    PC_TRY(wait(backwards ? two : one));
    if (one != nullptr && !one->done()) return Status(Code::kInternal, "the second ended before the first");
    PC_TRY(wait(backwards ? one : two));
    const bool right = first.bytes == reduced(DType::kF32, ReduceOp::kSum, kCount, group.size()).bytes &&
                       second.bytes == reduced(DType::kF32, ReduceOp::kSum, 3, group.size()).bytes;
    return right ? Status::ok() : Status(Code::kInternal, "wrong result");
  });
}

TEST_P(ExecutorSuite, messages_arrive_in_order_per_peer_and_tag) {
  expect_ok([](Runtime&, Communicator& group) -> Status {
    if (group.size() == 1) return Status::ok();
    const Rank right = (group.rank() + 1) % group.size(),
               left = (group.rank() + group.size() - 1) % group.size();
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, kLargeCount}) {
      for (uint32_t tag = 0; tag < 3; ++tag) {
        const Elements mine = contribution(DType::kI32, count, group.rank(), group.size());
        Elements got = garbage(DType::kI32, count);
        const auto send = [&] { return group.send(mine.view(), right, tag); };
        const auto recv = [&] { return group.recv(got.buffer(), left, tag); };
        if (group.rank() == 0) {  // one rank begins, so that blocking calls cannot wait in a cycle
          PC_TRY(send());
          PC_TRY(recv());
        } else {
          PC_TRY(recv());
          PC_TRY(send());
        }
        const Elements theirs = contribution(DType::kI32, count, left, group.size());
        if (got.bytes != theirs.bytes)
          return Status(Code::kInternal, "message of " + std::to_string(count) + " elements is wrong");
      }
    }
    return Status::ok();
  });
}

TEST_P(ExecutorSuite, lists_are_messages_too_and_receivers_may_cut_theirs_elsewhere) {
  expect_ok([](Runtime&, Communicator& group) -> Status {
    if (group.size() == 1 || group.rank() > 1) return Status::ok();
    const Rank peer = 1 - group.rank();
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{3000}, kLargeCount}) {
      const Elements sent = contribution(DType::kI32, count, 0, 2);
      for (const bool from_list : {false, true}) {
        for (const bool into_list : {false, true}) {
          Elements flat = group.rank() == 0 ? sent : garbage(DType::kI32, count);
          Pieces pieces(flat);
          const Buffer mine = (group.rank() == 0 ? from_list : into_list) ? pieces.buffer() : flat.buffer();
          if (group.rank() == 0) {
            PC_TRY(group.send({mine, peer}, 20));
            continue;
          }
          PC_TRY(group.recv({mine, peer}, 20));
          if ((into_list ? pieces.joined() : flat).bytes != sent.bytes)
            return Status(Code::kInternal, "message of " + std::to_string(count) + " elements is wrong");
        }
      }
    }
    return Status::ok();
  });
}

}  // namespace pc::testing
