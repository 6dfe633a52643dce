// Rows on GPUs, measured by worlds of threads on FAKES of the driver and of NCCL: the results are
// right on every path, and errors are detected.
#include "bench/gpu_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include "bench/effort.h"
#include "bench/gpu_arrays.h"
#include "fakes/cuda/fake_cuda.h"
#include "gpu/group_on_gpus.h"
#include "gpu/nccl/fake_library.h"
#include "world.h"

namespace pc::bench {
namespace {

using testing::kLong;
using testing::Outcomes;

// State of the functions that replace NCCL's allreduce and record which side called it.
struct Recorded {
  const nccl::Api* real = nullptr;
  DeviceCalls* ours = nullptr;
  std::string order = {};  // such as "orro": o is a call of ours, r is a raw NCCL call
  int disturbed = 0;       // raw calls during which calls of ours were still unsettled
};
Recorded* recorded = nullptr;

nccl::ReturnCode record_ours(const void* in, void* out, std::size_t count, nccl::DataType dtype,
                             nccl::RedOp op, nccl::CommHandle comm, nccl::StreamHandle stream) {
  recorded->order += 'o';
  return recorded->real->all_reduce(in, out, count, dtype, op, comm, stream);
}
nccl::ReturnCode record_raw(const void* in, void* out, std::size_t count, nccl::DataType dtype,
                            nccl::RedOp op, nccl::CommHandle comm, nccl::StreamHandle stream) {
  const bool first = !recorded->order.ends_with('r');
  recorded->order += 'r';
  if (first && !recorded->ours->settle(0).is_ok()) ++recorded->disturbed;
  return recorded->real->all_reduce(in, out, count, dtype, op, comm, stream);
}
nccl::ReturnCode do_nothing(const void*, void*, std::size_t, nccl::DataType, nccl::RedOp, nccl::CommHandle,
                            nccl::StreamHandle) {
  return nccl::ReturnCode::kSuccess;
}

// The devices of a runtime. Its world uses the one backend that the test has made.
class OneWay final : public Devices {
 public:
  explicit OneWay(std::unique_ptr<GroupOnGpus> backend) : backend_(std::move(backend)) {}
  Status run(Communicator&, UserCall call, double timeout_s) override {
    return backend_->run(call, timeout_s);
  }
  Result<std::shared_ptr<AsyncWork>> begin(Communicator&, UserCall, AsyncOptions) override {
    return Status(Code::kUnsupported, "nothing begins here");
  }
  Status join(Communicator&, int, void*, double, bool) override { return Status::ok(); }
  Route route_of(const Communicator&, const UserCall& call) override {
    return {backend_->backend_of(call), backend_->by_nccl(call)};
  }
  std::string explain(const Communicator&, std::optional<Collective>) override { return not_known_yet(); }
  bool can_split(const Communicator&) override { return false; }
  Status split(const Communicator&, Communicator*, double) override { return Status::ok(); }
  bool knows(const Communicator&) override { return true; }
  Status settle(double timeout_s) override { return backend_->settle(timeout_s); }
  Status close(double timeout_s) override { return backend_->close(timeout_s); }
  void abort(const Status& why) override { backend_->abort(why); }

 private:
  const std::unique_ptr<GroupOnGpus> backend_;
};

class BenchOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_.reset();
    fake_.set_device_count(4);
    driver_ = cuda::open_driver({FAKE_CUDA}).value();
    nccl_->run_in_streams(reinterpret_cast<void*>(fake_.enqueue));
  }
  void TearDown() override {
    fake_.reset();
    recorded = nullptr;
  }

  // Returns the fake NCCL with another allreduce.
  std::shared_ptr<const nccl::Api> nccl_with(decltype(nccl::Api::all_reduce) all_reduce) const {
    nccl::Api api = nccl_.api();
    api.all_reduce = all_reduce;
    return std::make_shared<const nccl::Api>(api);
  }

  Result<std::shared_ptr<DeviceCalls>> join(Communicator& group) {
    DeviceCalls::Resources resources;
    resources.driver = driver_;
    resources.api = for_ours_;
    resources.device = group.rank();
    resources.clock = &clock_;
    resources.log = Logger(LogLevel::kError, group.rank(), -1);
    return DeviceCalls::join(group, resources, kLong);
  }

