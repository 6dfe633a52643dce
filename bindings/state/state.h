// The state of the bindings: names, types and exception classes, looked up once, and the current
// world.
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

// How the memory of an array type is accessed.
enum class Access : uint8_t {
  kNumpy,
  kTorchExchange,  // DLPack's C exchange interface: creates no Python object
  kTorchCapsule,   // older torch: __dlpack__ of the detached tensor
  kPaddle,         // DLPack's C exchange interface; `exchange` is null if Paddle is too old to have it
  kBuffer,
  kDlpack,
  kCuda,       // the CUDA array interface
  kMasked,     // a NumPy masked array: its mask would be lost
  kImmutable,  // JAX arrays: a result is a new array; see pycollective/calls/packing.py
  kStaged,     // numbers and lists: see pycollective/calls/packing.py
  kWrapper,    // a torch subclass that only wraps other tensors (DTensor, FakeTensor)
  kNone,
};
struct TypeInfo {
  Access access = Access::kNone;
  const dlpack::ExchangeApi* exchange = nullptr;
};

// The state of the extension module; the GIL guards every member. It owns its references to Python
// objects, which live as long as the process.
struct State {
  std::array<PyObject*, kNameCount> names{};   // interned, so that keywords compare by pointer
  std::array<PyObject*, kNamedOpCount> ops{};  // interned "sum", "prod", ...
  std::array<PyObject*, 16> errors{};          // exception class for each Code
  PyObject* forked_error = nullptr;
  PyObject *ndarray = nullptr, *numpy_empty = nullptr;  // numpy.ndarray, numpy.empty
  // NumPy's type numbers of the types of ml_dtypes, in the order of kMlDtypes in view_numpy.cc.
  // Each is set when its type is first encountered.
  std::array<int, 3> ml_dtypes = {INT_MIN, INT_MIN, INT_MIN};
  PyTypeObject* scaled_type = nullptr;                    // type of the objects that scaled() makes
  PyObject *requires_grad = nullptr, *is_leaf = nullptr;  // attribute names of torch tensors
  PyObject *is_conj = nullptr, *is_neg = nullptr,
           *untyped_storage = nullptr;  // methods of torch.Tensor, set once torch is encountered
  PyObject* stop_gradient = nullptr;    // attribute name of Paddle tensors
  PyObject *paddle_is_dense = nullptr,
           *paddle_increment_version = nullptr;  // methods of paddle.Tensor, set once Paddle is encountered
  PyObject* increment_version = nullptr;         // torch's function, set once torch is encountered
  bool increment_takes_tuple = false;
  std::unordered_map<PyTypeObject*, TypeInfo> types;  // holds a reference to every key
  PyTypeObject *group_type = nullptr, *work_type = nullptr, *planned_type = nullptr;
  std::unordered_map<std::string, Layout> layouts;  // by NumPy's name of the dtype; elements never move
  std::unordered_set<std::string> shapes;           // texts for Request::shape; elements never move
  CallSites sites;                                  // the Python lines that make the calls
  ProgramPosition* position =
      new ProgramPosition(sites);     // any thread may use it; replaced in a forked child
  EndedCalls* ended_calls = nullptr;  // any thread may use it; replaced in a forked child
  const std::shared_ptr<cuda::SemaphorePool> semaphores = std::make_shared<cuda::SemaphorePool>();
  const std::shared_ptr<Abandoned> abandoned = std::make_shared<Abandoned>();
  // The threads that run code which no other rank runs (pc.single_process, pc.main_first), each
  // with a description of that code. The innermost is last.
  std::vector<std::pair<unsigned long, std::string>> alone;
  GroupObject* world = nullptr;  // the group that the module's functions act on
  // The sessions of all runtimes, including the world's; some may have expired.
  std::vector<std::weak_ptr<Session>> sessions;
  std::vector<std::weak_ptr<Runtime>>
      runtimes;  // All runtimes, including those that are shut down while arrays use their memory.

  // Returns false with a Python error set.
  bool load();
};

}  // namespace pc
