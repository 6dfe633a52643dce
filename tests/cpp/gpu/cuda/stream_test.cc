// Work in streams: order within a stream, order between streams by events and by words of memory,
// and queries.
#include "gpu/cuda/stream.h"

#include <array>
#include <cstring>
#include <thread>

#include "gpu/cuda/copy.h"
#include "gpu/cuda/event.h"
#include "gpu/cuda/fake_gpu.h"
#include "gpu/cuda/memory.h"
#include "gpu/cuda/stream_values.h"

namespace pc::cuda {
namespace {

class StreamTest : public FakeGpu {
 protected:
  void SetUp() override {
    FakeGpu::SetUp();
    context.emplace(gpu());
    current.emplace(value_of(context->enter()));
    pinned.emplace(value_of(PinnedMemory::allocate(*context, 4096)));
    memory.emplace(value_of(DeviceMemory::allocate(*context, 4096)));
  }
  void TearDown() override {
    memory.reset();
    pinned.reset();
    current.reset();
    FakeGpu::TearDown();
  }
  Stream stream() { return value_of(Stream::create(*context)); }
  uint32_t* words() { return reinterpret_cast<uint32_t*>(pinned->bytes().data()); }
  std::span<std::byte> word(int i) { return pinned->bytes().subspan(static_cast<std::size_t>(i) * 4, 4); }
  uint32_t read(int i) { return __atomic_load_n(words() + i, __ATOMIC_ACQUIRE); }