  // Returns a world with runtimes that have these devices.
  testing::WorldOptions world_of(Rank size, const Options& options) {
    const auto make = [this, &options](Runtime& runtime) -> Result<std::shared_ptr<Devices>> {
      Communicator& group = runtime.world();
      Result<std::shared_ptr<DeviceCalls>> joined = Status(Code::kUnsupported, "the test says so");
      if (options.backend != GpuBackend::kStaged) joined = join(group);
      if (recorded != nullptr && joined.is_ok()) recorded->ours = joined.value().get();
      return std::shared_ptr<Devices>(std::make_shared<OneWay>(std::make_unique<GroupOnGpus>(
          group, driver_, group.rank(), joined, Status(Code::kUnsupported, "no peers here"))));
    };
    return {.size = size, .timeout_s = kLong, .log_fd = -1, .make_devices = make};
  }

  Status measure_as_rank(Runtime& runtime, const Options& options, const Case& what, Row& row,
                         const Effort& effort) {
    Communicator& group = runtime.world();
    PC_ASSIGN_OR_RETURN(const std::unique_ptr<Gpu> gpu, Gpu::open(driver_, group.rank(), group));
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<Devices> devices, runtime.devices().get());
    std::unique_ptr<RawNccl> raw;
    if (options.raw) {
      PC_ASSIGN_OR_RETURN(raw, RawNccl::join(group, for_raw_));
    }
    const std::unique_ptr<MeasuredDevice> device = gpu_device({*gpu, *devices, raw.get(), options});
    PC_ASSIGN_OR_RETURN(row, measure(*device, what, 10'000, effort));
    return raw ? raw->close() : Status::ok();
  }

  // Returns the row of every rank.
  std::vector<Row> rows_of(Rank size, const Options& options, const Case& what,
                           const Effort& effort = kLittle) {
    std::vector<Row> rows(static_cast<std::size_t>(size));
    const Outcomes outcomes = testing::run_world(world_of(size, options), [&](Runtime& runtime,
                                                                              Communicator& group) {
      return measure_as_rank(runtime, options, what, rows[static_cast<std::size_t>(group.rank())], effort);
    });
    EXPECT_TRUE(testing::all_ok(outcomes)) << testing::text_of(outcomes);
    return rows;
  }

  const FakeCuda fake_ = FakeCuda::at(FAKE_CUDA);
  nccl::testing::FakeLibrary nccl_{FAKE_NCCL_22809};
  std::shared_ptr<const nccl::Api> for_ours_ = nccl_.shared_api(), for_raw_ = nccl_.shared_api();
  nccl::SteadyClock clock_;
  std::shared_ptr<const cuda::Driver> driver_;
};

Options asked(GpuBackend backend = GpuBackend::kNccl) {
  Options options;
  options.device = DeviceType::kCuda;
  options.backend = backend;
  return options;
}
// Measures out of place and, where the operation allows it, in place.
Case sum_of(const Operation& operation) {
  return {&operation, DType::kF32, ReduceOp::kSum, {}, operation.in_place(), true};
}
Case in_place_of(const char* operation) {
  return {find_operation(operation), DType::kF32, ReduceOp::kSum, {}};
}

TEST_F(BenchOnGpu, every_operation_is_right_by_nccl_and_through_the_host_for_one_rank_and_more) {
  for (const Operation& operation : operations()) {
    if (!operation.collective || !operation.moves_data()) continue;
    for (const Rank size : {1, 3}) {
      for (const GpuBackend backend : {GpuBackend::kNccl, GpuBackend::kStaged}) {
        const std::vector<Row> rows = rows_of(size, asked(backend), sum_of(operation));
        for (const Row& row : rows) {
          ASSERT_TRUE(row.out_of_place) << operation.name;
          EXPECT_EQ(row.out_of_place->wrong, 0u) << operation.name << " of " << size;
          EXPECT_EQ(row.in_place.has_value(), operation.in_place());
          EXPECT_EQ(row.in_place.value_or(Half{.wrong = 0}).wrong, 0u) << operation.name << ", in place";
          EXPECT_EQ(row.out_of_place->time.done.mean_s, rows[0].out_of_place->time.done.mean_s);
          EXPECT_LE(row.out_of_place->time.queued.mean_s, row.out_of_place->time.done.mean_s);
          EXPECT_GT(row.out_of_place->algbw, 0);
        }
      }
    }
  }
}

TEST_F(BenchOnGpu, lists_graphs_and_waiting_calls_are_right_too) {
  Options lists = asked(), graph = asked(), waiting = asked();
  lists.aggregated = 3;
  graph.graph_launches = 2;
  waiting.blocking = true;
  for (const char* const name : {"allreduce", "broadcast", "reduce"}) {
    for (const Options& options : {lists, graph, waiting}) {
      for (const Row& row : rows_of(2, options, in_place_of(name))) {
        ASSERT_TRUE(row.in_place && !row.out_of_place);
        EXPECT_EQ(row.in_place->wrong, 0u) << name;
      }
    }
  }
}

TEST_F(BenchOnGpu, what_is_captured_is_compared_once_and_run_as_often_as_it_is_launched) {
  Options graph = asked();
  graph.graph_launches = 5;
  rows_of(1, graph, in_place_of("allreduce"), {.warm_up = 1, .iterations = 7, .checks = false});
  EXPECT_EQ(fake_.calls("cuGraphLaunch"), 5);
  EXPECT_EQ(fake_.calls("cuGraphInstantiateWithFlags"), 1);
}

TEST_F(BenchOnGpu, nccls_own_calls_are_as_many_and_on_a_communicator_of_their_own) {
  Options compared = asked();
  compared.raw = true;
  for (const Operation& operation : operations()) {
    if (!operation.collective || !has_raw(operation)) continue;
    for (const Rank size : {1, 2}) {
      for (const Row& row : rows_of(size, compared, sum_of(operation))) {
        ASSERT_TRUE(row.out_of_place && row.out_of_place->raw);
        ASSERT_EQ(row.in_place && row.in_place->raw, operation.in_place());
        EXPECT_GT(row.out_of_place->raw->done.mean_s, 0);
        EXPECT_EQ(row.out_of_place->wrong, 0u);
        EXPECT_EQ(row.out_of_place->raw_wrong, 0u) << operation.name << " of " << size;
        if (row.in_place) {
          EXPECT_EQ(row.in_place->raw_wrong, 0u) << operation.name << " of " << size << ", in place";
        }
      }
    }
  }
}

TEST_F(BenchOnGpu, a_wrong_result_of_nccls_own_call_is_counted_and_not_taken_for_ours) {
  for_raw_ = nccl_with(do_nothing);
  Options alone = asked(), lists = asked(), graph = asked();
  lists.aggregated = 3;
  graph.graph_launches = 2;
  for (Options& options : {std::ref(alone), std::ref(lists), std::ref(graph)}) {
    options.raw = true;
    for (const Row& row : rows_of(2, options, in_place_of("allreduce"))) {
      EXPECT_EQ(row.in_place->wrong, 0u);
      ASSERT_TRUE(row.in_place->raw_wrong);
      EXPECT_GT(*row.in_place->raw_wrong,
                // of 2500 elements on each of two ranks; some wrong elements equal the right ones
                // by chance
                4000u * options.aggregated);
    }
  }
  alone.raw = true;
  for (const Row& row :
       rows_of(1, alone, sum_of(*find_operation("allreduce")), {.iterations = 2, .checks = false}))
    EXPECT_FALSE(row.in_place->raw_wrong || row.in_place->wrong);
}

TEST_F(BenchOnGpu, ours_and_nccls_own_take_even_rounds_and_nothing_of_ours_is_left_in_its_round) {
  Recorded all{&nccl_.api()};
  recorded = &all;
  for_ours_ = nccl_with(record_ours);
  for_raw_ = nccl_with(record_raw);
  Options compared = asked();
  compared.raw = true;
  const auto order = [&](const Effort& effort) {
    all.order.clear();
    rows_of(1, compared, in_place_of("allreduce"), effort);
    return all.order;
  };
  EXPECT_EQ(order({.warm_up = 2, .iterations = 1, .checks = false}),
            "oorr"
            "or");
  EXPECT_EQ(order({.warm_up = 1, .iterations = 7, .checks = false}),
            "or"
            "orroorroor"
            "rroo");
  const std::string rounds = "oorrrrrooo";  // 25 calls in rounds of 2 and 3, alternately
  EXPECT_EQ(order({.warm_up = 1, .iterations = 25, .checks = false}),
            "or" + rounds + rounds + rounds + rounds + rounds);
  EXPECT_EQ(all.disturbed, 0);
}

TEST_F(BenchOnGpu, every_round_is_reported_and_the_same_on_all_ranks) {
  Options compared = asked();
  compared.raw = true;
  const std::vector<Row> rows = rows_of(3, compared, sum_of(*find_operation("allreduce")));
  for (const Row& row : rows) {
    for (const Times& time : {row.out_of_place->time, *row.out_of_place->raw}) {
      EXPECT_EQ(time.rounds_s.size(), 6u);
      EXPECT_EQ(time.done.p50_s, percentile(time.rounds_s, 0.50));
      EXPECT_EQ(time.done.p99_s, percentile(time.rounds_s, 0.99));
      EXPECT_LE(*std::min_element(time.rounds_s.begin(), time.rounds_s.end()), time.done.mean_s);
      EXPECT_GE(*std::max_element(time.rounds_s.begin(), time.rounds_s.end()), time.done.mean_s);
    }
    EXPECT_EQ(row.out_of_place->time.rounds_s, rows[0].out_of_place->time.rounds_s);
    EXPECT_EQ(row.out_of_place->raw->rounds_s, rows[0].out_of_place->raw->rounds_s);
  }
  for (const Times& time : {rows[0].out_of_place->time, *rows[0].out_of_place->raw}) {
    EXPECT_GT(time.queued.p50_s, 0);
    EXPECT_GE(time.queued.p99_s, time.queued.p50_s);
  }
}

TEST_F(BenchOnGpu, alltoall_of_a_version_without_a_call_for_it_is_messages_in_one_group) {
  nccl::Api old = nccl_.api();
  old.all_to_all = nullptr;
  old.gather = nullptr;
  old.scatter = nullptr;
  for_ours_ = for_raw_ = std::make_shared<const nccl::Api>(old);
  Options compared = asked();
  compared.raw = true;
  for (const Row& row : rows_of(3, compared, sum_of(*find_operation("alltoall")))) {
    EXPECT_EQ(row.out_of_place->wrong, 0u);
    EXPECT_EQ(row.out_of_place->raw_wrong, 0u);
  }
}

TEST_F(BenchOnGpu, the_drivers_copy_is_timed_by_one_rank_where_it_is_requested) {
  Options copied = asked();
  EXPECT_FALSE(rows_of(2, copied, sum_of(*find_operation("allreduce")))[0].copy_s);
  copied.copy = true;
  const std::vector<Row> rows = rows_of(2, copied, sum_of(*find_operation("allreduce")));
  EXPECT_GT(rows[0].copy_s.value_or(0), 0);
}

TEST_F(BenchOnGpu, beside_nccl_as_many_calls_are_timed_as_without_it) {
  Options compared = asked();
  compared.raw = true;
  for (const uint64_t iterations : {1, 2, 7, 25}) {
    const Effort effort = {.warm_up = 1, .iterations = iterations, .checks = false};
    rows_of(1, compared, in_place_of("allreduce"), effort);
    const std::string calls = nccl_.calls_of_newest();
    std::size_t number = 0;
    for (std::size_t at = calls.find("AllReduce"); at != std::string::npos;
         at = calls.find("AllReduce", at + 1))
      ++number;
    EXPECT_EQ(number, 1 + iterations) << calls;
  }
  compared.graph_launches = 13;
  rows_of(1, compared, in_place_of("allreduce"), {.warm_up = 1, .iterations = 2, .checks = false});
  EXPECT_EQ(fake_.calls("cuGraphLaunch"), 2 * 13);
}

TEST_F(BenchOnGpu, if_rank_0_cannot_connect_nccls_own_calls_all_ranks_say_why) {
  nccl_->fail_next("GetUniqueId", 2, 0);
  // No runtime ends before all ranks have the error, so that no rank sees the death of another one
  // instead.
  std::latch all_know(3);
  const Outcomes outcomes = testing::run_world(
      {.size = 3, .timeout_s = kLong, .shut_down = false, .log_fd = -1}, [&](Runtime&, Communicator& group) {
        const Status joined = RawNccl::join(group, nccl_.shared_api()).status();
        all_know.arrive_and_wait();
        return joined;
      });
  for (const Status& each : outcomes) {
    EXPECT_EQ(each.code(), Code::kInternal) << testing::text_of(outcomes);
    EXPECT_NE(each.message().find("ncclSystemError"), std::string::npos) << testing::text_of(outcomes);
  }
}

TEST_F(BenchOnGpu, a_rank_that_nccls_own_calls_refuse_ends_the_others) {
  nccl_->init_waits_for_all(1);
  nccl_->fail_next("CommInitRankConfig", 2, 0);
  std::latch all_know(3);
  const Outcomes outcomes = testing::run_world(
      {.size = 3, .timeout_s = kLong, .shut_down = false, .log_fd = -1}, [&](Runtime&, Communicator& group) {
        const Status joined = RawNccl::join(group, nccl_.shared_api()).status();
        all_know.arrive_and_wait();
        return joined;
      });
  std::size_t refused = 0, others = 0;
  for (const Status& each : outcomes) {
    refused += each.message().find("ncclSystemError") != std::string::npos ? 1 : 0;
    others += each.code() == Code::kPeerExited ? 1 : 0;
  }
  EXPECT_EQ(refused, 1U) << testing::text_of(outcomes);
  EXPECT_EQ(others, 2U) << testing::text_of(outcomes);
}

TEST_F(BenchOnGpu, every_average_over_the_ranks_is_the_same_on_all) {
  for (const Average average : {Average::kRank0, Average::kMean, Average::kLeast, Average::kMost}) {
    Options options = asked();
    options.average = average;
    const std::vector<Row> rows = rows_of(2, options, sum_of(*find_operation("allreduce")));
    EXPECT_GT(rows[0].in_place->time.done.mean_s, 0);
    EXPECT_EQ(rows[0].in_place->time.done.mean_s, rows[1].in_place->time.done.mean_s);
  }
}

TEST_F(BenchOnGpu, a_result_that_is_not_what_it_must_be_is_counted) {
  Operation other = *find_operation("allreduce");
  other.expected = [](const Asked& how, const Element& e) {
    return find_operation("allreduce")->expected(how, e) + (e.rank == 1 && e.i == 3 ? 1 : 0);
  };
  for (const Row& row : rows_of(2, asked(), sum_of(other))) {
    EXPECT_EQ(row.out_of_place->wrong, 3u);  // elements 3, 1024 and 2045: the pattern has a period of 1021
    EXPECT_EQ(row.in_place->wrong, 3u);
  }
}

TEST_F(BenchOnGpu, elements_that_were_never_written_are_wrong) {
  const Outcomes outcomes = testing::run_world({.size = 1}, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const std::unique_ptr<Gpu> gpu, Gpu::open(driver_, 0, group));
    const ArrayKind kind = {find_operation("allreduce"), DType::kF32, false, 2500, 0, 1};
    PC_ASSIGN_OR_RETURN(GpuArrays arrays, GpuArrays::create(*gpu, kind, 2));
    PC_TRY(arrays.fill({}));
    PC_ASSIGN_OR_RETURN(const uint64_t before, arrays.count_wrong({}));
    EXPECT_EQ(before, 5000u);
    const Arrays second = arrays.copy(1);  // the fake's memory is the host's
    std::memcpy(second.out.data, second.in.data, second.in.nbytes());
    PC_ASSIGN_OR_RETURN(const uint64_t after, arrays.count_wrong({}));
    EXPECT_EQ(after, 2500u);
    return Status::ok();
  });
  EXPECT_TRUE(testing::all_ok(outcomes)) << testing::text_of(outcomes);
}

