#include "bindings/module/numpy_memory.h"

#include <pybind11/numpy.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

#include "bindings/module/kept_runtime.h"
#include "bindings/state/with_gil.h"

namespace py = pybind11;

namespace pc {
namespace {

// Part of NumPy's ABI, from numpy/ndarraytypes.h (NEP 49; NumPy 1.22 and later). This package
// builds without NumPy's headers.
struct Allocator {
  void* ctx;
  void* (*malloc)(void* ctx, std::size_t nbytes);
  void* (*calloc)(void* ctx, std::size_t count, std::size_t nbytes);
  void* (*realloc)(void* ctx, void* memory, std::size_t nbytes);
  void (*free)(void* ctx, void* memory, std::size_t nbytes);
};
struct Handler {
  char name[127];
  uint8_t version;
  Allocator allocator;
};
constexpr const char* kCapsule = "mem_handler";
// Index in the table of NumPy's C API, from numpy/__multiarray_api.h.
constexpr std::size_t kSetHandler = 304;
using SetHandler = PyObject* (*)(PyObject*);

// One rank's heap as an allocator for NumPy. A forked child gets ordinary memory, and leaks the
// blocks that its parent had allocated. Thread-safety: with the GIL.
class NumpyMemory {
 public:
  explicit NumpyMemory(std::shared_ptr<Runtime> runtime) : runtime_(std::move(runtime)) {}

  // Returns null if there is no memory left.
  void* take(std::size_t nbytes) {
    const bool in_heap = !runtime_.in_child();
    void* const memory = in_heap ? from_heap(nbytes) : std::malloc(std::max<std::size_t>(nbytes, 1));
    if (memory == nullptr) return nullptr;
    try {
      blocks_.insert_or_assign(memory, Block{nbytes, in_heap});
    } catch (...) {
      let_go(memory, in_heap);
      throw;
    }
    return memory;
  }
  // A block that grows often grows again in small steps, so a small step extends it to 1.5 times
  // its size if memory allows.
  void* take_again(void* memory, std::size_t nbytes) {
    const auto found = blocks_.find(memory);
    if (found == blocks_.end()) return nullptr;
    const std::size_t had = found->second.nbytes;
    if (nbytes <= had) return memory;
    void* more = nbytes < had + had / 2 ? take(had + had / 2) : nullptr;
    if (more == nullptr) more = take(nbytes);
    if (more == nullptr) return nullptr;
    std::memcpy(more, memory, had);
    give_back(memory);
    return more;
  }
  void give_back(void* memory) {
    const auto found = blocks_.find(memory);
    if (found == blocks_.end()) return;
    const bool in_heap = found->second.in_heap;
    blocks_.erase(found);
    let_go(memory, in_heap);
  }

 private:
  struct Block {
    std::size_t nbytes;  // at least what NumPy requested
    bool in_heap;
  };
  void* from_heap(std::size_t nbytes) const {
    const Result<std::byte*> found = runtime_.heap().allocate(nbytes);
    return found.is_ok() ? found.value() : nullptr;
  }
  void let_go(void* memory, bool in_heap) const {
    if (!in_heap) {
      std::free(memory);
    } else if (!runtime_.in_child()) {
      try {
        runtime_.heap().free(static_cast<std::byte*>(memory));
      } catch (...) {  // a block that cannot be released is leaked
      }
    }
  }

  const KeptRuntime runtime_;
  std::unordered_map<void*, Block> blocks_;
};

// NumPy calls this with the GIL or without: np.fromstring() and np.fromfile() release it while they
// read into a growing array. NumPy is C, so no exception may reach it. The GIL is requested outside
// of the try block: when the interpreter ends, the request unwinds the thread.
template <class Body>
void* or_null(void* ctx, Body&& body) {
  const WithGil gil;
  try {
    return body(*static_cast<NumpyMemory*>(ctx));
  } catch (...) {
    return nullptr;
  }
}

void* take(void* ctx, std::size_t nbytes) {
  return or_null(ctx, [&](NumpyMemory& memory) { return memory.take(nbytes); });
}
void* take_zeros(void* ctx, std::size_t count, std::size_t nbytes) {
  std::size_t all = 0;
  if (__builtin_mul_overflow(count, nbytes, &all)) return nullptr;
  void* const block = take(ctx, all);
  return block == nullptr ? nullptr : std::memset(block, 0, all);
}
void* take_again(void* ctx, void* block, std::size_t nbytes) {
  if (block == nullptr) return take(ctx, nbytes);
  return or_null(ctx, [&](NumpyMemory& memory) { return memory.take_again(block, nbytes); });
}
void give_back(void* ctx, void* block, std::size_t) {
  if (block == nullptr) return;
  or_null(ctx, [&](NumpyMemory& memory) -> void* {
    memory.give_back(block);
    return nullptr;
  });
}

void end(PyObject* capsule) {
  const auto* handler = static_cast<const Handler*>(PyCapsule_GetPointer(capsule, kCapsule));
  delete static_cast<NumpyMemory*>(handler->allocator.ctx);
  delete handler;
}

}  // namespace

py::object numpy_handler(std::shared_ptr<Runtime> runtime) {
  auto memory = std::make_unique<NumpyMemory>(std::move(runtime));
  auto handler = std::make_unique<Handler>(
      Handler{"pycollective_heap", 1, {memory.get(), take, take_zeros, take_again, give_back}});
  PyObject* const capsule = PyCapsule_New(handler.get(), kCapsule, end);
  if (capsule == nullptr) throw py::error_already_set();
  static_cast<void>(memory.release());
  static_cast<void>(handler.release());
  return py::reinterpret_steal<py::object>(capsule);
}

py::object set_numpy_handler(const py::object& handler) {
  const py::object table = py::detail::import_numpy_core_submodule("multiarray").attr("_ARRAY_API");
  void** const api = static_cast<void**>(PyCapsule_GetPointer(table.ptr(), nullptr));
  if (api == nullptr) throw py::error_already_set();
  const SetHandler set = reinterpret_cast<SetHandler>(api[kSetHandler]);
  PyObject* const previous = set(handler.is_none() ? nullptr : handler.ptr());
  if (previous == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(previous);
}

}  // namespace pc
