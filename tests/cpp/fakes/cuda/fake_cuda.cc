// A fake: a stand-in for libcuda.so.1 on a machine without a GPU. Memory of a "device" is memory of
// the host, a stream is a queue with a thread of its own, an event is two counters, a kernel is a
// function that the test provides. The fake is as strict as the driver: a call without a current
// context fails, foreign handles are refused, queries end a graph's capture. fake_cuda.h declares
// the controls for tests.
//
// Not emulated: the legacy default stream waits for no other stream; copies between default streams
// are not ordered; captures have one stream; memory is visible to other processes sooner than a
// GPU's would be; a process may open its own handles.
#include "fakes/cuda/fake_cuda.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fakes/cuda/devices.h"
#include "fakes/cuda/graphs.h"
#include "fakes/cuda/kernels.h"
#include "fakes/cuda/shared_memory.h"

namespace pc::cuda {

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

// "cuMemAlloc_v2", the name in cuda.h and debuggers, becomes "cuMemAlloc".
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

// --- The controls of fake_cuda.h, and the functions that callers look up by name

using namespace pc::cuda;  // NOLINT: the end of a file that is all about them

extern "C" {
void fake_cuda_reset() {
  World& w = world();
  std::list<std::unique_ptr<CUstream_st>> streams;
  {
    const std::lock_guard lock(w.mutex);
    for (const auto& stream : w.streams) stream->stopping = true;
    w.hold_queries = false;
    streams.swap(w.streams);
    w.changed.notify_all();
  }
  for (const auto& stream : streams) stream->thread.join();
  const std::lock_guard lock(w.mutex);
  forget_memory();
  w.default_streams.clear();
  w.kernels.clear();
  w.libraries.clear();
  w.graphs.clear();
  w.runnable_graphs.clear();
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
  w.threads.clear();
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
void fake_cuda_hold_queries(int hold) {
  const std::lock_guard lock(world().mutex);
  world().hold_queries = hold != 0;
  world().changed.notify_all();
}
int fake_cuda_held_queries() {
  const std::lock_guard lock(world().mutex);
  return world().held_queries;
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
void fake_cuda_adopt(void* memory, std::size_t nbytes) {
  const std::lock_guard lock(world().mutex);
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  std::erase_if(world().blocks, [&](const auto& each) {  // blocks that have been released meanwhile
    return each.second.adopted && each.first < begin + nbytes && begin < each.first + each.second.nbytes;
  });
  CUcontext context = this_thread().context;
  Block& block = world().blocks[begin];
  block = {Kind::kDevice, nbytes, context, context->device};
  block.id = ++world().last_id;
  block.adopted = true;
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

// Checks that every declared control is defined with these parameters.
#define CHECK_CONTROL(result, name, parameters) \
  [[maybe_unused]] result(*const check_##name) parameters = &fake_cuda_##name;
FAKE_CUDA_CONTROLS(CHECK_CONTROL)
