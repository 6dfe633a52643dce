// Work that is captured into a CUDA graph and replayed.
#include "gpu/cuda/graph.h"

#include <array>
#include <string>

#include "gpu/cuda/copy.h"
#include "gpu/cuda/fake_gpu.h"
#include "gpu/cuda/memory.h"
#include "gpu/cuda/stream.h"

namespace pc::cuda {
namespace {

class GraphTest : public FakeGpu {};

TEST_F(GraphTest, what_was_captured_runs_whenever_it_is_launched) {
  const Context context = gpu();
  const ContextGuard current = value_of(context.enter());
  const Stream stream = value_of(Stream::create(context));
  const PinnedMemory from = value_of(PinnedMemory::allocate(context, 8));
  const DeviceMemory to = value_of(DeviceMemory::allocate(context, 8));
  const auto* const found = reinterpret_cast<const std::byte*>(to.at());  // the fake's memory is the host's
  const auto copy = [&] { return copy_to_device(*driver, to.at(), from.bytes(), stream.get()); };
  EXPECT_OK(fill_bytes(*driver, to.at(), 1, 8, stream.get()));
  {
    const Graph graph = value_of(Graph::capture(context, stream.get(), copy));
    EXPECT_FALSE(value_of(is_capturing(*driver, stream.get())));
    fake.drain(stream.get());
    EXPECT_EQ(found[7], std::byte{1}) << "a capture does nothing";
    for (const std::byte value : {std::byte{2}, std::byte{3}}) {
      from.bytes()[7] = value;
      EXPECT_OK(graph.launch(stream.get()));
      fake.drain(stream.get());
      EXPECT_EQ(found[7], value);
    }
  }
  EXPECT_EQ(fake.calls("cuGraphDestroy"), 1);
  EXPECT_EQ(fake.calls("cuGraphExecDestroy"), 1);
}

TEST_F(GraphTest, what_fails_while_it_is_captured_leaves_the_stream_as_it_was) {
  const Context context = gpu();
  const ContextGuard current = value_of(context.enter());
  const Stream stream = value_of(Stream::create(context));
  const Result<Graph> graph = Graph::capture(
      context, stream.get(), [] { return Status(Code::kUnsupported, "this goes into no graph"); });
  EXPECT_EQ(graph.status().message(), "this goes into no graph");
  EXPECT_FALSE(value_of(is_capturing(*driver, stream.get())));
  EXPECT_EQ(fake.calls("cuGraphDestroy"), 1);
}

TEST_F(GraphTest, a_driver_without_graphs_names_the_function_that_it_lacks) {
  for (const char* const missing :
       {"cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch",
        "cuGraphExecDestroy", "cuGraphDestroy"}) {
    fake.reset();
    fake.hide(missing);
    const auto old = value_of(open_driver({FAKE_CUDA}));
    const Context context = value_of(Context::primary(old, 0));
    const ContextGuard current = value_of(context.enter());
    const Result<Graph> graph = Graph::capture(context, nullptr, [] { return Status::ok(); });
    EXPECT_EQ(graph.status().code(), Code::kUnsupported);
    EXPECT_TRUE(graph.status().message().ends_with(std::string("has no ") + missing))
        << graph.status().message();
  }
}

}  // namespace
}  // namespace pc::cuda