TEST_F(BenchOnGpu, the_route_of_a_call_has_its_backend_and_the_reason) {
  Options options = asked();
  const Outcomes outcomes =
      testing::run_world(world_of(1, options), [&](Runtime& runtime, Communicator& group) -> Status {
        PC_ASSIGN_OR_RETURN(const std::unique_ptr<Gpu> gpu, Gpu::open(driver_, 0, group));
        PC_ASSIGN_OR_RETURN(const std::shared_ptr<Devices> devices, runtime.devices().get());
        const std::unique_ptr<MeasuredDevice> device = gpu_device({*gpu, *devices, nullptr, options});
        const auto route = [&](const char* name) { return device->route_of(in_place_of(name)).value(); };
        EXPECT_TRUE(route("allreduce").by_nccl.is_ok());
        EXPECT_EQ(route("allreduce").backend, "nccl");
        EXPECT_EQ(route("scan").by_nccl.message(), "NCCL has no scan");
        EXPECT_EQ(route("scan").backend, "staged");
        options.backend = GpuBackend::kStaged;
        EXPECT_EQ(route("allreduce").by_nccl.message(), "--way staged");
        EXPECT_EQ(route("allreduce").backend, "staged");
        options.backend = GpuBackend::kAuto;
        options.graph_launches = 1;
        EXPECT_EQ(device->route_of(in_place_of("scan")).status().message(),
                  "-G: what goes into a CUDA graph goes by NCCL, and this call does not go there: NCCL has "
                  "no scan");
        return Status::ok();
      });
  EXPECT_TRUE(testing::all_ok(outcomes)) << testing::text_of(outcomes);
}

}  // namespace
}  // namespace pc::bench
