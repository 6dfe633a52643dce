#include "bindings/module/bind_heap.h"

#include <pybind11/pybind11.h>

#include <memory>
#include <utility>

#include "bindings/module/kept_runtime.h"
#include "bindings/module/numpy_memory.h"
#include "bindings/state/errors.h"
#include "bindings/state/group_object.h"
#include "comm/runtime.h"
#include "shm/heap.h"

namespace py = pybind11;

namespace pc {
namespace {

// A block of the heap. It keeps its memory and the runtime for as long as an array needs them, also
// after shutdown().
class HeapBlock {
 public:
  HeapBlock(std::shared_ptr<Runtime> runtime, std::byte* memory, std::size_t nbytes)
      : runtime_(std::move(runtime)),
        memory_(memory),
        nbytes_(nbytes) {}
  HeapBlock(const HeapBlock&) = delete;
  HeapBlock& operator=(const HeapBlock&) = delete;
  ~HeapBlock() {
    if (!runtime_.in_child()) runtime_.heap().free(memory_);
  }
  py::buffer_info buffer() const {
    return {memory_, 1, py::format_descriptor<uint8_t>::format(), static_cast<py::ssize_t>(nbytes_)};
  }

 private:
  const KeptRuntime runtime_;
  std::byte* const memory_;
  const std::size_t nbytes_;
};

// Returns null if no rank shares memory with this one, or if the world belongs to the parent
// process.
std::shared_ptr<Runtime> runtime_with_heap(const State& state) {
  if (state.world == nullptr || state.world->session->forked) return nullptr;
  std::shared_ptr<Runtime> runtime = state.world->session->runtime;
  return runtime != nullptr && runtime->heap() != nullptr ? runtime : nullptr;
}

std::unique_ptr<HeapBlock> make_block(const State& state, std::size_t nbytes) {
  std::shared_ptr<Runtime> runtime = runtime_with_heap(state);
  if (runtime == nullptr) return nullptr;
  std::byte* const memory = value_or_throw(state, runtime->heap()->allocate(nbytes));
  return std::make_unique<HeapBlock>(std::move(runtime), memory, nbytes);
}

py::object usage(const State& state) {
  const std::shared_ptr<Runtime> runtime = runtime_with_heap(state);
  if (runtime == nullptr) return py::none();
  const auto [reserved, used] = runtime->heap()->usage();
  return py::make_tuple(reserved, used);
}

}  // namespace

void bind_heap(py::module_& m, State* state) {
  py::class_<HeapBlock>(m, "_HeapBlock", py::buffer_protocol()).def_buffer(&HeapBlock::buffer);
  m.def(
      "_heap_block", [state](std::size_t nbytes) { return make_block(*state, nbytes); }, py::arg("nbytes"),
      "Memory of the current world's heap; None if no rank shares memory with this one.");
  m.def(
      "_heap_handler",
      [state] {
        std::shared_ptr<Runtime> runtime = runtime_with_heap(*state);
        return runtime == nullptr ? py::object(py::none()) : numpy_handler(std::move(runtime));
      },
      "NumPy's memory handler of the current world's heap; None if there is none.");
  m.def("_set_numpy_handler", &set_numpy_handler, py::arg("handler"),
        "Sets NumPy's memory handler in this context, None for NumPy's own. Returns the previous one.");
  m.def(
      "_heap_usage", [state] { return usage(*state); },
      "Bytes reserved and bytes in use of the current world's heap; None if there is none.");
}

}  // namespace pc
