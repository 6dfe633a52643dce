// Calls of ranks that share one GPU and access each other's arrays there. A FAKE driver runs the
// loops of the real kernels.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gpu/device_world.h"
#include "gpu/fake_kernels.h"
#include "gpu/gpu_cells.h"
#include "gpu/ipc/ipc_memory.h"

namespace pc::testing {
namespace {

class PeerWorld : public DeviceWorld {
 protected:
  void SetUp() override {
    DeviceWorld::SetUp();
    kernels_ = fake_kernels(fake_);
  }
  DeviceCalls::Resources resources(bool by_handles = false) {
    DeviceCalls::Resources made = DeviceWorld::resources(0);
    made.peers.kernels = kernels_;
    made.peers.by_handles = by_handles;
    return made;
  }
  Result<std::shared_ptr<DeviceCalls>> join(Runtime& runtime, Communicator& group, bool by_handles = false) {
    return DeviceCalls::join_ipc(group, runtime, resources(by_handles), kLong);
  }
  static Status run(DeviceCalls& calls, const cuda::DeviceCall& call) {
    PC_ASSIGN_OR_RETURN(const auto started, calls.launch(call, -1));
    return started->wait(-1);
  }
  using DeviceWorld::run;
  // Ranks that have seen their group end leave together. Otherwise the first rank to leave would be
  // a further failure for the others.
  Outcomes run_until_its_end(Rank size, const Body& body) {
    std::barrier all(size);
    return run(
        size,
        [&](Runtime& runtime, Communicator& group) -> Status {
          Status status = body(runtime, group);
          all.arrive_and_wait();
          return status;
        },
        false);
  }
  // On the GPU that all ranks share. Each element is the rank + 1.
  Result<Array> array_of(const Communicator& group, std::size_t count = kCount) {
    PC_ASSIGN_OR_RETURN(Array made, DeviceWorld::array_of(0, count));
    std::fill(made.begin(), made.begin() + count, static_cast<float>(group.rank() + 1));
    return made;
  }

