// What the bindings remember: names, types and exception classes, looked up once, and the current world.
#pragma once

#include <Python.h>

#include <array>
#include <climits>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "bindings/python/dlpack.h"
#include "bindings/tracing/call_site.h"
#include "bindings/tracing/program_position.h"
#include "gpu/cuda/abandoned.h"
#include "gpu/cuda/timeline_semaphore.h"

namespace pc {

struct GroupObject;
class Runtime;
struct Session;
class EndedCalls;

// Parameter names of the calls, as indices of State::names.
enum Name : uint8_t {
  kX,
  kOp,
  kOut,
  kTimeout,
  kRoot,
  kPeer,
  kTag,
  kCounts,
  kRecvCounts,
  kAxis,
  kReproducible,
  kDest,
  kSource,
  kWithSource,
  kHost,
  kNameCount
};

std::string_view text_of(Name name);  // "x"

// How the memory of an array type is reached.
enum class Access : uint8_t {
  kNumpy,
  kTorchExchange,  // DLPack's C exchange interface: no Python object is made
  kTorchCapsule,   // older torch: __dlpack__ of the detached tensor
  kPaddle,         // the same interface; null if Paddle is too old to have it
  kBuffer,
  kDlpack,
  kCuda,       // the CUDA array interface
  kMasked,     // a NumPy masked array: its mask would be lost
  kImmutable,  // arrays of JAX: a result is a new one; see pycollective/calls/packing.py
  kStaged,     // numbers and lists: see there
  kWrapper,    // a torch subclass that only wraps other tensors (DTensor, FakeTensor)
  kNone,
};
struct TypeInfo {
  Access access = Access::kNone;
  const dlpack::ExchangeApi* exchange = nullptr;
};

// One per module. Every member is guarded by the GIL. Python references are owned and live as long as the process.
struct State {
  std::array<PyObject*, kNameCount> names{};   // interned, so that keywords compare by pointer
  std::array<PyObject*, kNamedOpCount> ops{};  // likewise "sum", "prod", ...
  std::array<PyObject*, 16> errors{};          // exception class of each Code
  PyObject* forked_error = nullptr;
  PyObject *ndarray = nullptr, *numpy_empty = nullptr;  // numpy.ndarray, numpy.empty
  // NumPy's numbers of ml_dtypes' types, in the order of view_numpy.cc, once seen.
  std::array<int, 3> ml_dtypes = {INT_MIN, INT_MIN, INT_MIN};
  PyTypeObject* scaled_type = nullptr;                    // of what scaled() makes
  PyObject *requires_grad = nullptr, *is_leaf = nullptr;  // attribute names of torch tensors
  PyObject *is_conj = nullptr, *is_neg = nullptr,
           *untyped_storage = nullptr;  // methods of torch.Tensor, once torch is seen
  PyObject* stop_gradient = nullptr;    // attribute name of Paddle tensors
  PyObject *paddle_is_dense = nullptr,
           *paddle_increment_version = nullptr;  // methods of paddle.Tensor, once Paddle is seen
  PyObject* increment_version = nullptr;         // torch's, once torch is seen
  bool increment_takes_tuple = false;
  std::unordered_map<PyTypeObject*, TypeInfo> types;  // holds a reference to every key
  PyTypeObject *group_type = nullptr, *work_type = nullptr, *planned_type = nullptr;
  std::unordered_map<std::string, Layout> layouts;  // by NumPy's name of the dtype; they stay where they are
  std::unordered_set<std::string> shapes;           // texts for Request::shape; they stay where they are
  CallSites sites;                                  // which lines of Python the calls come from
  ProgramPosition* position =
      new ProgramPosition(sites);     // any thread may use it; replaced in a forked child
  EndedCalls* ended_calls = nullptr;  // any thread may use it; replaced in a forked child
  const std::shared_ptr<cuda::SemaphorePool> semaphores = std::make_shared<cuda::SemaphorePool>();
  const std::shared_ptr<Abandoned> abandoned = std::make_shared<Abandoned>();
  // Threads that run what no other rank runs (pc.single_process, pc.main_first), the innermost last, and what that is.
  std::vector<std::pair<unsigned long, std::string>> alone;
  GroupObject* world = nullptr;                  // what the functions of the module act on
  std::vector<std::weak_ptr<Session>> sessions;  // of all runtimes, the world's and others; some may be gone
  std::vector<std::weak_ptr<Runtime>>
      runtimes;  // all, also those that are shut down while arrays are in their memory

  // False with a Python error set.
  bool load();
};

}  // namespace pc
