// External operations on a stream of the fake driver wait, run and end like the driver's own.
#include <atomic>
#include <optional>
#include <thread>

#include "gpu/cuda/copy.h"
#include "gpu/cuda/fake_gpu.h"
#include "gpu/cuda/memory.h"
#include "gpu/cuda/stream.h"

namespace pc::cuda {
namespace {

struct Played {
  std::atomic<bool> may{true};
  std::atomic<int> asked{0}, runs{0}, drops{0};
};

class FakeOperations : public FakeGpu {
 protected:
  void SetUp() override {
    FakeGpu::SetUp();
    context.emplace(gpu());
    current.emplace(value_of(context->enter()));
  }
  void TearDown() override {
    current.reset();
    FakeGpu::TearDown();
  }
  int enqueue(CUstream stream, Played& what) const {
    return fake.enqueue(
        stream,
        [](void* data) {
          Played& its = *static_cast<Played*>(data);
          ++its.asked;
          return its.may ? 1 : 0;
        },
        [](void* data) { ++static_cast<Played*>(data)->runs; },
        [](void* data) { ++static_cast<Played*>(data)->drops; }, &what);
  }

  std::optional<Context> context;
  std::optional<ContextGuard> current;
};

TEST_F(FakeOperations, run_once_when_they_are_ready_and_let_nothing_pass) {
  const DeviceMemory memory = value_of(DeviceMemory::allocate(*context, 4));
  const auto* const byte = reinterpret_cast<const unsigned char*>(memory.at());
  const Stream stream = value_of(Stream::create(*context));
  EXPECT_OK(fill_bytes(*driver, memory.at(), 1, 4, stream.get()));
  fake.drain(stream.get());
  Played what;
  what.may = false;
  EXPECT_EQ(enqueue(stream.get(), what), 0);
  EXPECT_OK(fill_bytes(*driver, memory.at(), 2, 4, stream.get()));
  while (what.asked < 3) std::this_thread::yield();
  EXPECT_EQ(fake.queued(stream.get()), 2);
  EXPECT_EQ(*byte, 1);
  EXPECT_EQ(what.runs + what.drops, 0);
  what.may = true;
  fake.drain(stream.get());
  EXPECT_EQ(*byte, 2);
  EXPECT_EQ(what.runs, 1);
  EXPECT_EQ(what.drops, 1);
}

TEST_F(FakeOperations, of_a_held_stream_are_not_polled) {
  const Stream stream = value_of(Stream::create(*context));
  Played what;
  fake.hold_stream(stream.get());
  EXPECT_EQ(enqueue(stream.get(), what), 0);
  const Stream other = value_of(Stream::create(*context));
  Played next;
  enqueue(other.get(), next);
  fake.drain(other.get());
  EXPECT_EQ(what.asked, 0);
  fake.step(stream.get(), 1);
  EXPECT_EQ(what.runs, 1);
}

TEST_F(FakeOperations, of_a_graph_run_with_every_replay_and_go_with_the_graph) {
  const Stream stream = value_of(Stream::create(*context));
  Played what;
  fake.begin_capture(stream.get());
  EXPECT_EQ(enqueue(stream.get(), what), 1);
  EXPECT_EQ(fake.end_capture(stream.get()), 1);
  fake.drain(stream.get());
  EXPECT_EQ(what.runs, 0);
  for (int i = 0; i < 3; ++i) fake.replay(stream.get());
  fake.drain(stream.get());
  EXPECT_EQ(what.runs, 3);
  EXPECT_EQ(what.drops, 0);
  fake.begin_capture(stream.get());  // another graph
  EXPECT_EQ(what.drops, 1);
  fake.end_capture(stream.get());
}

TEST_F(FakeOperations, that_never_run_are_dropped_when_the_driver_is_as_new) {
  Played queued, captured;
  fake.hold_stream(nullptr);
  EXPECT_EQ(enqueue(nullptr, queued), 0);
  fake.begin_capture(nullptr);
  EXPECT_EQ(enqueue(nullptr, captured), 1);
  current.reset();
  fake.reset();
  for (const Played* each : {&queued, &captured}) {
    EXPECT_EQ(each->runs, 0);
    EXPECT_EQ(each->drops, 1);
  }
}

TEST_F(FakeOperations, without_a_stream_that_takes_them_are_dropped_at_once) {
  Played nowhere, spoiled;
  EXPECT_EQ(enqueue(reinterpret_cast<CUstream>(uintptr_t{4096}), nowhere), -1);
  EXPECT_EQ(nowhere.drops, 1);
  const Stream stream = value_of(Stream::create(*context));
  fake.begin_capture(stream.get());
  EXPECT_NE(driver->cuStreamQuery(stream.get()), CUDA_SUCCESS);
  EXPECT_EQ(enqueue(stream.get(), spoiled), -1);
  EXPECT_EQ(spoiled.drops, 1);
  EXPECT_EQ(fake.end_capture(stream.get()), -1);
}

}  // namespace
}  // namespace pc::cuda