  std::span<const std::byte> kernels_;
};
INSTANTIATE_TEST_SUITE_P(Over, PeerWorld, ::testing::Values(Over::kTcp, Over::kShared),
                         [](const ::testing::TestParamInfo<Over>& each) { return name_of(each.param); });

TEST_P(PeerWorld, what_the_cpu_can_do_they_can_with_the_same_bits) {
  std::vector<Cell> cells = cells_of_every_kind();
  for (const bool in_place : {false, true}) {
    for (const Collective each : {Collective::kAllreduce, Collective::kReduce, Collective::kScan,
                                  Collective::kExscan, Collective::kReduceScatter})
      cells.push_back({each, ReduceOp::kSum, DType::kF32, in_place});
    cells.push_back({Collective::kAllreduce, ReduceOp::kAvg, DType::kF32, in_place});
  }
  for (const bool by_handles : {false, true}) {
    for (const Rank size : by_handles ? std::vector<Rank>{2, 5} : std::vector<Rank>{1, 2, 3, 4, 8}) {
      const Outcomes outcomes = run(size, [&](Runtime& runtime, Communicator& group) -> Status {
        PC_ASSIGN_OR_RETURN(const auto calls, join(runtime, group, by_handles));
        PC_ASSIGN_OR_RETURN(Array memory, array_of(group, std::size_t{16} * 2 * 1000 * 2));
        const auto make = [&](const UserCall& call) -> Status {
          PC_TRY(calls->can(call.request));
          return run(*calls, {call.request, true});
        };
        PC_TRY(expect_as_on_cpu(group, cells, reinterpret_cast<std::byte*>(memory.begin()), 0,
                                memory.stream.get(), make));
        return calls->close(-1);
      });
      EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
    }
  }
}

TEST_P(PeerWorld, one_rank_of_each_gpu_moves_for_all_that_share_it) {
  for (const Rank size : {3, 4, 5}) {
    std::atomic<int> launched{0};
    const Outcomes outcomes = run(size, [&](Runtime& runtime, Communicator& group) -> Status {
      const int gpu = group.rank() % 2;
      DeviceCalls::Resources with = resources(true);
      with.device = gpu;
      PC_ASSIGN_OR_RETURN(const auto calls, DeviceCalls::join_ipc(group, runtime, with, kLong));
      PC_ASSIGN_OR_RETURN(Array memory, DeviceWorld::array_of(gpu, std::size_t{16} * 2 * 1000 * 2));
      PC_TRY(group.run(Request{}));
      const int before = fake_.calls("cuLaunchKernel");
      PC_TRY(group.run(Request{}));
      PC_TRY(run(*calls, memory.sum()));
      PC_TRY(group.run(Request{}));
      if (group.rank() == 0) launched = fake_.calls("cuLaunchKernel") - before;
      PC_TRY(group.run(Request{}));
      const auto make = [&](const UserCall& call) -> Status { return run(*calls, {call.request, true}); };
      PC_TRY(expect_as_on_cpu(group, cells_of_every_kind(), reinterpret_cast<std::byte*>(memory.begin()), gpu,
                              memory.stream.get(), make));
      return calls->close(-1);
    });
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
    EXPECT_EQ(launched, 2) << size << " ranks";
  }
}

// The rank that does the work uses its own counts, for arrays of other ranks too.
TEST_P(PeerWorld, where_counts_differ_nothing_moves) {
  for (const Collective collective : {Collective::kReduceScatter, Collective::kScatter}) {
    const Outcomes outcomes = run_until_its_end(2, [&](Runtime& runtime, Communicator& group) -> Status {
      PC_ASSIGN_OR_RETURN(const auto calls, join(runtime, group));
      PC_ASSIGN_OR_RETURN(Array x, array_of(group));
      PC_ASSIGN_OR_RETURN(Array y, array_of(group));
      std::fill(y.begin(), y.begin() + kCount, -7.0F);
      PC_TRY(host_sum(group));
      const std::array<uint64_t, 2> counts{group.rank() == 0 ? 100U : 900U, group.rank() == 0 ? 900U : 100U};
      cuda::DeviceCall call = x.sum();
      call.request.collective = collective;
      call.request.root = 0;
      call.request.out = y.sum().request.out;
      call.request.out.count = 100;
      call.request.counts = counts;
      if (collective == Collective::kScatter && group.rank() == 1) call.request.in = {};
      const Status ended = run(*calls, call);
      if (ended.code() != Code::kMismatch) return wrong(ended.to_string());
      (void)calls->close(-1);
      const bool is_whole =
          std::all_of(y.begin(), y.begin() + kCount, [](float each) { return each == -7.0F; });
      return is_whole ? Status::ok() : wrong("something was written");
    });
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  }
}

TEST_P(PeerWorld, an_alltoall_has_parts_of_any_size_and_names_the_rank_that_expects_another) {
  const Outcomes outcomes = run_until_its_end(3, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, join(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group, 100));
    PC_ASSIGN_OR_RETURN(Array y, array_of(group, 100));
    const uint64_t rank = static_cast<uint64_t>(group.rank());
    std::vector<uint64_t> counts(3, 1 + rank), recv_counts{1, 2, 3};
    cuda::DeviceCall call = x.sum();
    call.request.collective = Collective::kAlltoall;
    call.request.out = y.sum().request.out;
    call.request.in.count = 3 * (1 + rank);
    call.request.out.count = 6;
    call.request.counts = counts;
    call.request.recv_counts = recv_counts;
    PC_TRY(run(*calls, call));
    const std::array<float, 6> wanted{1, 2, 2, 3, 3, 3};
    if (!std::equal(wanted.begin(), wanted.end(), y.begin())) return wrong("other elements");
    if (rank == 1) recv_counts = {0, 2, 3}, call.request.out.count = 5;
    const Status ended = run(*calls, call);
    return ended.code() == Code::kMismatch && has(ended, "rank 0 sends rank 1 1 elements, which expects 0")
               ? Status::ok()
               : wrong(ended.to_string());
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(PeerWorld, a_call_is_behind_what_makes_its_array_and_in_front_of_what_uses_it) {
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, join(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group));
    PC_ASSIGN_OR_RETURN(Array y, array_of(group));
    for (const bool on_caller_stream : {true, false}) {
      fake_.hold_stream(x.stream.get());
      PC_TRY(produce(x, std::vector<float>(kCount, static_cast<float>(10 + group.rank()))));
      cuda::DeviceCall call = x.sum();
      call.on_caller_stream = on_caller_stream;
      PC_ASSIGN_OR_RETURN(const auto started, calls->launch(call, -1));
      PC_TRY(host_sum(group));  // the group's own calls continue
      if (started->done() || started->precedes_at_once()) return wrong("it has not waited for its array");
      if (started->precede({Deadline(now())}, y.stream.get())) return wrong("it has ended without its array");
      fake_.release_stream(x.stream.get());
      PC_TRY(started->precede(y.stream.get()));
      PC_TRY(copy(y, x, y.stream.get()));
      drain(y);
      PC_TRY(expect(y, 21));
      if (!started->precedes_at_once()) return wrong("it has ended");
      PC_TRY(started->wait(-1));
    }
    return calls->close(-1);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

// An array of memory without a handle.
class Pooled {
 public:
  Pooled(const FakeCuda& fake, const cuda::Context& context, float value) {
    const Result<cuda::ContextGuard> current = context.enter();
    at_ = static_cast<float*>(fake.make_pooled(kCount * sizeof(float)));
    std::fill(at_, at_ + kCount, value);
  }
  void into(Request& request) const {
    request.in.data = reinterpret_cast<std::byte*>(at_);
    request.out.data = reinterpret_cast<std::byte*>(at_);
  }
  float last() const { return at_[kCount - 1]; }

 private:
  float* at_;
};

TEST_P(PeerWorld, memory_without_a_handle_is_copied_and_without_memory_for_that_all_go_through_the_host) {
  for (const bool has_memory : {true, false}) {
    const Outcomes outcomes = run(3, [&](Runtime& runtime, Communicator& group) -> Status {
      PC_ASSIGN_OR_RETURN(const auto calls, join(runtime, group, true));
      PC_ASSIGN_OR_RETURN(Array x, array_of(group));
      const Pooled pooled(fake_, x.context, 2);
      cuda::DeviceCall call = x.sum();
      PC_TRY(host_sum(group));  // all ranks have their arrays
      if (group.rank() == 1) pooled.into(call.request);
      if (group.rank() == 1 && !has_memory) fake_.fail_next("cuMemAlloc", cuda::CUDA_ERROR_OUT_OF_MEMORY);
      PC_TRY(run(*calls, call));
      if (group.rank() == 1 && pooled.last() != 6) return wrong("another sum");
      if (group.rank() != 1) PC_TRY(expect(x, 6));
      return calls->close(-1);
    });
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
    constexpr int kJoining = 3 * 3;  // each rank reads what all have exported
    EXPECT_EQ(fake_.calls("cuMemcpyDtoHAsync"), has_memory ? kJoining : 2 * kJoining + 3);
  }
}

TEST_P(PeerWorld,
       without_memory_on_the_host_either_that_call_is_refused_on_all_ranks_and_the_next_goes_well) {
  enum class How : uint8_t { kHere, kInBackground, kLeftAlone };
  for (const How how : {How::kHere, How::kInBackground, How::kLeftAlone}) {
    const Outcomes outcomes = run(3, [&](Runtime& runtime, Communicator& group) -> Status {
      PC_ASSIGN_OR_RETURN(const auto calls, join(runtime, group, true));
      PC_ASSIGN_OR_RETURN(Array x, array_of(group));
      const Pooled pooled(fake_, x.context, 2);
      cuda::DeviceCall call = x.sum();
      PC_TRY(host_sum(group));  // all ranks have their arrays
      if (group.rank() == 1) {
        pooled.into(call.request);
        fake_.fail_next("cuMemAlloc", cuda::CUDA_ERROR_OUT_OF_MEMORY);
        fake_.fail_next("cuMemHostAlloc", cuda::CUDA_ERROR_OUT_OF_MEMORY);
      }
      PC_TRY(host_sum(group));
      Status refused;
      if (how == How::kHere) {
        refused = run(*calls, call);
      } else {
        PC_ASSIGN_OR_RETURN(const auto started, calls->launch(call, -1));
        while (!started->outcome()) std::this_thread::yield();
        if (how == How::kLeftAlone) started->detach();
        refused = how == How::kLeftAlone ? host_sum(group) : started->wait(-1);
        const Status why = *started->outcome();
        if (!has(refused, why.message())) return wrong(why.to_string());
      }
      if (!has(refused, "has none: cuMemHostAlloc(4 KiB): out of memory") || !has(refused, "allreduce"))
        return wrong(refused.to_string());
      if (group.rank() == 1 && pooled.last() != 2) return wrong("the array has been changed");
      if (group.rank() != 1) PC_TRY(expect(x, static_cast<float>(group.rank() + 1)));
      PC_TRY(host_sum(group));
      PC_TRY(run(*calls, call));
      if (group.rank() != 1) PC_TRY(expect(x, 6));
      return calls->close(-1);
    });
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  }
}

TEST_P(PeerWorld, a_list_goes_as_one_and_need_not_outlive_its_beginning) {
  for (const Collective collective : {Collective::kAllreduce, Collective::kBroadcast, Collective::kReduce}) {
    const Outcomes outcomes = run(3, [&](Runtime& runtime, Communicator& group) -> Status {
      PC_ASSIGN_OR_RETURN(const auto calls, join(runtime, group));
      PC_ASSIGN_OR_RETURN(Array x, array_of(group));
      PC_ASSIGN_OR_RETURN(Array y, array_of(group, 7));
      auto list = std::make_unique<IoVec>();
      list->add(reinterpret_cast<std::byte*>(x.begin()), kCount * sizeof(float));
      list->add(reinterpret_cast<std::byte*>(y.begin()), 7 * sizeof(float));
      cuda::DeviceCall call = x.sum();
      Request& request = call.request;
      request.collective = collective;
      request.root = 1;
      request.bundle = uint64_t{2} << 32;
      request.in.data = nullptr;
      request.out.data = nullptr;
      request.in.count = request.out.count = kCount + 7;
      request.in.list = request.out.list = list.get();
      PC_ASSIGN_OR_RETURN(const auto started, calls->launch(call, -1));
      list.reset();
      PC_TRY(started->wait(-1));
      const bool is_sum =
          collective == Collective::kAllreduce || (collective == Collective::kReduce && group.rank() == 1);
      const float wanted = is_sum                                 ? 6
                           : collective == Collective::kBroadcast ? 2
                                                                  : static_cast<float>(group.rank() + 1);
      PC_TRY(expect(x, wanted));
      PC_TRY(expect(y, wanted));
      return calls->close(-1);
    });
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  }
}

TEST_P(PeerWorld, an_allocation_that_took_the_place_of_others_is_opened_anew) {
  const cuda::Context context = cuda::Context::primary(driver_, 0).value();
  IpcMemory theirs(context, {0}, std::make_shared<IpcMappings>());
  IpcMemory ours(context, {0}, std::make_shared<IpcMappings>());
  const auto first_of = [&](const PeerArray& shown) {
    return *reinterpret_cast<const float*>(ours.reach(0, shown).value());
  };
  for (const float number : {1.0F, 2.0F, 3.0F}) {
    Array x = DeviceWorld::array_of(0).value();
    *x.begin() = number;
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(first_of(theirs.export_array(x.sum().request.in).value()), number);
      ours.let_go();
      EXPECT_EQ(fake_.live("peer"), 1);
    }
  }
  // Exports two arrays, and then a larger one at the addresses of both, as if their process had
  // freed the two and allocated the larger one there.
  std::array<Array, 3> arrays{DeviceWorld::array_of(0).value(), DeviceWorld::array_of(0).value(),
                              DeviceWorld::array_of(0).value()};
  std::array<PeerArray, 3> shown;
  const std::array<std::array<uint64_t, 2>, 3> places{
      {{1 << 20, 100}, {(1 << 20) + 100, 100}, {1 << 20, 200}}};
  for (std::size_t i = 0; i < 3; ++i) {
    *arrays[i].begin() = static_cast<float>(i);
    shown[i] = theirs.export_array(arrays[i].sum().request.in).value();
    shown[i].address = shown[i].allocation.begin = places[i][0];
    shown[i].allocation.nbytes = places[i][1];
  }
  EXPECT_EQ(first_of(shown[0]), 0);
  EXPECT_EQ(first_of(shown[1]), 1);
  EXPECT_EQ(fake_.live("peer"), 2);
  EXPECT_EQ(first_of(shown[2]), 2);
  ours.let_go();
  EXPECT_EQ(fake_.live("peer"), 1);
}

TEST_P(PeerWorld, a_first_call_loads_no_code_which_would_wait_for_what_runs_on_the_gpu) {
  std::barrier all(2);
  const Outcomes outcomes = run_until_its_end(2, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, join(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group));
    all.arrive_and_wait();
    const int loaded = fake_.calls("cuFuncLoad");
    PC_TRY(run(*calls, x.sum()));
    PC_TRY(expect(x, 3));
    if (loaded == 0 || fake_.calls("cuFuncLoad") != loaded) return wrong("code was loaded in the call");
    return calls->close(-1);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(PeerWorld, sums_are_in_the_order_of_ranks_on_all) {
  // 1.25 in this order, 0 or 1 in other orders
  constexpr std::array<float, 4> kValues{1e8F, -1e8F, 0.25F, 1};
  const Outcomes outcomes = run(4, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, join(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group));
    std::fill(x.begin(), x.begin() + kCount, kValues[static_cast<std::size_t>(group.rank())]);
    PC_TRY(run(*calls, x.sum()));
    PC_TRY(expect(x, 1.25F));
    return calls->close(-1);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(PeerWorld, different_calls_are_a_mismatch) {
  const Outcomes outcomes = run_until_its_end(3, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, join(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group));
    cuda::DeviceCall call = x.sum();
    if (group.rank() == 1) call.request.op.op = ReduceOp::kProd;
    const Status ended = run(*calls, call);
    if (ended.code() != Code::kMismatch || !has(ended, "prod")) return wrong(ended.to_string());
    return expect(x, static_cast<float>(group.rank() + 1));  // unchanged
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(PeerWorld, the_death_of_a_rank_ends_the_calls_of_the_others) {
  const Outcomes outcomes = run(
      3,
      [&](Runtime& runtime, Communicator& group) -> Status {
        PC_ASSIGN_OR_RETURN(const auto calls, join(runtime, group));
        PC_TRY(host_sum(group));
        if (group.rank() == 2) return Status::ok();  // its runtime ends without a goodbye
        PC_ASSIGN_OR_RETURN(Array x, array_of(group));
        return run(*calls, x.sum());
      },
      false);
  for (const std::size_t rank : {0UL, 1UL})
    EXPECT_EQ(outcomes[rank].code(), Code::kPeerFailure) << text_of(outcomes);
}

TEST_P(PeerWorld, a_late_array_is_named_by_its_own_rank_and_ends_the_call_on_the_others) {
  const Outcomes outcomes = run_until_its_end(2, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, join(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group));
    if (group.rank() == 0) fake_.hold_stream(x.stream.get());
    PC_ASSIGN_OR_RETURN(const auto started, calls->launch(x.sum(), 0.2));
    const Status ended = started->wait(-1);
    if (group.rank() == 0) fake_.release_stream(x.stream.get());
    const bool is_right = group.rank() == 0
                              ? ended.code() == Code::kTimeout && has(ended, "what makes its array")
                              : ended.code() == Code::kPeerExited || ended.code() == Code::kPeerFailure;
    if (!is_right) return wrong(ended.to_string());
    return run(*calls, x.sum()).is_ok() ? wrong("it goes on") : Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(PeerWorld, what_a_late_rank_may_still_write_is_kept_as_long_as_the_process) {
  std::array<std::weak_ptr<const void>, 2> kept;
  fake_.fail_next("cuLaunchKernel",
                  cuda::CUDA_ERROR_INVALID_VALUE);  // on one rank, when all know where the arrays are stored
  const Outcomes outcomes = run_until_its_end(2, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(auto calls, join(runtime, group));
    PC_ASSIGN_OR_RETURN(Array made, array_of(group));
    const auto x = std::make_shared<Array>(std::move(made));
    kept[static_cast<std::size_t>(group.rank())] = x;
    cuda::DeviceCall call = x->sum();
    call.keeps = x;
    return run(*calls, call).is_ok() ? wrong("it has gone well") : Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  for (const auto& each : kept) EXPECT_FALSE(each.expired());
  fake_.drain_all();
  abandoned_.reset();
  for (const auto& each : kept) EXPECT_TRUE(each.expired());
}

TEST_P(PeerWorld, an_abort_ends_what_waits) {
  const Outcomes outcomes = run_until_its_end(2, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, join(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group));
    PC_TRY(host_sum(group));
    if (group.rank() == 1) return Status::ok();  // never makes the call
    PC_ASSIGN_OR_RETURN(const auto started, calls->launch(x.sum(), -1));
    const Status enough(Code::kAborted, "enough");
    group.abort(enough);
    calls->abort(enough);
    const Status ended = started->wait(-1);
    return ended.code() == Code::kAborted && has(ended, "enough") ? Status::ok() : wrong(ended.to_string());
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(PeerWorld, a_call_in_a_graph_is_refused_before_anything_is_sent) {
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, join(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group));
    if (group.rank() == 0) {
      fake_.begin_capture(x.stream.get());
      const Status refused = calls->launch(x.sum(), -1).status();
      fake_.end_capture(x.stream.get());
      if (refused.code() != Code::kUnsupported || !has(refused, "CUDA graph"))
        return wrong(refused.to_string());
    }
    PC_TRY(run(*calls, x.sum()));
    PC_TRY(expect(x, 3));
    return calls->close(-1);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(PeerWorld, without_kernels_on_one_rank_all_copy_only) {
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    DeviceCalls::Resources with = resources();
    if (group.rank() == 1) with.peers.kernels = {};
    PC_ASSIGN_OR_RETURN(const auto calls, DeviceCalls::join_ipc(group, runtime, with, kLong));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group));
    if (const Status can = calls->can(x.sum().request);
        can.code() != Code::kUnsupported || !has(can, "rank 1"))
      return wrong(can.to_string());
    cuda::DeviceCall call = x.sum();
    call.request.collective = Collective::kBroadcast;
    call.request.root = 1;
    PC_TRY(run(*calls, call));
    PC_TRY(expect(x, 2));
    return calls->close(-1);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(PeerWorld, ranks_that_do_not_reach_each_other_raise_the_same_reason_and_go_on) {
  fake_.fail_next("cuIpcOpenMemHandle", cuda::CUDA_ERROR_INVALID_VALUE);
  std::array<std::string, 3> words;
  const Outcomes outcomes = run(3, [&](Runtime& runtime, Communicator& group) -> Status {
    const Status joined = join(runtime, group, true).status();
    words[static_cast<std::size_t>(group.rank())] = joined.message();
    PC_TRY(host_sum(group));
    return joined.code() == Code::kUnsupported ? Status::ok() : wrong(joined.to_string());
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  EXPECT_EQ(words[0], words[1]);
  EXPECT_EQ(words[0], words[2]);
  EXPECT_NE(words[0].find("does not reach the memory of rank"), std::string::npos) << words[0];
}

TEST_P(PeerWorld, groups_that_join_at_once_in_several_threads_do_not_disturb_each_other) {
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    std::array<Communicator*, 2> groups{};
    for (Communicator*& each : groups) {
      PC_ASSIGN_OR_RETURN(each, runtime.make_group(static_cast<uint32_t>(runtime.group_count() + 1), {0, 1}));
    }
    const std::size_t before = runtime.group_count();
    const auto join_and_call = [&](Communicator& its) -> Status {
      PC_TRY(join(runtime, its).status());
      return host_sum(its);
    };
    auto beside = std::async(std::launch::async, [&] { return join_and_call(*groups[0]); });
    const Status second = join_and_call(*groups[1]);
    PC_TRY(beside.get());
    PC_TRY(second);
    if (runtime.group_count() != before) return wrong("groups that no caller has made");
    PC_ASSIGN_OR_RETURN(Communicator* const next,
                        runtime.make_group(static_cast<uint32_t>(runtime.group_count() + 1), {0, 1}));
    PC_TRY(host_sum(*next));
    return host_sum(group);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(PeerWorld, a_call_that_goes_through_the_host_after_all_leaves_the_users_stream_alone) {
  std::barrier all(2);
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, join(runtime, group, true));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group));
    const Pooled pooled(fake_, x.context, 2);
    cuda::DeviceCall call = x.sum();
    if (group.rank() == 1) {
      pooled.into(call.request);
      all.arrive_and_wait();
      fake_.fail_next("cuMemAlloc", cuda::CUDA_ERROR_OUT_OF_MEMORY);
    }
    PC_ASSIGN_OR_RETURN(const auto started, calls->launch(call, -1));
    if (group.rank() == 0) {
      drain(x);
      fake_.begin_capture(x.stream.get());  // the user starts a capture
      all.arrive_and_wait();
    }
    const Status ended = started->wait(-1);
    all.arrive_and_wait();
    if (group.rank() == 0 && fake_.end_capture(x.stream.get()) != 0)
      return wrong("the user's graph has our copies");
    PC_TRY(ended);
    return calls->close(-1);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(PeerWorld, a_rank_that_fails_after_all_have_agreed_ends_the_group_and_uses_no_other_path) {
  std::array<Status, 2> joined;
  // the trials succeed, then one rank fails
  fake_.fail_after("cuStreamCreate", 2, cuda::CUDA_ERROR_NOT_SUPPORTED);
  const Outcomes outcomes = run_until_its_end(2, [&](Runtime& runtime, Communicator& group) -> Status {
    joined[static_cast<std::size_t>(group.rank())] = join(runtime, group).status();
    return host_sum(group).is_ok() ? wrong("it goes on") : Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  EXPECT_NE(joined[0].is_ok(), joined[1].is_ok());
  for (const Status& each : joined) EXPECT_NE(each.code(), Code::kUnsupported) << each.to_string();
}

TEST_P(PeerWorld, a_rank_without_a_driver_is_named_by_all) {
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    DeviceCalls::Resources with = resources();
    if (group.rank() == 1) with.driver = nullptr;
    const Status joined = DeviceCalls::join_ipc(group, runtime, with, kLong).status();
    return joined.code() == Code::kUnsupported && has(joined, "rank 1: the GPU's driver")
               ? Status::ok()
               : wrong(joined.to_string());
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

}  // namespace
}  // namespace pc::testing
