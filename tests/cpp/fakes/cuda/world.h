// A FAKE of the CUDA driver: its whole state, behind one mutex, and the beginning of every call.
#pragma once

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fakes/cuda/fake_cuda.h"
#include "gpu/cuda/driver_abi.h"

namespace pc::cuda {

constexpr int kMostDevices = 8;
constexpr std::size_t kPage = 4096, kGrain = 2UL << 20;

struct CUctx_st {
  int device;
};

// How many times an event was recorded, and how many of those records the streams have passed.
struct Marks {
  std::atomic<uint64_t> recorded{0}, done{0};
};
struct CUevent_st {
  CUcontext context;
  int fd;        // the page that holds the marks of an interprocess event; -1 if none
  Marks* marks;  // in that page, or allocated for this event
};

// An operation of a stream. The stream calls `run` as soon as `ready` returns true.
struct Operation {
  std::function<bool()> ready;
  std::function<void()> run;
};
struct CUstream_st {
  CUcontext context = nullptr;
  unsigned long long id = 0;
  std::deque<Operation> queue = {};
  std::vector<Operation> graph = {};
  bool held = false, busy = false, destroyed = false, stopping = false;
  int steps = 0;  // number of operations that a held stream may run
  int capture = CU_STREAM_CAPTURE_STATUS_NONE;
  std::thread::id capturer = {};
  std::thread thread = {};
};

struct CUgraph_st {
  std::vector<Operation> operations;
};
struct CUgraphExec_st {
  std::vector<Operation> operations;
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
  CUcontext context;  // null if it has no context
  int device;
  int fd = -1;              // the file that backs it; -1 if none
  bool usable = true;       // kMapped: access was given
  int opened = 1;           // kPeer: the number of opens
  std::string handle = {};  // kPeer: the handle that opened it
  uint64_t id = 0;          // kDevice: never used for another block
  bool adopted = false;     // another owner frees it
};
struct Handle {  // a handle of memory that has no address yet
  int fd;
  std::size_t nbytes;
};
struct Failure {
  int good_calls, result;
};

struct ThisThread {
  CUcontext context = nullptr;
  int capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
};

struct World {
  std::mutex mutex;
  std::condition_variable changed;  // notified after every change
  // mutex guards all members below.
  pid_t process = -1;  // the process that called cuInit
  int init_result = 0, version = 13000, device_count = 1, peer_access = 1, broken = 0;
  std::size_t memory = 1UL << 30;
  bool hold_new = false, hold_queries = false;
  int held_queries = 0;
  unsigned long long stream_ids = 0;  // number of streams ever created
  std::map<pid_t, ThisThread> threads = {};
  std::map<int, int> attributes = {};
  std::set<std::string> hidden = {};
  std::map<std::string, Failure> failures = {};
  std::map<std::string, int> calls = {};
  CUctx_st contexts[kMostDevices];
  std::map<uintptr_t, Block> blocks = {};
  std::map<uintptr_t, std::size_t> reservations = {};
  std::map<CUmemGenericAllocationHandle, Handle> handles = {};
  CUmemGenericAllocationHandle next_handle = 1;
  uint64_t last_id = 0;  // the last id of a Block
  std::list<std::unique_ptr<CUstream_st>> streams = {};
  std::map<CUcontext, CUstream> default_streams = {};
  std::set<CUevent> events = {};
  std::vector<CUevent> destroyed_events = {};
  std::map<std::string, std::unique_ptr<CUkern_st>> kernels = {};
  std::list<std::unique_ptr<CUlib_st>> libraries = {};
  std::list<std::unique_ptr<CUgraph_st>> graphs = {};
  std::list<std::unique_ptr<CUgraphExec_st>> runnable_graphs = {};
};
// Hidden, like all state: several of these libraries may be in one process, and each has its own
// state.
__attribute__((visibility("hidden"))) inline World& world() {
  static World* const only = [] {
    auto* made = new World;
    for (int i = 0; i < kMostDevices; ++i) made->contexts[i].device = i;
    return made;
  }();
  return *only;
}

// Call with the mutex held. Not thread_local: if such a block of a library from dlopen begins 16
// bytes after the start of a page, GCC 12's LeakSanitizer takes the bytes before it for a header of
// glibc 2.19 and crashes (sanitizer_tls_get_addr.cpp).
__attribute__((visibility("hidden"))) inline ThisThread& this_thread() { return world().threads[::gettid()]; }

// --- Every call begins with one of these. It counts the call, fails as scripted, and holds the
//     mutex during its lifetime.

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

}  // namespace pc::cuda
