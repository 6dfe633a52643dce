// A fake: a stand-in for libcuda.so.1 on a machine without a GPU. Memory of a "device" is memory of the host, a stream is a queue
// that a thread of its own works off, an event is two counters, a kernel is a function that the test gives. It is strict where
// the driver is: a call without a current context fails, foreign handles are refused, queries end a graph's capture. What the test
// commands stands in fake_cuda.h.
//
// Not played: the legacy default stream waits for no other stream; copies between default streams are not ordered; captures have
// one stream; memory is visible to other processes sooner than a GPU's would be; a process may open its own handles.
#include "fakes/cuda/fake_cuda.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/driver_abi.h"

namespace pc::cuda {

constexpr int kMostDevices = 8;
constexpr std::size_t kPage = 4096, kGrain = 2UL << 20;

struct CUctx_st {
  int device;
};

// How often an event was recorded, and how many of those records the streams have come past.
struct Marks {
  std::atomic<uint64_t> recorded{0}, done{0};
};
struct CUevent_st {
  CUcontext context;
  int fd;        // of the page where an interprocess event has its marks; -1: none
  Marks* marks;  // in that page, or of our own
};

// What a stream does next: as soon as `ready`, `run`.
struct Operation {
  std::function<bool()> ready;
  std::function<void()> run;
};
struct CUstream_st {
  CUcontext context = nullptr;
  std::deque<Operation> queue = {};
  std::vector<Operation> graph = {};
  bool held = false, busy = false, destroyed = false, stopping = false;
  int steps = 0;  // that a held stream may make
  int capture = CU_STREAM_CAPTURE_STATUS_NONE;
  std::thread::id capturer = {};
  std::thread thread = {};
};

struct CUlib_st {};
struct CUkern_st {
  std::string name;
  FakeKernel play;
  std::vector<std::size_t> argument_sizes;
};

enum class Kind { kDevice, kPinned, kRegistered, kManaged, kMapped, kPeer };
struct Block {
  Kind kind;
  std::size_t nbytes;
  CUcontext context;  // null: of none
  int device;
  int fd = -1;              // behind it
  bool usable = true;       // kMapped: access was given
  int opened = 1;           // kPeer: how often
  std::string handle = {};  // kPeer: which it was opened by
};
struct Handle {  // of memory that has no address yet
  int fd;
  std::size_t nbytes;
};
struct Failure {
  int good_calls, result;
};

struct World {
  std::mutex mutex;
  std::condition_variable changed;  // anything did
  // All guarded by mutex.
  pid_t process = -1;  // that called cuInit
  int generation = 0;  // of resets
  int init_result = 0, version = 13000, device_count = 1, peer_access = 1, broken = 0;
  std::size_t memory = 1UL << 30;
  bool hold_new = false;
  std::map<int, int> attributes = {};
  std::set<std::string> hidden = {};
  std::map<std::string, Failure> failures = {};
  std::map<std::string, int> calls = {};
  CUctx_st contexts[kMostDevices];
  std::map<uintptr_t, Block> blocks = {};
  std::map<uintptr_t, std::size_t> reservations = {};
  std::map<CUmemGenericAllocationHandle, Handle> handles = {};
  CUmemGenericAllocationHandle next_handle = 1;
  std::list<std::unique_ptr<CUstream_st>> streams = {};
  std::map<CUcontext, CUstream> default_streams = {};
  std::set<CUevent> events = {};
  std::vector<CUevent> destroyed_events = {};
  std::map<std::string, std::unique_ptr<CUkern_st>> kernels = {};
  std::list<std::unique_ptr<CUlib_st>> libraries = {};
};
World& world() {
  static World* const only = [] {
    auto* made = new World;
    for (int i = 0; i < kMostDevices; ++i) made->contexts[i].device = i;
    return made;
  }();
  return *only;
}

struct ThisThread {
  int generation = -1;
  CUcontext context = nullptr;
  int capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
};
ThisThread& this_thread() {
  thread_local ThisThread mine;
  if (mine.generation != world().generation)
    mine = {world().generation, nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL};
  return mine;
}

// --- Every call begins with one of these: it counts, fails where it must, and holds the world for as long as it lives.

class Call {
 public:
  explicit Call(const char* name) : lock_(world().mutex) {
    World& w = world();
    ++w.calls[name];
    if (const auto failure = w.failures.find(name); failure != w.failures.end()) {
      if (failure->second.good_calls-- == 0) {
        error = failure->second.result;
        w.failures.erase(failure);
        return;
      }
    }
    if (w.process != ::getpid()) error = CUDA_ERROR_NOT_INITIALIZED;
  }
  Call& needs_context() {
    if (error == 0 && world().broken != 0) error = world().broken;
    if (error == 0 && this_thread().context == nullptr) error = CUDA_ERROR_INVALID_CONTEXT;
    return *this;
  }
  // Ends captures that this thread may not disturb.
  Call& unsafe_in_capture() {
    const int mode = this_thread().capture_mode;
    for (const auto& stream : world().streams) {
      if (stream->capture != CU_STREAM_CAPTURE_STATUS_ACTIVE || mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        continue;
      const bool own = stream->capturer == std::this_thread::get_id();
      if (mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && !own) continue;
      stream->capture = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
      if (error == 0) error = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return *this;
  }
  std::unique_lock<std::mutex>& lock() { return lock_; }
  CUresult error = CUDA_SUCCESS;

 private:
  std::unique_lock<std::mutex> lock_;
};
#define BEGIN(name) \
  Call call(#name); \
  if (call.error != 0) return call.error
#define BEGIN_IN_CONTEXT(name) \
  Call call(#name);            \
  if (call.needs_context().error != 0) return call.error
#define BEGIN_UNSAFE(name) \
  Call call(#name);        \
  if (call.needs_context().unsafe_in_capture().error != 0) return call.error

// --- Streams

bool may_go(const CUstream_st& stream) { return !stream.held || stream.steps > 0; }

// Some of what an operation waits for changes without a word to us (memory, other processes), hence the short waits. By the
// system's clock: ThreadSanitizer does not know waits by the other.
void work_off(CUstream stream) {
  World& w = world();
  std::unique_lock lock(w.mutex);
  for (;;) {
    if (stream->stopping) return;
    if (stream->destroyed && stream->queue.empty()) return;
    if (stream->queue.empty() || !may_go(*stream)) {
      w.changed.wait(lock);
      continue;
    }
    if (!stream->queue.front().ready()) {
      w.changed.wait_until(lock, std::chrono::system_clock::now() + std::chrono::milliseconds(1));
      continue;
    }
    const Operation operation = std::move(stream->queue.front());
    stream->queue.pop_front();
    stream->busy = true;
    lock.unlock();
    operation.run();
    lock.lock();
    stream->busy = false;
    if (stream->held) --stream->steps;
    w.changed.notify_all();
  }
}

CUstream make_stream(CUcontext context) {
  auto& made = world().streams.emplace_back(std::make_unique<CUstream_st>());
  made->context = context;
  made->held = world().hold_new;
  made->thread = std::thread(work_off, made.get());
  return made.get();
}

// Null: no such stream.
CUstream find_stream(void* handle) {
  World& w = world();
  if (reinterpret_cast<uintptr_t>(handle) <= 2) {
    CUcontext context = this_thread().context;
    if (context == nullptr) return nullptr;
    CUstream& stream = w.default_streams[context];
    if (stream == nullptr) stream = make_stream(context);
    return stream;
  }
  for (const auto& stream : w.streams) {
    if (stream.get() == handle && !stream->destroyed) return stream.get();
  }
  return nullptr;
}

CUresult enqueue(CUstream handle, Operation operation) {
  CUstream stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture == CU_STREAM_CAPTURE_STATUS_INVALIDATED) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->capture == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    stream->graph.push_back(std::move(operation));
  } else {
    stream->queue.push_back(std::move(operation));
    world().changed.notify_all();
  }
  return CUDA_SUCCESS;
}
CUresult enqueue(CUstream stream, std::function<void()> run) {
  return enqueue(stream, Operation{[] { return true; }, std::move(run)});
}

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  BEGIN_UNSAFE(cuStreamCreate);
  *stream = make_stream(this_thread().context);
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream handle) {
  BEGIN_IN_CONTEXT(cuStreamDestroy);
  CUstream stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  stream->destroyed = true;  // its work goes on
  world().changed.notify_all();
  return CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream handle) {
  BEGIN_UNSAFE(cuStreamQuery);
  CUstream stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return stream->queue.empty() && !stream->busy ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuStreamIsCapturing(CUstream handle, int* status) {
  BEGIN_IN_CONTEXT(cuStreamIsCapturing);
  CUstream stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *status = stream->capture;
  return CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  BEGIN(cuThreadExchangeStreamCaptureMode);
  std::swap(*mode, this_thread().capture_mode);
  return CUDA_SUCCESS;
}

// --- Files behind memory, so that another process finds it: as /proc/<pid>/fd/<fd> of who made it

int make_file(std::size_t nbytes) {
  const int fd = ::memfd_create("fake_cuda", MFD_CLOEXEC);
  if (fd >= 0 && ::ftruncate(fd, static_cast<off_t>(nbytes)) == 0) return fd;
  if (fd >= 0) ::close(fd);
  return -1;
}
void* map_file(int fd, std::size_t nbytes, void* at = nullptr, int access = PROT_READ | PROT_WRITE) {
  void* const memory = ::mmap(at, nbytes, access, MAP_SHARED | (at != nullptr ? MAP_FIXED : 0), fd, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}
std::size_t pages(std::size_t nbytes) { return (nbytes + kPage - 1) / kPage * kPage; }

struct Ticket {  // what a handle of memory or of an event says
  char magic[8];
  pid_t process;
  int fd;
  std::size_t nbytes;
};
constexpr char kMemoryTicket[8] = "memory.", kEventTicket[8] = "event..";
template <class To>
void write_ticket(To& to, const char (&magic)[8], int fd, std::size_t nbytes) {
  Ticket ticket{{}, ::getpid(), fd, nbytes};
  std::memcpy(ticket.magic, magic, sizeof magic);
  std::memset(&to, 0, sizeof to);
  std::memcpy(&to, &ticket, sizeof ticket);
}
// The file, or -1: the handle is none of ours, or its process is gone.
template <class From>
int open_ticket(const From& from, const char (&magic)[8], Ticket& ticket) {
  std::memcpy(&ticket, &from, sizeof ticket);
  if (std::memcmp(ticket.magic, magic, sizeof magic) != 0) return -1;
  if (ticket.process == ::getpid()) return ::fcntl(ticket.fd, F_DUPFD_CLOEXEC, 3);
  const std::string path = "/proc/" + std::to_string(ticket.process) + "/fd/" + std::to_string(ticket.fd);
  return ::open(path.c_str(), O_RDWR | O_CLOEXEC);
}

// --- Events

void free_event(CUevent event) {
  if (event->fd >= 0) {
    ::munmap(event->marks, kPage);
    ::close(event->fd);
  } else {
    delete event->marks;
  }
  delete event;
}
bool exists(CUevent event) { return world().events.count(event) != 0; }

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  BEGIN_UNSAFE(cuEventCreate);
  if ((flags & CU_EVENT_INTERPROCESS) == 0) {
    *event = new CUevent_st{this_thread().context, -1, new Marks};
  } else {
    if ((flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
    const int fd = make_file(kPage);
    void* const page = fd >= 0 ? map_file(fd, kPage) : nullptr;
    if (page == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *event = new CUevent_st{this_thread().context, fd, new (page) Marks};
  }
  world().events.insert(*event);
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
  BEGIN_IN_CONTEXT(cuEventDestroy);
  if (world().events.erase(event) == 0) return CUDA_ERROR_INVALID_HANDLE;
  world().destroyed_events.push_back(event);  // queued work may still use its marks
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream handle) {
  BEGIN_IN_CONTEXT(cuEventRecord);
  CUstream stream = find_stream(handle);
  if (!exists(event) || stream == nullptr || stream->context != event->context)
    return CUDA_ERROR_INVALID_HANDLE;
  Marks* const marks = event->marks;
  const uint64_t mark = marks->recorded.fetch_add(1) + 1;
  return enqueue(stream, [marks, mark] {
    uint64_t before = marks->done.load();
    while (before < mark && !marks->done.compare_exchange_weak(before, mark)) {
    }
  });
}
CUresult cuEventQuery(CUevent event) {
  BEGIN_UNSAFE(cuEventQuery);
  if (!exists(event)) return CUDA_ERROR_INVALID_HANDLE;
  return event->marks->done.load() >= event->marks->recorded.load() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  BEGIN_IN_CONTEXT(cuStreamWaitEvent);
  if (!exists(event)) return CUDA_ERROR_INVALID_HANDLE;
  Marks* const marks = event->marks;
  const uint64_t mark = marks->recorded.load();
  return enqueue(stream, Operation{[marks, mark] { return marks->done.load() >= mark; }, [] {}});
}
CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event) {
  BEGIN_IN_CONTEXT(cuIpcGetEventHandle);
  if (!exists(event) || event->fd < 0) return CUDA_ERROR_INVALID_HANDLE;
  write_ticket(*handle, kEventTicket, event->fd, kPage);
  return CUDA_SUCCESS;
}
CUresult cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
  BEGIN_UNSAFE(cuIpcOpenEventHandle);
  Ticket ticket;
  const int fd = open_ticket(handle, kEventTicket, ticket);
  void* const page = fd >= 0 ? map_file(fd, kPage) : nullptr;
  if (page == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *event = new CUevent_st{this_thread().context, fd, static_cast<Marks*>(page)};
  world().events.insert(*event);
  return CUDA_SUCCESS;
}

// --- Memory

// The block that has [at, at + nbytes); null: none does.
std::pair<const uintptr_t, Block>* find_block(uintptr_t at, std::size_t nbytes = 1) {
  auto after = world().blocks.upper_bound(at);
  if (after == world().blocks.begin()) return nullptr;
  auto& [base, block] = *--after;
  return at - base <= block.nbytes && nbytes <= block.nbytes - (at - base) ? &*after : nullptr;
}
void unmap(uintptr_t base, const Block& block) {
  if (block.kind != Kind::kRegistered) ::munmap(reinterpret_cast<void*>(base), pages(block.nbytes));
  if (block.fd >= 0) ::close(block.fd);
}
std::size_t memory_used(int device) {
  std::size_t used = 0;
  for (const auto& [base, block] : world().blocks) {
    if (block.kind == Kind::kDevice && block.device == device) used += block.nbytes;
  }
  return used;
}
// Null: there is no memory.
void* make_block(Kind kind, std::size_t nbytes) {
  CUcontext context = this_thread().context;
  const int fd = make_file(pages(nbytes));
  void* const memory = fd >= 0 ? map_file(fd, pages(nbytes)) : nullptr;
  if (memory == nullptr) return nullptr;
  const int device = context != nullptr ? context->device : 0;
  world().blocks[reinterpret_cast<uintptr_t>(memory)] = {kind, nbytes, context, device, fd};
  return memory;
}
CUresult give_back(uintptr_t base, Kind kind, CUresult otherwise) {
  const auto found = world().blocks.find(base);
  if (found == world().blocks.end() || found->second.kind != kind) return otherwise;
  if (kind == Kind::kPeer && --found->second.opened > 0) return CUDA_SUCCESS;
  unmap(base, found->second);
  world().blocks.erase(found);
  return CUDA_SUCCESS;
}

// As the driver does before it frees: work that is held is not waited for.
void wait_for_device(Call& call) {
  CUcontext context = this_thread().context;
  world().changed.wait(call.lock(), [context] {
    return std::all_of(world().streams.begin(), world().streams.end(), [context](const auto& stream) {
      return stream->context != context || (!stream->busy && (stream->queue.empty() || !may_go(*stream)));
    });
  });
}

CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  BEGIN_IN_CONTEXT(cuMemGetInfo);
  *total = world().memory;
  *free = *total - memory_used(this_thread().context->device);
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* at, std::size_t nbytes) {
  BEGIN_UNSAFE(cuMemAlloc);
  if (nbytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (nbytes > world().memory - memory_used(this_thread().context->device)) return CUDA_ERROR_OUT_OF_MEMORY;
  void* const memory = make_block(Kind::kDevice, nbytes);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *at = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr at) {
  BEGIN_UNSAFE(cuMemFree);
  wait_for_device(call);
  return give_back(at, Kind::kDevice, CUDA_ERROR_INVALID_VALUE);
}
CUresult cuMemHostAlloc(void** at, std::size_t nbytes, unsigned) {
  BEGIN_UNSAFE(cuMemHostAlloc);
  if (nbytes == 0) return CUDA_ERROR_INVALID_VALUE;
  *at = make_block(Kind::kPinned, nbytes);
  return *at != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemFreeHost(void* at) {
  BEGIN_UNSAFE(cuMemFreeHost);
  wait_for_device(call);
  return give_back(reinterpret_cast<uintptr_t>(at), Kind::kPinned, CUDA_ERROR_INVALID_VALUE);
}
CUresult cuMemHostRegister(void* at, std::size_t nbytes, unsigned) {
  BEGIN_UNSAFE(cuMemHostRegister);
  const auto base = reinterpret_cast<uintptr_t>(at);
  if (at == nullptr || nbytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto next = world().blocks.lower_bound(base);
  if (find_block(base) != nullptr || (next != world().blocks.end() && next->first < base + nbytes)) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  world().blocks[base] = {Kind::kRegistered, nbytes, this_thread().context, this_thread().context->device};
  return CUDA_SUCCESS;
}
CUresult cuMemHostUnregister(void* at) {
  BEGIN_UNSAFE(cuMemHostUnregister);
  return give_back(reinterpret_cast<uintptr_t>(at), Kind::kRegistered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

bool is_of_device(Kind kind) { return kind == Kind::kDevice || kind == Kind::kMapped || kind == Kind::kPeer; }

void answer(int attribute, void* into, uintptr_t base, const Block* block) {
  const auto put = [into](auto value) { std::memcpy(into, &value, sizeof value); };
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: return put(block != nullptr ? block->context : CUcontext{nullptr});
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      if (block == nullptr) return put(0U);
      return put(is_of_device(block->kind) || block->kind == Kind::kManaged ? unsigned{CU_MEMORYTYPE_DEVICE}
                                                                            : unsigned{CU_MEMORYTYPE_HOST});
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put(block != nullptr && block->kind == Kind::kManaged ? 1U : 0U);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return put(block != nullptr ? block->device : -2);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put(block != nullptr && block->kind == Kind::kDevice && block->context != nullptr ? 1U : 0U);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return put(CUdeviceptr{base});
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return put(block != nullptr ? block->nbytes : std::size_t{0});
    default: return;
  }
}
CUresult cuPointerGetAttributes(unsigned count, int* attributes, void** values, CUdeviceptr at) {
  BEGIN(cuPointerGetAttributes);
  const auto* const found = find_block(at);
  for (unsigned i = 0; i < count; ++i) {
    answer(attributes[i], values[i], found != nullptr ? found->first : 0,
           found != nullptr ? &found->second : nullptr);
  }
  return CUDA_SUCCESS;
}

// Whether a stream may touch this as a GPU does.
bool gpu_reaches(CUdeviceptr at, std::size_t nbytes) {
  const auto* const found = find_block(at, nbytes);
  return found != nullptr && found->second.usable;
}
void* pointer(CUdeviceptr at) { return reinterpret_cast<void*>(static_cast<uintptr_t>(at)); }

CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t nbytes, CUstream stream) {
  return enqueue(stream, [=] { std::memmove(pointer(to), pointer(from), nbytes); });
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t nbytes, CUstream stream) {
  BEGIN_IN_CONTEXT(cuMemcpyHtoDAsync);
  if (!gpu_reaches(to, nbytes)) return CUDA_ERROR_INVALID_VALUE;
  const auto source = reinterpret_cast<CUdeviceptr>(from);
  if (find_block(source, nbytes) != nullptr) return copy(to, source, nbytes, stream);
  ++world().calls["pageable"];  // then the driver reads it before it returns
  const auto* const bytes = static_cast<const char*>(from);
  return enqueue(stream, [to, staged = std::vector<char>(bytes, bytes + nbytes)] {
    std::memcpy(pointer(to), staged.data(), staged.size());
  });
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t nbytes, CUstream stream) {
  BEGIN_IN_CONTEXT(cuMemcpyDtoHAsync);
  if (!gpu_reaches(from, nbytes)) return CUDA_ERROR_INVALID_VALUE;
  const auto target = reinterpret_cast<CUdeviceptr>(to);
  if (find_block(target, nbytes) == nullptr) ++world().calls["pageable"];
  return copy(target, from, nbytes, stream);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t nbytes, CUstream stream) {
  BEGIN_IN_CONTEXT(cuMemcpyDtoDAsync);
  if (!gpu_reaches(to, nbytes) || !gpu_reaches(from, nbytes)) return CUDA_ERROR_INVALID_VALUE;
  return copy(to, from, nbytes, stream);
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t nbytes, CUstream stream) {
  BEGIN_IN_CONTEXT(cuMemsetD8Async);
  if (!gpu_reaches(to, nbytes)) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, [=] { std::memset(pointer(to), value, nbytes); });
}
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr at, uint32_t value, unsigned) {
  BEGIN_IN_CONTEXT(cuStreamWriteValue32);
  if (at % 4 != 0 || !gpu_reaches(at, 4)) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream,
                 [=] { __atomic_store_n(static_cast<uint32_t*>(pointer(at)), value, __ATOMIC_RELEASE); });
}
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags) {
  BEGIN_IN_CONTEXT(cuStreamWaitValue32);
  if (at % 4 != 0 || !gpu_reaches(at, 4)) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_STREAM_WAIT_VALUE_GEQ) return CUDA_ERROR_NOT_SUPPORTED;
  const auto reached = [=] {
    const uint32_t word = __atomic_load_n(static_cast<uint32_t*>(pointer(at)), __ATOMIC_ACQUIRE);
    return static_cast<int32_t>(word - value) >= 0;
  };
  return enqueue(stream, Operation{reached, [] {}});
}

// --- Memory of other processes

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr at) {
  BEGIN_UNSAFE(cuIpcGetMemHandle);
  const auto* const found = find_block(at);
  if (found == nullptr || found->second.kind != Kind::kDevice || found->second.context == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  write_ticket(*handle, kMemoryTicket, found->second.fd, found->second.nbytes);
  return CUDA_SUCCESS;
}
CUresult cuIpcOpenMemHandle(CUdeviceptr* at, CUipcMemHandle handle, unsigned) {
  BEGIN_UNSAFE(cuIpcOpenMemHandle);
  const std::string name(handle.reserved, sizeof handle.reserved);
  for (auto& [base, block] : world().blocks) {
    if (block.kind != Kind::kPeer || block.handle != name) continue;
    ++block.opened;
    *at = base;
    return CUDA_SUCCESS;
  }
  Ticket ticket;
  const int fd = open_ticket(handle, kMemoryTicket, ticket);
  if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
  void* const memory = map_file(fd, pages(ticket.nbytes));
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *at = reinterpret_cast<CUdeviceptr>(memory);
  CUcontext context = this_thread().context;
  world().blocks[*at] = {Kind::kPeer, ticket.nbytes, context, context->device, fd, true, 1, name};
  return CUDA_SUCCESS;
}
CUresult cuIpcCloseMemHandle(CUdeviceptr at) {
  BEGIN_UNSAFE(cuIpcCloseMemHandle);
  return give_back(at, Kind::kPeer, CUDA_ERROR_INVALID_VALUE);
}

// --- Memory and addresses apart

CUresult cuMemGetAllocationGranularity(std::size_t* nbytes, const CUmemAllocationProp*, int) {
  BEGIN(cuMemGetAllocationGranularity);
  *nbytes = kGrain;
  return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t nbytes,
                     const CUmemAllocationProp* what, unsigned long long) {
  BEGIN(cuMemCreate);
  if (nbytes == 0 || nbytes % kGrain != 0 || what->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (what->location.type != CU_MEM_LOCATION_TYPE_DEVICE || what->location.id >= world().device_count) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  const int fd = make_file(nbytes);
  if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = world().next_handle++;
  world().handles[*handle] = {fd, nbytes};
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  BEGIN(cuMemRelease);
  const auto found = world().handles.find(handle);
  if (found == world().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  ::close(found->second.fd);
  world().handles.erase(found);
  return CUDA_SUCCESS;
}
CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle, int type,
                                      unsigned long long) {
  BEGIN(cuMemExportToShareableHandle);
  const auto found = world().handles.find(handle);
  if (found == world().handles.end() || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int fd = ::dup(found->second.fd);
  std::memcpy(shareable, &fd, sizeof fd);
  return CUDA_SUCCESS;
}
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable, int type) {
  BEGIN(cuMemImportFromShareableHandle);
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  const int fd = ::fcntl(static_cast<int>(reinterpret_cast<intptr_t>(shareable)), F_DUPFD_CLOEXEC, 3);
  const off_t nbytes = fd >= 0 ? ::lseek(fd, 0, SEEK_END) : 0;
  if (nbytes <= 0) return CUDA_ERROR_INVALID_VALUE;
  *handle = world().next_handle++;
  world().handles[*handle] = {fd, static_cast<std::size_t>(nbytes)};
  return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* at, std::size_t nbytes, std::size_t, CUdeviceptr,
                             unsigned long long) {
  BEGIN(cuMemAddressReserve);
  if (nbytes == 0 || nbytes % kGrain != 0) return CUDA_ERROR_INVALID_VALUE;
  void* const room = ::mmap(nullptr, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *at = reinterpret_cast<CUdeviceptr>(room);
  world().reservations[*at] = nbytes;
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr at, std::size_t nbytes) {
  BEGIN(cuMemAddressFree);
  const auto found = world().reservations.find(at);
  const bool mapped = world().blocks.count(at) != 0;
  if (found == world().reservations.end() || found->second != nbytes || mapped)
    return CUDA_ERROR_INVALID_VALUE;
  ::munmap(pointer(at), nbytes);
  world().reservations.erase(found);
  return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr at, std::size_t nbytes, std::size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
  BEGIN(cuMemMap);
  const auto room = world().reservations.find(at);
  const auto memory = world().handles.find(handle);
  if (room == world().reservations.end() || memory == world().handles.end() || offset != 0 ||
      nbytes > room->second || nbytes > memory->second.nbytes || world().blocks.count(at) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (map_file(memory->second.fd, nbytes, pointer(at), PROT_NONE) == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  world().blocks[at] = {Kind::kMapped, nbytes, nullptr, 0, -1, false};
  return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr at, std::size_t nbytes) {
  BEGIN(cuMemUnmap);
  const auto found = world().blocks.find(at);
  if (found == world().blocks.end() || found->second.kind != Kind::kMapped ||
      found->second.nbytes != nbytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ::mmap(pointer(at), nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  world().blocks.erase(found);
  return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr at, std::size_t nbytes, const CUmemAccessDesc* access,
                        std::size_t count) {
  BEGIN(cuMemSetAccess);
  const auto found = world().blocks.find(at);
  if (found == world().blocks.end() || found->second.kind != Kind::kMapped ||
      found->second.nbytes != nbytes || count == 0 || access->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  found->second.device = access->location.id;
  found->second.usable = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return ::mprotect(pointer(at), nbytes, PROT_READ | PROT_WRITE) == 0 ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_INVALID_VALUE;
}

// --- Kernels

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, int*, void**, unsigned, int*, void**,
                           unsigned) {
  BEGIN(cuLibraryLoadData);
  if (code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *library = world().libraries.emplace_back(std::make_unique<CUlib_st>()).get();
  return CUDA_SUCCESS;
}
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char* name) {
  BEGIN(cuLibraryGetKernel);
  const auto found = world().kernels.find(name);
  if (found == world().kernels.end()) return CUDA_ERROR_NOT_FOUND;
  *kernel = found->second.get();
  return CUDA_SUCCESS;
}
CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  BEGIN_UNSAFE(cuKernelGetFunction);
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}
CUresult cuFuncLoad(CUfunction) {
  BEGIN_UNSAFE(cuFuncLoad);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_nbytes,
                        CUstream stream, void** arguments, void**) {
  BEGIN_IN_CONTEXT(cuLaunchKernel);
  if (grid_x * grid_y * grid_z == 0 || block_x * block_y * block_z == 0) return CUDA_ERROR_INVALID_VALUE;
  if (block_x * block_y * block_z > 1024) return CUDA_ERROR_INVALID_VALUE;
  const auto* const kernel = reinterpret_cast<const CUkern_st*>(function);
  struct Value {
    alignas(std::max_align_t) char bytes[256];
  };
  std::vector<Value> values(kernel->argument_sizes.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::memcpy(values[i].bytes, arguments[i], kernel->argument_sizes[i]);
  }
  const FakeLaunch launch{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_nbytes};
  return enqueue(stream, [play = kernel->play, values, launch] {
    std::vector<Value> own = values;  // a graph may be replayed
    std::vector<void*> addresses;
    for (Value& value : own) addresses.push_back(value.bytes);
    play(addresses.data(), &launch);
  });
}

// --- Devices and contexts

CUresult cuInit(unsigned) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  ++w.calls["cuInit"];
  if (w.process != -1 && w.process != ::getpid()) return CUDA_ERROR_NOT_INITIALIZED;
  if (w.init_result == 0) w.process = ::getpid();
  return w.init_result;
}
CUresult cuDriverGetVersion(int* version) {
  const std::lock_guard lock(world().mutex);
  *version = world().version;
  return CUDA_SUCCESS;
}
bool is_device(CUdevice device) { return device >= 0 && device < world().device_count; }

CUresult cuDeviceGetCount(int* count) {
  BEGIN(cuDeviceGetCount);
  *count = world().device_count;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  BEGIN(cuDeviceGet);
  *device = ordinal;
  return is_device(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult write_text(char* to, int length, const std::string& text) {
  if (static_cast<int>(text.size()) >= length) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  BEGIN(cuDeviceGetName);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return write_text(name, length, "Fake GPU " + std::to_string(device));
}
CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
  BEGIN(cuDeviceGetPCIBusId);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return write_text(id, length, "0000:0" + std::to_string(device + 1) + ":00.0");
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  BEGIN(cuDeviceGetUuid);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(0xf0 + i);
  uuid->bytes[0] = static_cast<char>(device);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  BEGIN(cuDeviceGetAttribute);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const auto set = world().attributes.find(attribute);
  if (set != world().attributes.end()) return *value = set->second, CUDA_SUCCESS;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 4; break;
    default: *value = 1;
  }
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(std::size_t* nbytes, CUdevice device) {
  BEGIN(cuDeviceTotalMem);
  *nbytes = world().memory;
  return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  BEGIN(cuDeviceCanAccessPeer);
  *can = device != peer ? world().peer_access : 0;
  return is_device(device) && is_device(peer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  BEGIN(cuDevicePrimaryCtxRetain);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *context = &world().contexts[device];
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  BEGIN(cuCtxGetCurrent);
  *context = this_thread().context;
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  BEGIN(cuCtxSetCurrent);
  this_thread().context = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  BEGIN_IN_CONTEXT(cuCtxGetDevice);
  *device = this_thread().context->device;
  return CUDA_SUCCESS;
}
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned) {
  BEGIN_IN_CONTEXT(cuCtxEnablePeerAccess);
  if (peer == this_thread().context) return CUDA_ERROR_INVALID_DEVICE;
  if (world().peer_access == 0) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  const std::string pair =
      "peers " + std::to_string(this_thread().context->device) + std::to_string(peer->device);
  return world().calls[pair]++ == 0 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

// --- Errors, and finding functions

struct Words {
  CUresult error;
  const char* name;
  const char* text;
};
#define WORDS(name, text) \
  { name, #name, text }
constexpr Words kWords[] = {
    WORDS(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    WORDS(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    WORDS(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    WORDS(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library"),
    WORDS(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    WORDS(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    WORDS(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    WORDS(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    WORDS(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices"),
    WORDS(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "the provided PTX was compiled with an unsupported toolchain."),
    WORDS(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    WORDS(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    WORDS(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    WORDS(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    WORDS(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized"),
    WORDS(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
          "system has unsupported display driver / cuda driver combination"),
    WORDS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    WORDS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
    WORDS(CUDA_ERROR_UNKNOWN, "unknown error"),
};
const Words* words_for(CUresult error) {
  const auto* const found = std::find_if(std::begin(kWords), std::end(kWords),
                                         [=](const Words& words) { return words.error == error; });
  return found != std::end(kWords) ? found : nullptr;
}
CUresult cuGetErrorName(CUresult error, const char** text) {
  const Words* const words = words_for(error);
  *text = words != nullptr ? words->name : nullptr;
  return words != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGetErrorString(CUresult error, const char** text) {
  const Words* const words = words_for(error);
  *text = words != nullptr ? words->text : nullptr;
  return words != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void* function_of(const std::string& name, int version) {
#define FUNCTION(function, since, parameters)                  \
  if (name == #function && version >= (since)) {               \
    CUresult(*const address) parameters = &pc::cuda::function; \
    return reinterpret_cast<void*>(address);                   \
  }
  PC_CUDA_REQUIRED_FUNCTIONS(FUNCTION)
  PC_CUDA_OPTIONAL_FUNCTIONS(FUNCTION)
#undef FUNCTION
  return nullptr;
}

bool is_idle(const CUstream_st& stream) { return stream.queue.empty() && !stream.busy; }

// "cuMemAlloc_v2", as cuda.h and debuggers call it, is "cuMemAlloc".
std::string plain(const std::string& function) {
  return function.size() > 3 && function.ends_with("_v2") ? function.substr(0, function.size() - 3)
                                                          : function;
}

int count_live(const char* what) {
  World& w = world();
  std::map<std::string, std::ptrdiff_t> live = {{"event", w.events.size()}, {"handle", w.handles.size()}};
  constexpr const char* kNames[] = {"device", "pinned", "registered", "managed", "mapped", "peer"};
  for (const auto& [base, block] : w.blocks) ++live[kNames[static_cast<int>(block.kind)]];
  live["stream"] = std::count_if(w.streams.begin(), w.streams.end(), [&w](const auto& stream) {
    CUstream default_stream = w.default_streams[stream->context];
    return !stream->destroyed && stream.get() != default_stream;
  });
  if (what != nullptr) return static_cast<int>(live[what]);
  std::ptrdiff_t sum = 0;
  for (const auto& [name, count] : live) sum += count;
  return static_cast<int>(sum);
}

void forget_memory() {
  World& w = world();
  for (const auto& [base, block] : w.blocks) {
    if (block.kind != Kind::kMapped) unmap(base, block);
  }
  for (const auto& [base, nbytes] : w.reservations) ::munmap(reinterpret_cast<void*>(base), nbytes);
  for (const auto& [number, handle] : w.handles) ::close(handle.fd);
  for (CUevent event : w.events) free_event(event);
  for (CUevent event : w.destroyed_events) free_event(event);
  w.blocks.clear();
  w.reservations.clear();
  w.handles.clear();
  w.events.clear();
  w.destroyed_events.clear();
}

}  // namespace pc::cuda

// --- What fake_cuda.h declares, and the functions that the driver's library is asked for by name

using namespace pc::cuda;  // NOLINT: the end of a file that is all about them

extern "C" {
void fake_cuda_reset() {
  World& w = world();
  std::list<std::unique_ptr<CUstream_st>> streams;
  {
    const std::lock_guard lock(w.mutex);
    for (const auto& stream : w.streams) stream->stopping = true;
    streams.swap(w.streams);
    w.changed.notify_all();
  }
  for (const auto& stream : streams) stream->thread.join();
  const std::lock_guard lock(w.mutex);
  forget_memory();
  w.default_streams.clear();
  w.kernels.clear();
  w.libraries.clear();
  w.attributes.clear();
  w.hidden.clear();
  w.failures.clear();
  w.calls.clear();
  w.process = -1;
  w.init_result = w.broken = 0;
  w.version = 13000;
  w.device_count = w.peer_access = 1;
  w.memory = 1UL << 30;
  w.hold_new = false;
  ++w.generation;
}

void fake_cuda_set_init_result(int result) {
  const std::lock_guard lock(world().mutex);
  world().init_result = result;
}
void fake_cuda_set_version(int version) {
  const std::lock_guard lock(world().mutex);
  world().version = version;
}
void fake_cuda_set_device_count(int count) {
  const std::lock_guard lock(world().mutex);
  world().device_count = std::min(count, kMostDevices);
}
void fake_cuda_set_attribute(int attribute, int value) {
  const std::lock_guard lock(world().mutex);
  world().attributes[attribute] = value;
}
void fake_cuda_set_memory(std::size_t nbytes) {
  const std::lock_guard lock(world().mutex);
  world().memory = nbytes;
}
void fake_cuda_set_peer_access(int can) {
  const std::lock_guard lock(world().mutex);
  world().peer_access = can;
}
void fake_cuda_hide(const char* function) {
  const std::lock_guard lock(world().mutex);
  world().hidden.insert(plain(function));
}
void fake_cuda_fail_after(const char* function, int good_calls, int result) {
  const std::lock_guard lock(world().mutex);
  world().failures[plain(function)] = {good_calls, result};
}
void fake_cuda_fail_next(const char* function, int result) { fake_cuda_fail_after(function, 0, result); }
void fake_cuda_break_contexts(int result) {
  const std::lock_guard lock(world().mutex);
  world().broken = result;
}
int fake_cuda_calls(const char* function) {
  const std::lock_guard lock(world().mutex);
  return world().calls[plain(function)];
}
int fake_cuda_live(const char* what) {
  const std::lock_guard lock(world().mutex);
  return count_live(what);
}

void fake_cuda_hold_stream(void* stream) {
  const std::lock_guard lock(world().mutex);
  if (CUstream found = find_stream(stream); found != nullptr) found->held = true;
}
void fake_cuda_release_stream(void* stream) {
  const std::lock_guard lock(world().mutex);
  if (CUstream found = find_stream(stream); found != nullptr) {
    found->held = false;
    found->steps = 0;
  }
  world().changed.notify_all();
}
void fake_cuda_hold_new_streams(int hold) {
  const std::lock_guard lock(world().mutex);
  world().hold_new = hold != 0;
}
void fake_cuda_step(void* stream, int operations) {
  std::unique_lock lock(world().mutex);
  CUstream found = find_stream(stream);
  if (found == nullptr) return;
  found->steps += operations;
  world().changed.notify_all();
  world().changed.wait(lock, [found] { return (found->steps <= 0 || found->queue.empty()) && !found->busy; });
  found->steps = 0;
}
int fake_cuda_queued(void* stream) {
  const std::lock_guard lock(world().mutex);
  CUstream found = find_stream(stream);
  return found == nullptr ? 0 : static_cast<int>(found->queue.size()) + (found->busy ? 1 : 0);
}
void fake_cuda_drain(void* stream) {
  std::unique_lock lock(world().mutex);
  CUstream found = find_stream(stream);
  if (found == nullptr) return;
  world().changed.wait(lock, [found] { return is_idle(*found); });
}
void drain_all_but(const std::function<bool(const CUstream_st&)>& is_other) {
  std::unique_lock lock(world().mutex);
  world().changed.wait(lock, [&] {
    return std::all_of(world().streams.begin(), world().streams.end(),
                       [&](const auto& stream) { return is_other(*stream) || is_idle(*stream); });
  });
}
void fake_cuda_drain_device(int ordinal) {
  drain_all_but([=](const CUstream_st& stream) { return stream.context->device != ordinal; });
}
void fake_cuda_drain_all() {
  drain_all_but([](const CUstream_st&) { return false; });
}

void fake_cuda_begin_capture(void* stream) {
  const std::lock_guard lock(world().mutex);
  CUstream found = find_stream(stream);
  if (found == nullptr) return;
  found->capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  found->capturer = std::this_thread::get_id();
  found->graph.clear();
}
int fake_cuda_capture_status(void* stream) {
  const std::lock_guard lock(world().mutex);
  CUstream found = find_stream(stream);
  return found != nullptr ? found->capture : -1;
}
int fake_cuda_end_capture(void* stream) {
  const std::lock_guard lock(world().mutex);
  CUstream found = find_stream(stream);
  if (found == nullptr) return -1;
  const int status = std::exchange(found->capture, CU_STREAM_CAPTURE_STATUS_NONE);
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? static_cast<int>(found->graph.size()) : -1;
}
void fake_cuda_replay(void* stream) {
  const std::lock_guard lock(world().mutex);
  CUstream found = find_stream(stream);
  if (found == nullptr) return;
  found->queue.insert(found->queue.end(), found->graph.begin(), found->graph.end());
  world().changed.notify_all();
}

void* fake_cuda_make_managed(std::size_t nbytes) {
  const std::lock_guard lock(world().mutex);
  return make_block(Kind::kManaged, nbytes);
}
int fake_cuda_enqueue(void* stream, int (*ready)(void*), void (*run)(void*), void (*drop)(void*),
                      void* data) {
  const std::shared_ptr<void> kept(data, drop);
  const std::lock_guard lock(world().mutex);
  CUstream const found = find_stream(stream);
  if (found == nullptr) return -1;
  const bool captured = found->capture == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  const CUresult queued =
      enqueue(found, Operation{[=] { return ready(kept.get()) != 0; }, [=] { run(kept.get()); }});
  return queued != CUDA_SUCCESS ? -1 : captured ? 1 : 0;
}
void* fake_cuda_make_pooled(std::size_t nbytes) {
  const std::lock_guard lock(world().mutex);
  void* const memory = make_block(Kind::kDevice, nbytes);
  if (memory != nullptr) world().blocks[reinterpret_cast<uintptr_t>(memory)].context = nullptr;
  return memory;
}
void fake_cuda_set_kernel(const char* name, FakeKernel kernel, const std::size_t* argument_sizes,
                          int arguments) {
  const std::lock_guard lock(world().mutex);
  world().kernels[name] = std::make_unique<CUkern_st>(
      CUkern_st{name, kernel, std::vector<std::size_t>(argument_sizes, argument_sizes + arguments)});
}

CUresult cuDriverGetVersion(int* version) { return pc::cuda::cuDriverGetVersion(version); }
CUresult cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long, int* why) {
  const std::lock_guard lock(world().mutex);
  const bool hidden = world().hidden.count(name) != 0;
  *function = hidden || version > world().version ? nullptr : function_of(name, version);
  if (why != nullptr) *why = *function != nullptr ? 0 : 1;
  return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
}  // extern "C"

// Every control that is declared is there, with these parameters.
#define CHECK_CONTROL(result, name, parameters) \
  [[maybe_unused]] result(*const check_##name) parameters = &fake_cuda_##name;
FAKE_CUDA_CONTROLS(CHECK_CONTROL)
