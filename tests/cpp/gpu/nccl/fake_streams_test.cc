// The fake NCCL in the streams of the fake driver, as executors and the Python tests use it: when
// calls run there, in which order, and how they end.
#include <algorithm>
#include <optional>
#include <vector>

#include "fakes/cuda/fake_cuda.h"
#include "gpu/cuda/stream.h"
#include "gpu/nccl/collectives.h"
#include "gpu/nccl/fake_library.h"

namespace pc::nccl::testing {
namespace {

constexpr std::size_t kFew = 5;

class NcclFakeStreams : public ::testing::Test {
 protected:
  struct OnGpu {
    cuda::Context context;
    cuda::Stream stream, beside;
    std::unique_ptr<Communicator> communicator;
    std::vector<float> x;  // on rank r all elements are r + 1
  };

  void SetUp() override {
    fake.reset();
    fake.set_device_count(3);
    driver = cuda::open_driver({FAKE_CUDA}).value();
    library->run_in_streams(reinterpret_cast<void*>(fake.enqueue));
  }
  void TearDown() override {
    for (OnGpu& each : ranks) {
      fake.release_stream(each.stream.get());
      if (each.communicator->state() == State::kReady) {
        EXPECT_TRUE(each.communicator->close(soon()).is_ok());
      } else if (each.communicator->state() == State::kFailed) {
        EXPECT_TRUE(each.communicator->abort(Status(Code::kAborted, "the test is over")).is_ok());
      }
    }
    ranks.clear();
    fake.reset();
  }
  WaitContext soon() { return WaitContext{clock.in(60)}; }

  void make_ranks(Rank size) {
    auto joined = join_all({library.shared_api(), &clock, Logger(LogLevel::kError)}, size, soon());
    for (Rank rank = 0; rank < size; ++rank) {
      const cuda::Context context = cuda::Context::primary(driver, rank).value();
      ranks.push_back({context, cuda::Stream::create(context).value(), cuda::Stream::create(context).value(),
                       std::move(joined[static_cast<std::size_t>(rank)]),
                       std::vector<float>(kFew, static_cast<float>(rank + 1))});
    }
  }
  static ConstBuffer in(const std::vector<float>& x) {
    return {reinterpret_cast<const std::byte*>(x.data()), x.size(), DType::kF32};
  }
  static Buffer out(std::vector<float>& x) {
    return {reinterpret_cast<std::byte*>(x.data()), x.size(), DType::kF32};
  }
  void allreduce(OnGpu& rank, cuda::CUstream stream, ReduceOp op = ReduceOp::kSum) {
    Request request;
    request.collective = Collective::kAllreduce;
    request.in = in(rank.x);
    request.out = out(rank.x);
    request.op = op;
    request.stream = stream;
    const Status issued = issue(*rank.communicator, request, nullptr, soon());
    EXPECT_TRUE(issued.is_ok()) << issued.to_string();
  }
  void allreduce(OnGpu& rank) { allreduce(rank, rank.stream.get()); }
  void drain(const OnGpu& rank) const { fake.drain(rank.stream.get()); }
  int queued(const OnGpu& rank) const { return fake.queued(rank.stream.get()); }
  static void expect(const OnGpu& rank, float value) {
    EXPECT_EQ(rank.x, std::vector<float>(rank.x.size(), value));
  }

