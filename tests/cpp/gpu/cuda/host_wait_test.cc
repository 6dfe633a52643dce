// The host waits for a GPU, and everything that may end such a wait ends it. Sleeps are emulated:
// no test sleeps.
#include "gpu/cuda/host_wait.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "gpu/cuda/event.h"
#include "gpu/cuda/fake_gpu.h"
#include "gpu/cuda/stream.h"

namespace pc::cuda {
namespace {

using std::chrono::microseconds;

class HostWaitTest : public FakeGpu {
 protected:
  void SetUp() override {
    FakeGpu::SetUp();
    context.emplace(gpu());
    current.emplace(value_of(context->enter()));
    stream.emplace(value_of(Stream::create(*context)));
    event.emplace(value_of(Event::create(*context)));
    fake.hold_stream(stream->get());
    ASSERT_TRUE(record(*driver, event->get(), stream->get()).is_ok());
  }
  void TearDown() override {
    fake.release_stream(stream->get());
    fake.drain_all();
    event.reset();
    stream.reset();
    current.reset();
    FakeGpu::TearDown();
  }
  // Records each sleep, and calls `happens` at the third.
  HostWait wait(std::function<void()> happens = {}, Deadline deadline = Deadline::after(600)) {
    HostWait made{WaitContext{deadline}};
    made.nap = [this, happens](microseconds nap) {
      naps.push_back(nap);
      if (happens && naps.size() == 3) happens();
    };
    return made;
  }
  Result<WaitEnd> wait_on(const HostWait& how) { return wait_on_host(*driver, event->get(), how); }

  std::optional<Context> context;
  std::optional<ContextGuard> current;
  std::optional<Stream> stream;
  std::optional<Event> event;
  std::vector<microseconds> naps;
};

TEST_F(HostWaitTest, ends_when_the_event_is_reached) {
  EXPECT_EQ(value_of(wait_on(wait([&] { fake.step(stream->get(), 1); }))), WaitEnd::kReady);
  EXPECT_EQ(naps.size(), 3U);
}

TEST_F(HostWaitTest, is_no_wait_when_the_event_was_reached_before) {
  fake.step(stream->get(), 1);
  EXPECT_EQ(value_of(wait_on(wait({}, Deadline::after(0)))), WaitEnd::kReady);
  EXPECT_TRUE(naps.empty());
}

TEST_F(HostWaitTest, ends_at_the_deadline) {
  EXPECT_EQ(value_of(wait_on(wait({}, Deadline::after(0)))), WaitEnd::kTimeout);
}

TEST_F(HostWaitTest, ends_on_an_abort_or_an_interrupt) {
  std::atomic<uint32_t> abort_word{0};
  HostWait aborted = wait([&] { abort_word = 1; });
  aborted.context.abort_word = &abort_word;
  EXPECT_EQ(value_of(wait_on(aborted)), WaitEnd::kAborted);

  naps.clear();
  bool pressed = false;
  const std::function<bool()> interrupted = [&] { return pressed; };
  HostWait ctrl_c = wait([&] { pressed = true; });
  ctrl_c.context.interrupted = &interrupted;
  EXPECT_EQ(value_of(wait_on(ctrl_c)), WaitEnd::kInterrupted);
}

TEST_F(HostWaitTest, ends_with_the_failure_that_its_trouble_function_returns) {
  Status trouble;
  HostWait how = wait([&] { trouble = Status(Code::kPeerFailure, "rank 3 is gone"); });
  how.trouble = [&] { return trouble; };
  const Result<WaitEnd> end = wait_on(how);
  ASSERT_FALSE(end.is_ok());
  EXPECT_EQ(end.status().message(), "rank 3 is gone");
}

TEST_F(HostWaitTest, ends_with_the_error_of_the_gpu) {
  const Result<WaitEnd> end = wait_on(wait([&] { fake.break_contexts(CUDA_ERROR_ILLEGAL_ADDRESS); }));
  ASSERT_FALSE(end.is_ok());
  EXPECT_HAS(end.status().message(), "cuEventQuery: an illegal memory access was encountered");
  EXPECT_HAS(end.status().message(), "its context is lost");
  fake.break_contexts(CUDA_SUCCESS);
}

TEST_F(HostWaitTest, naps_grow_to_a_millisecond_and_no_further) {
  int naps_left = 40;
  HostWait how = wait();
  const std::function<void(microseconds)> keep = how.nap;
  how.nap = [&](microseconds nap) {
    keep(nap);
    if (--naps_left == 0) fake.step(stream->get(), 1);
  };
  EXPECT_EQ(value_of(wait_on(how)), WaitEnd::kReady);
  EXPECT_EQ(naps.front(), microseconds(25));  // an eighth of the time that it has waited already
  EXPECT_EQ(naps.back(), microseconds(1000));
  EXPECT_TRUE(std::is_sorted(naps.begin(), naps.end()));
}

TEST_F(HostWaitTest, leaves_captures_of_other_threads_alone) {
  const Stream theirs = value_of(Stream::create(*context));
  std::thread([&] { value_of(context->enter()), fake.begin_capture(theirs.get()); }).join();
  EXPECT_EQ(value_of(wait_on(wait([&] { fake.step(stream->get(), 1); }))), WaitEnd::kReady);
  EXPECT_EQ(fake.capture_status(theirs.get()), CU_STREAM_CAPTURE_STATUS_ACTIVE);
}

TEST_F(HostWaitTest, waits_for_any_predicate) {
  int asked = 0;
  const auto third = [&]() -> Result<bool> { return ++asked == 300; };
  EXPECT_EQ(value_of(wait_on_host(third, wait())), WaitEnd::kReady);
  EXPECT_EQ(asked, 300);
}

}  // namespace
}  // namespace pc::cuda
