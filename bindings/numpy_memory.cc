#include "numpy_memory.h"

#include <pybind11/numpy.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

#include "engine/shm/heap.h"

namespace py = pybind11;

namespace pc {
namespace {

// From numpy/ndarraytypes.h (NEP 49; NumPy 1.22 and later): part of its ABI. We build without NumPy's headers.
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
// Its place in the table of NumPy's C API, from numpy/__multiarray_api.h.
constexpr std::size_t kSetHandler = 304;
using SetHandler = PyObject* (*)(PyObject*);

// One rank's heap as NumPy sees it. NumPy calls with the GIL. A forked child must not touch the heap, which is its parent's:
// it gets ordinary memory, and what its parent had taken stays.
class NumpyMemory {
 public:
  explicit NumpyMemory(std::shared_ptr<Runtime> runtime) : runtime_(std::move(runtime)) {}
  NumpyMemory(const NumpyMemory&) = delete;
  NumpyMemory& operator=(const NumpyMemory&) = delete;
  ~NumpyMemory() {
    if (in_child()) {
      new std::shared_ptr<Runtime>(std::move(runtime_));
      return;
    }
    const py::gil_scoped_release released;  // its end may wait
    runtime_.reset();
  }

  void* take(std::size_t nbytes) {
    const bool in_heap = !in_child();
    void* memory = nullptr;
    if (in_heap) {
      const Result<std::byte*> found = runtime_->heap()->allocate(nbytes);
      if (found.is_ok()) memory = found.value();
    } else {
      memory = std::malloc(std::max<std::size_t>(nbytes, 1));
    }
    if (memory != nullptr) blocks_[memory] = {nbytes, in_heap};
    return memory;  // null: NumPy raises MemoryError
  }
  void* take_again(void* memory, std::size_t nbytes) {
    const std::size_t had = blocks_.at(memory).nbytes;
    if (nbytes <= had) return memory;
    void* const more = take(nbytes);
    if (more == nullptr) return nullptr;
    std::memcpy(more, memory, had);
    give_back(memory);
    return more;
  }
  void give_back(void* memory) {
    const auto found = blocks_.find(memory);
    const bool in_heap = found->second.in_heap;
    blocks_.erase(found);
    if (!in_heap) {
      std::free(memory);
    } else if (!in_child()) {
      runtime_->heap()->free(static_cast<std::byte*>(memory));
    }
  }

 private:
  struct Block {
    std::size_t nbytes;
    bool in_heap;
  };
  bool in_child() const { return ::getpid() != made_in_; }

  std::shared_ptr<Runtime> runtime_;
  const pid_t made_in_ = ::getpid();
  std::unordered_map<void*, Block> blocks_;
};

NumpyMemory& memory_of(void* ctx) { return *static_cast<NumpyMemory*>(ctx); }

// NumPy is C, and knows no exceptions.
template <class Body>
void* or_null(Body&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void* take(void* ctx, std::size_t nbytes) {
  return or_null([&] { return memory_of(ctx).take(nbytes); });
}
void* take_zeros(void* ctx, std::size_t count, std::size_t nbytes) {
  std::size_t all = 0;
  if (__builtin_mul_overflow(count, nbytes, &all)) return nullptr;
  void* const memory = take(ctx, all);
  return memory == nullptr ? nullptr : std::memset(memory, 0, all);
}
void* take_again(void* ctx, void* memory, std::size_t nbytes) {
  if (memory == nullptr) return take(ctx, nbytes);
  return or_null([&] { return memory_of(ctx).take_again(memory, nbytes); });
}
void give_back(void* ctx, void* memory, std::size_t) {
  if (memory != nullptr) memory_of(ctx).give_back(memory);
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
