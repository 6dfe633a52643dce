// Memory and events of one process, used by another: through handles, and through descriptors.
#include "gpu/cuda/ipc.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "gpu/cuda/copy.h"
#include "gpu/cuda/fake_gpu.h"
#include "gpu/cuda/memory.h"
#include "gpu/cuda/shareable_memory.h"
#include "gpu/cuda/stream.h"

namespace pc::cuda {
namespace {

class IpcTest : public FakeGpu {
 protected:
  void SetUp() override {
    FakeGpu::SetUp();
    context.emplace(gpu());
    current.emplace(value_of(context->enter()));
    stream.emplace(value_of(Stream::create(*context)));
  }
  void TearDown() override {
    stream.reset();
    current.reset();
    FakeGpu::TearDown();
  }
  void fill(CUdeviceptr at, unsigned char value, std::size_t nbytes) {
    EXPECT_OK(fill_bytes(*driver, at, value, nbytes, stream->get()));
    fake.drain(stream->get());
  }
  unsigned char first_byte(CUdeviceptr at) {
    const PinnedMemory here = value_of(PinnedMemory::allocate(*context, 1));
    EXPECT_OK(copy_to_host(*driver, here.bytes(), at, stream->get()));
    fake.drain(stream->get());
    return static_cast<unsigned char>(here.bytes()[0]);
  }
  std::optional<Context> context;
  std::optional<ContextGuard> current;
  std::optional<Stream> stream;
};

TEST_F(IpcTest, a_piece_of_an_allocation_is_found_where_it_was) {
  const DeviceMemory memory = value_of(DeviceMemory::allocate(*context, 10'000));
  const MemoryHandle handle = value_of(export_memory(*context, memory.at() + 5'000, 100));
  EXPECT_EQ(handle.offset, 5'000U);
  PeerAllocations peers(*context);
  const IpcMemory there = value_of(peers.open(handle));
  EXPECT_EQ(there.nbytes, 100U);
  fill(memory.at() + 5'000, 0x5a, 1);
  EXPECT_EQ(first_byte(there.at), 0x5a);
}

TEST_F(IpcTest, an_allocation_is_opened_once_and_closed_with_its_last_user) {
  const DeviceMemory memory = value_of(DeviceMemory::allocate(*context, 10'000));
  PeerAllocations peers(*context);
  std::optional<IpcMemory> a(value_of(peers.open(value_of(export_memory(*context, memory.at(), 100)))));
  std::optional<IpcMemory> b(value_of(peers.open(value_of(export_memory(*context, memory.at() + 200, 100)))));
  EXPECT_EQ(a->at + 200, b->at);
  EXPECT_EQ(fake.calls("cuIpcOpenMemHandle"), 1);
  a.reset();
  EXPECT_EQ(fake.live("peer"), 1);
  b.reset();
  EXPECT_EQ(fake.live("peer"), 0);
  const IpcMemory again = value_of(peers.open(value_of(export_memory(*context, memory.at(), 100))));
  EXPECT_EQ(fake.calls("cuIpcOpenMemHandle"), 2);
}

TEST_F(IpcTest, a_peer_that_names_more_than_there_is_is_refused) {
  const DeviceMemory memory = value_of(DeviceMemory::allocate(*context, 4096));
  MemoryHandle handle = value_of(export_memory(*context, memory.at(), 4096));
  PeerAllocations peers(*context);
  handle.offset = 1;
  EXPECT_EQ(peers.open(handle).status().code(), Code::kInvalidArgument);
  handle.offset = UINT64_MAX;
  EXPECT_EQ(peers.open(handle).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(fake.live("peer"), 0);
}

TEST_F(IpcTest, memory_without_a_handle_says_what_kind_it_is) {
  std::byte here{};
  const Status host = export_memory(*context, reinterpret_cast<CUdeviceptr>(&here), 1).status();
  EXPECT_EQ(host.code(), Code::kInvalidArgument);
  EXPECT_HAS(host.message(), "host memory is not a device's");
  const auto pooled = reinterpret_cast<CUdeviceptr>(fake.make_pooled(64));
  const Status pool = export_memory(*context, pooled, 64).status();
  EXPECT_EQ(pool.code(), Code::kUnsupported);
  EXPECT_HAS(pool.message(), "expandable_segments");
  stream.reset();
  current.reset();
  fake.reset();
  SetUp();
  const DeviceMemory memory = value_of(DeviceMemory::allocate(*context, 4096));
  EXPECT_EQ(export_memory(*context, memory.at() + 1, 4096).status().code(), Code::kInvalidArgument);
}

TEST_F(IpcTest, a_handle_of_no_memory_is_an_error_that_is_not_remembered) {
  const DeviceMemory memory = value_of(DeviceMemory::allocate(*context, 64));
  const MemoryHandle good = value_of(export_memory(*context, memory.at(), 64));
  PeerAllocations peers(*context);
  EXPECT_HAS(peers.open(MemoryHandle{}).status().message(), "cuIpcOpenMemHandle: invalid argument");
  fake.fail_next("cuIpcOpenMemHandle", CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(peers.open(good).status().code(), Code::kUnsupported);
  EXPECT_TRUE(peers.open(good).is_ok());
}

TEST_F(IpcTest, an_event_is_recorded_here_and_awaited_there) {
  const Event event = value_of(Event::create(*context, EventReach::kProcesses));
  const Event there = value_of(open_event(*context, value_of(export_event(event))));
  const Stream waiter = value_of(Stream::create(*context));
  fake.hold_stream(stream->get());
  EXPECT_OK(record(*driver, event.get(), stream->get()));
  EXPECT_FALSE(value_of(is_reached(*driver, there.get())));
  EXPECT_OK(stream_waits(*driver, waiter.get(), there.get()));
  fake.release_stream(stream->get());
  fake.drain(waiter.get());
  EXPECT_TRUE(value_of(is_reached(*driver, there.get())));
}

TEST_F(IpcTest, an_event_that_was_not_made_for_it_has_no_handle) {
  const Event event = value_of(Event::create(*context));
  EXPECT_HAS(export_event(event).status().message(), "cuIpcGetEventHandle: invalid resource handle");
}

TEST_F(IpcTest, without_the_functions_nothing_is_exported) {
  Driver without = *driver;
  without.cuIpcGetMemHandle = nullptr;
  without.cuIpcOpenMemHandle = nullptr;
  without.cuIpcGetEventHandle = nullptr;
  without.cuMemCreate = nullptr;
  const Context bare = value_of(Context::primary(std::make_shared<const Driver>(without), 0));
  EXPECT_EQ(export_memory(bare, 4096, 1).status().code(), Code::kUnsupported);
  EXPECT_EQ(PeerAllocations(bare).open({}).status().code(), Code::kUnsupported);
  const Event event = value_of(Event::create(bare, EventReach::kProcesses));
  EXPECT_EQ(export_event(event).status().code(), Code::kUnsupported);
  EXPECT_EQ(ShareableMemory::create(bare, 1).status().code(), Code::kUnsupported);
}

TEST_F(IpcTest, shareable_memory_is_the_same_behind_its_descriptor) {
  const ShareableMemory memory = value_of(ShareableMemory::create(*context, 100));
  EXPECT_EQ(memory.nbytes(), 2UL << 20) << "rounded up as the device wants it";
  std::optional<ShareableMemory> there;
  {
    const Fd fd = value_of(memory.export_fd());
    there.emplace(value_of(ShareableMemory::open(*context, fd, memory.nbytes())));
  }
  EXPECT_NE(there->at(), memory.at());
  fill(memory.at() + memory.nbytes() - 1, 0x77, 1);
  EXPECT_EQ(first_byte(there->at() + memory.nbytes() - 1), 0x77);
}

TEST_F(IpcTest, shareable_memory_outlives_its_creator) {
  std::optional<ShareableMemory> memory(value_of(ShareableMemory::create(*context, 100)));
  fill(memory->at(), 0x12, 1);
  const ShareableMemory there =
      value_of(ShareableMemory::open(*context, value_of(memory->export_fd()), memory->nbytes()));
  memory.reset();
  EXPECT_EQ(first_byte(there.at()), 0x12);
}

TEST_F(IpcTest, whatever_step_of_shareable_memory_fails_leaves_nothing) {
  for (const char* const call : {"cuMemGetAllocationGranularity", "cuMemCreate", "cuMemAddressReserve",
                                 "cuMemMap", "cuMemSetAccess"}) {
    fake.fail_next(call, CUDA_ERROR_OUT_OF_MEMORY);
    const Result<ShareableMemory> memory = ShareableMemory::create(*context, 100);
    ASSERT_FALSE(memory.is_ok());
    EXPECT_HAS(memory.status().message(), call);
    EXPECT_EQ(fake.live("mapped") + fake.live("handle"), 0) << call;
  }
}

// What another process does with the handles it receives. It has a driver of its own: the child was
// forked before the parent opened one.
struct Sent {
  MemoryHandle memory;
  HandleBytes event;
};
int other_process(int socket) {
  const auto driver = value_of(open_driver({FAKE_CUDA}));
  const Context context = value_of(Context::primary(driver, 0));
  const ContextGuard current = value_of(context.enter());
  Sent sent;
  if (::read(socket, &sent, sizeof sent) != sizeof sent) return 2;
  const Stream stream = value_of(Stream::create(context));
  PeerAllocations peers(context);
  const IpcMemory memory = value_of(peers.open(sent.memory));
  const Event event = value_of(open_event(context, sent.event));
  if (!stream_waits(*driver, stream.get(), event.get()).is_ok()) return 3;
  if (!fill_bytes(*driver, memory.at, 0x99, memory.nbytes, stream.get()).is_ok()) return 4;
  FakeCuda::at(FAKE_CUDA).drain(stream.get());
  return ::write(socket, "d", 1) == 1 ? 0 : 5;
}

TEST_F(FakeGpu, another_process_opens_memory_and_events_by_their_handles) {
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const int result = other_process(sockets[1]);
    FakeCuda::at(FAKE_CUDA).reset();
    ::_exit(result);
  }
  const Fd ours(sockets[0]);
  ::close(sockets[1]);
  {
    const Context context = gpu();
    const ContextGuard current = value_of(context.enter());
    const Stream stream = value_of(Stream::create(context));
    const DeviceMemory memory = value_of(DeviceMemory::allocate(context, 4096));
    const Event event = value_of(Event::create(context, EventReach::kProcesses));
    fake.hold_stream(stream.get());
    EXPECT_OK(fill_bytes(*driver, memory.at(), 0x11, 4096, stream.get()));
    EXPECT_OK(record(*driver, event.get(), stream.get()));
    const Sent sent{value_of(export_memory(context, memory.at() + 64, 64)), value_of(export_event(event))};
    ASSERT_EQ(::write(ours.get(), &sent, sizeof sent), static_cast<ssize_t>(sizeof sent));
    fake.release_stream(stream.get());
    char done = 0;
    ASSERT_EQ(::read(ours.get(), &done, 1), 1);
    const PinnedMemory here = value_of(PinnedMemory::allocate(context, 256));
    EXPECT_OK(copy_to_host(*driver, here.bytes(), memory.at(), stream.get()));
    fake.drain(stream.get());
    EXPECT_EQ(here.bytes()[63], std::byte{0x11});
    EXPECT_EQ(here.bytes()[64], std::byte{0x99});
    EXPECT_EQ(here.bytes()[127], std::byte{0x99});
    EXPECT_EQ(here.bytes()[128], std::byte{0x11});
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace pc::cuda