  std::optional<Context> context;
  std::optional<ContextGuard> current;
  std::optional<PinnedMemory> pinned;
  std::optional<DeviceMemory> memory;
};

TEST_F(StreamTest, copies_go_there_on_and_back_in_order) {
  const Stream queue = stream();
  words()[0] = 4711;
  EXPECT_OK(copy_to_device(*driver, memory->at(), word(0), queue.get()));
  EXPECT_OK(copy_on_device(*driver, memory->at() + 64, memory->at(), 4, queue.get()));
  EXPECT_OK(copy_to_host(*driver, word(1), memory->at() + 64, queue.get()));
  EXPECT_OK(fill_bytes(*driver, memory->at(), 0xff, 4, queue.get()));
  EXPECT_OK(copy_to_host(*driver, word(2), memory->at(), queue.get()));
  fake.drain(queue.get());
  EXPECT_EQ(read(1), 4711U);
  EXPECT_EQ(read(2), 0xffffffffU);
  EXPECT_EQ(fake.calls("pageable"), 0);
}

TEST_F(StreamTest, empty_copies_are_no_calls) {
  EXPECT_OK(copy_to_device(*driver, 0, {}, nullptr));
  EXPECT_OK(copy_to_host(*driver, {}, 0, nullptr));
  EXPECT_OK(copy_on_device(*driver, 0, 0, 0, nullptr));
  EXPECT_OK(fill_bytes(*driver, 0, 0, 0, nullptr));
  EXPECT_EQ(fake.calls("cuMemcpyHtoDAsync") + fake.calls("cuMemcpyDtoHAsync") +
                fake.calls("cuMemcpyDtoDAsync") + fake.calls("cuMemsetD8Async"),
            0);
}

TEST_F(StreamTest, a_copy_of_foreign_memory_says_which_call_and_how_much) {
  const Status error = copy_on_device(*driver, memory->at(), 64, 2048, nullptr);
  EXPECT_HAS(error.message(), "cuMemcpyDtoDAsync(2 KiB): invalid argument (CUDA_ERROR_INVALID_VALUE, 1)");
}

TEST_F(StreamTest, is_done_when_its_last_work_is) {
  const Stream queue = stream();
  EXPECT_TRUE(value_of(is_done(*driver, queue.get())));
  fake.hold_stream(queue.get());
  EXPECT_OK(fill_bytes(*driver, memory->at(), 0, 4, queue.get()));
  EXPECT_FALSE(value_of(is_done(*driver, queue.get())));
  fake.step(queue.get(), 1);
  EXPECT_TRUE(value_of(is_done(*driver, queue.get())));
}

TEST_F(StreamTest, a_stream_waits_for_another_by_an_event) {
  const Stream first = stream(), second = stream();
  const Event event = value_of(Event::create(*context));
  fake.hold_stream(first.get());
  EXPECT_OK(fill_bytes(*driver, memory->at(), 0x11, 4, first.get()));
  EXPECT_OK(record(*driver, event.get(), first.get()));
  EXPECT_OK(stream_waits(*driver, second.get(), event.get()));
  EXPECT_OK(copy_to_host(*driver, word(0), memory->at(), second.get()));
  EXPECT_EQ(fake.queued(second.get()), 2);
  EXPECT_FALSE(value_of(is_reached(*driver, event.get())));
  fake.release_stream(first.get());
  fake.drain(second.get());
  EXPECT_EQ(read(0), 0x11111111U);
  EXPECT_TRUE(value_of(is_reached(*driver, event.get())));
}

TEST_F(StreamTest, an_event_that_was_never_recorded_is_reached_and_no_stream_waits_for_it) {
  const Stream queue = stream();
  const Event event = value_of(Event::create(*context));
  EXPECT_TRUE(value_of(is_reached(*driver, event.get())));
  EXPECT_OK(stream_waits(*driver, queue.get(), event.get()));
  fake.drain(queue.get());
}

TEST_F(StreamTest, a_wait_means_the_records_before_it_and_not_those_after) {
  const Stream first = stream(), second = stream();
  const Event event = value_of(Event::create(*context));
  fake.hold_stream(first.get());
  EXPECT_OK(record(*driver, event.get(), first.get()));
  EXPECT_OK(stream_waits(*driver, second.get(), event.get()));
  EXPECT_OK(record(*driver, event.get(), first.get()));
  fake.step(first.get(), 1);
  fake.drain(second.get());
  EXPECT_FALSE(value_of(is_reached(*driver, event.get()))) << "the newest record is not reached";
  fake.release_stream(first.get());
  fake.drain_all();
}

TEST_F(StreamTest, an_event_of_another_gpu_is_refused) {
  const Stream queue = stream();
  fake.set_device_count(2);
  const Event event = value_of(Event::create(gpu(1)));
  EXPECT_HAS(record(*driver, event.get(), queue.get()).message(), "cuEventRecord: invalid resource handle");
}

TEST_F(StreamTest, words_of_memory_order_streams) {
  const Stream writer = stream(), waiter = stream();
  fake.hold_stream(writer.get());
  EXPECT_OK(fill_bytes(*driver, memory->at(), 0, 64, waiter.get()));
  fake.drain(waiter.get());
  EXPECT_OK(await_value(*driver, waiter.get(), memory->at() + 32, 2));
  EXPECT_OK(fill_bytes(*driver, memory->at() + 128, 0x22, 4, waiter.get()));
  EXPECT_OK(copy_to_host(*driver, word(0), memory->at() + 128, waiter.get()));
  EXPECT_OK(write_value(*driver, writer.get(), memory->at() + 32, 1));
  EXPECT_OK(write_value(*driver, writer.get(), memory->at() + 32, 2));
  fake.step(writer.get(), 1);
  EXPECT_EQ(fake.queued(waiter.get()), 3) << "1 is not enough";
  fake.step(writer.get(), 1);
  fake.drain(waiter.get());
  EXPECT_EQ(read(0), 0x22222222U);
}

TEST_F(StreamTest, words_count_in_a_circle) {
  const Stream queue = stream();
  EXPECT_OK(write_value(*driver, queue.get(), memory->at(), 3));
  EXPECT_OK(await_value(*driver, queue.get(), memory->at(), 0xfffffff0U));
  fake.drain(queue.get());
}

TEST_F(StreamTest, without_the_functions_words_are_unsupported) {
  Driver without = *driver;
  without.cuStreamWriteValue32 = nullptr;
  without.cuStreamWaitValue32 = nullptr;
  EXPECT_HAS(write_value(without, nullptr, memory->at(), 1).message(), "has no cuStreamWriteValue32");
  EXPECT_EQ(await_value(without, nullptr, memory->at(), 1).code(), Code::kUnsupported);
}

TEST_F(StreamTest, what_is_captured_goes_into_a_graph_and_is_done_when_that_is_launched) {
  const Stream queue = stream();
  EXPECT_FALSE(value_of(is_capturing(*driver, queue.get())));
  words()[0] = 0;
  fake.begin_capture(queue.get());
  EXPECT_TRUE(value_of(is_capturing(*driver, queue.get())));
  EXPECT_OK(fill_bytes(*driver, memory->at(), 0x33, 4, queue.get()));
  EXPECT_OK(copy_to_host(*driver, word(0), memory->at(), queue.get()));
  EXPECT_EQ(fake.end_capture(queue.get()), 2);
  fake.drain(queue.get());
  EXPECT_EQ(read(0), 0U);
  fake.replay(queue.get());
  fake.drain(queue.get());
  EXPECT_EQ(read(0), 0x33333333U);
}

TEST_F(StreamTest, our_calls_do_not_end_what_another_thread_captures) {
  const Stream theirs = stream();
  std::thread([&] { value_of(context->enter()), fake.begin_capture(theirs.get()); }).join();
  {
    const Stream ours = stream();
    const Event event = value_of(Event::create(*context));
    EXPECT_OK(record(*driver, event.get(), ours.get()));
    fake.drain(ours.get());
    EXPECT_TRUE(value_of(is_reached(*driver, event.get())));
    EXPECT_TRUE(value_of(is_done(*driver, ours.get())));
    const DeviceMemory more = value_of(DeviceMemory::allocate(*context, 64));
  }
  EXPECT_EQ(fake.capture_status(theirs.get()), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_NE(driver->cuStreamQuery(nullptr), CUDA_SUCCESS) << "a bare query would end it";
  EXPECT_EQ(fake.capture_status(theirs.get()), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  const Result<bool> capturing = is_capturing(*driver, theirs.get());
  ASSERT_FALSE(capturing.is_ok());
  EXPECT_EQ(capturing.status().code(), Code::kUnsupported);
}

TEST_F(StreamTest, work_of_a_stream_goes_on_after_the_stream) {
  {
    const Stream queue = stream();
    EXPECT_OK(fill_bytes(*driver, memory->at(), 0x44, 4, queue.get()));
    EXPECT_OK(copy_to_host(*driver, word(0), memory->at(), queue.get()));
  }
  fake.drain_all();
  EXPECT_EQ(read(0), 0x44444444U);
}

TEST_F(StreamTest, events_of_a_pool_are_used_again_and_may_outlive_it) {
  std::optional<EventPool> pool(std::in_place, *context);
  CUevent first = nullptr;
  {
    const EventPool::Lease lease = value_of(pool->take());
    first = lease.get();
    const EventPool::Lease another = value_of(pool->take());
    EXPECT_NE(another.get(), first);
  }
  EXPECT_EQ(fake.live("event"), 2);
  const EventPool::Lease a = value_of(pool->take()), b = value_of(pool->take());
  EXPECT_EQ(fake.calls("cuEventCreate"), 2);
  EXPECT_TRUE(a.get() == first || b.get() == first);
  pool.reset();
  EXPECT_EQ(fake.live("event"), 2);
}

TEST_F(StreamTest, a_stream_or_event_that_cannot_be_made_says_so) {
  fake.fail_next("cuStreamCreate", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_HAS(Stream::create(*context).status().message(), "cuStreamCreate: out of memory");
  fake.fail_next("cuEventCreate", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_HAS(EventPool(*context).take().status().message(), "cuEventCreate: out of memory");
}

}  // namespace
}  // namespace pc::cuda