  const FakeCuda fake = FakeCuda::at(FAKE_CUDA);
  StepClock clock;
  FakeLibrary library{FAKE_NCCL_22809};
  std::shared_ptr<const cuda::Driver> driver;
  std::vector<OnGpu> ranks;
};

TEST_F(NcclFakeStreams, a_collective_runs_when_the_streams_of_all_ranks_have_reached_it) {
  make_ranks(3);
  fake.hold_stream(ranks[1].stream.get());
  for (OnGpu& each : ranks) allreduce(each);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    EXPECT_EQ(queued(ranks[r]), 1);
    expect(ranks[r], static_cast<float>(r + 1));
  }
  fake.step(ranks[1].stream.get(), 1);
  for (const OnGpu& each : ranks) {
    drain(each);
    expect(each, 6);
  }
}

TEST_F(NcclFakeStreams, grouped_calls_run_together_so_that_messages_pass_each_other) {
  make_ranks(3);
  std::vector<std::vector<float>> received(3, std::vector<float>(kFew));
  for (Rank r = 0; r < 3; ++r) {
    OnGpu& rank = ranks[static_cast<std::size_t>(r)];
    const Status issued =
        issue_sendrecv(*rank.communicator, in(rank.x), (r + 1) % 3,
                       out(received[static_cast<std::size_t>(r)]), (r + 2) % 3, rank.stream.get(), soon());
    EXPECT_TRUE(issued.is_ok()) << issued.to_string();
    if (r < 2) {
      EXPECT_EQ(queued(rank), 1);
    }
  }
  for (std::size_t r = 0; r < 3; ++r) {
    drain(ranks[r]);
    EXPECT_EQ(received[r], ranks[(r + 2) % 3].x);
  }
}

TEST_F(NcclFakeStreams, a_message_waits_for_the_stream_of_its_peer) {
  make_ranks(2);
  fake.hold_stream(ranks[1].stream.get());
  std::vector<float> received(kFew);
  EXPECT_TRUE(issue_send(*ranks[0].communicator, in(ranks[0].x), 1, ranks[0].stream.get(), soon()).is_ok());
  EXPECT_TRUE(issue_recv(*ranks[1].communicator, out(received), 0, ranks[1].stream.get(), soon()).is_ok());
  EXPECT_EQ(queued(ranks[0]), 1);
  fake.step(ranks[1].stream.get(), 1);
  drain(ranks[0]);
  EXPECT_EQ(received, ranks[0].x);
}

TEST_F(NcclFakeStreams, calls_of_one_communicator_on_several_streams_go_in_the_order_of_issue) {
  make_ranks(2);
  for (int round = 0; round < 20; ++round) {
    for (std::size_t r = 0; r < 2; ++r) {
      OnGpu& each = ranks[r];
      std::fill(each.x.begin(), each.x.end(), static_cast<float>(r + 1));
      fake.hold_stream(each.stream.get());
      allreduce(each, each.stream.get());
      allreduce(each, each.beside.get(), ReduceOp::kProd);
    }
    for (std::size_t r = 0; r < 2; ++r) {
      EXPECT_EQ(fake.queued(ranks[r].beside.get()), 1);
      expect(ranks[r], static_cast<float>(r + 1));
    }
    for (const OnGpu& each : ranks) fake.release_stream(each.stream.get());
    for (const OnGpu& each : ranks) fake.drain(each.beside.get());
    for (const OnGpu& each : ranks) expect(each, 9);  // (1 + 2) * (1 + 2), and not 1 * 2 + 1 * 2
  }
}

TEST_F(NcclFakeStreams, what_is_in_a_graph_runs_whenever_that_is_replayed) {
  make_ranks(2);
  for (OnGpu& each : ranks) {
    fake.begin_capture(each.stream.get());
    allreduce(each);
    EXPECT_EQ(fake.end_capture(each.stream.get()), 1);
    expect(each, static_cast<float>(&each - ranks.data() + 1));
  }
  for (int round = 0; round < 3; ++round) {
    for (OnGpu& each : ranks) {
      std::fill(each.x.begin(), each.x.end(), static_cast<float>(round + 1));
      fake.replay(each.stream.get());
      allreduce(each, each.stream.get(), ReduceOp::kProd);  // in no graph
      fake.replay(each.stream.get());
    }
    const float sum = static_cast<float>(2 * (round + 1));
    for (const OnGpu& each : ranks) {
      drain(each);
      expect(each, 2 * sum * sum);
    }
  }
}

TEST_F(NcclFakeStreams, after_an_abort_the_streams_of_its_rank_go_on_and_nothing_is_moved) {
  make_ranks(2);
  fake.hold_stream(ranks[1].stream.get());
  for (OnGpu& each : ranks) {
    allreduce(each);
    allreduce(each, each.beside.get());
  }
  EXPECT_TRUE(ranks[0].communicator->abort(Status(Code::kAborted, "enough")).is_ok());
  drain(ranks[0]);
  fake.drain(ranks[0].beside.get());
  fake.release_stream(ranks[1].stream.get());
  EXPECT_EQ(queued(ranks[1]), 1) << "it waits for a rank that never comes";
  EXPECT_TRUE(ranks[1].communicator->abort(Status(Code::kAborted, "enough")).is_ok());
  drain(ranks[1]);
  fake.drain(ranks[1].beside.get());
  expect(ranks[0], 1);
  expect(ranks[1], 2);
}

TEST_F(NcclFakeStreams, what_is_refused_is_on_no_stream) {
  make_ranks(1);
  fake.hold_stream(ranks[0].stream.get());
  library->fail_next("GroupEnd", 4, 0);
  EXPECT_FALSE(issue_send(*ranks[0].communicator, in(ranks[0].x), 0, ranks[0].stream.get(), soon()).is_ok());
  EXPECT_EQ(queued(ranks[0]), 0);
}

TEST_F(NcclFakeStreams, a_group_on_several_streams_is_more_than_they_play) {
  make_ranks(1);
  OnGpu& rank = ranks[0];
  std::vector<float> received(kFew);
  const Status issued = rank.communicator->grouped(soon(), [&](Issue& issue) {
    issue.took("ncclSend",
               issue.api().send(rank.x.data(), kFew, DataType::kFloat32, 0, issue.comm(), rank.stream.get()));
    issue.took("ncclRecv", issue.api().recv(received.data(), kFew, DataType::kFloat32, 0, issue.comm(),
                                            rank.beside.get()));
  });
  EXPECT_TRUE(issued.is_ok()) << issued.to_string();
  fake.drain_all();
  EXPECT_STREQ(library->violations(), "the fake plays no group on several streams; ");
  EXPECT_TRUE(rank.communicator->close(soon()).is_ok());
  library->reset();
}

}  // namespace
}  // namespace pc::nccl::testing
