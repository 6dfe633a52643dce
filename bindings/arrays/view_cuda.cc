// Arrays on a GPU from libraries with the CUDA array interface (CuPy, Numba), and the stream on
// which a library works now. The interface:
// https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html, version 3.
#include <pybind11/pybind11.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bindings/arrays/view_builder.h"
#include "bindings/python/ref.h"
#include "bindings/state/errors.h"

namespace py = pybind11;

namespace pc {
namespace {

constexpr const char* kInterface = "__cuda_array_interface__";
constexpr int kVersion = 3;  // the first version that reports the stream

// Owns the shape of a view, because the interface returns the shape in a new dict each time.
class ShapeHold final : public Hold {
 public:
  explicit ShapeHold(std::vector<int64_t> shape) : shape_(std::move(shape)) {}
  const int64_t* shape() const { return shape_.data(); }

 private:
  const std::vector<int64_t> shape_;
};

std::vector<int64_t> integers(const py::handle& tuple) {
  std::vector<int64_t> all;
  for (const py::handle each : tuple) all.push_back(each.cast<int64_t>());
  return all;
}

// Returns the dtype of a type string in NumPy's notation, such as "<f4". For a type that NumPy
// lacks, the string only says raw bytes, and x.dtype has the name.
std::optional<DType> dtype_of_typestr(const std::string& typestr, py::handle array) {
  if (typestr.size() < 3) return std::nullopt;
  const std::string kind = typestr.substr(1);
  static const std::pair<const char*, DType> kKinds[] = {
      {"b1", DType::kBool}, {"u1", DType::kU8},   {"i1", DType::kI8},  {"u2", DType::kU16},
      {"i2", DType::kI16},  {"u4", DType::kU32},  {"i4", DType::kI32}, {"u8", DType::kU64},
      {"i8", DType::kI64},  {"f2", DType::kF16},  {"f4", DType::kF32}, {"f8", DType::kF64},
      {"c8", DType::kC64},  {"c16", DType::kC128}};
  for (const auto& [name, dtype] : kKinds) {
    if (kind == name) return dtype;
  }
  const std::string name = py::str(py::getattr(array, "dtype", py::none()));
  const std::optional<DType> own = dtype_from_name(name);
  return own && *own != DType::kOpaque && std::to_string(size_of(*own)) == kind.substr(1) ? own
                                                                                          : std::nullopt;
}

// Returns the stream that the interface reports, or nullopt if no synchronization is needed. In
// CUDA, the numbers 1 and 2 mean the default streams.
std::optional<void*> stream_in(const py::dict& facts) {
  if (!facts.contains("stream") || facts["stream"].is_none()) return std::nullopt;
  return reinterpret_cast<void*>(facts["stream"].cast<uintptr_t>());
}

}  // namespace

bool GpuStream::ask(PyObject* array, std::optional<void*>* stream) const {
  if (exchange_ != nullptr) {
    void* at = nullptr;
    if (exchange_->current_work_stream(dlpack::kCuda, device_, &at) != 0) return false;
    *stream = at;
    return true;
  }
  try {
    *stream = stream_in(py::dict(py::handle(array).attr(kInterface)));
    return true;
  } catch (py::error_already_set& e) {
    e.restore();
    return false;
  }
}

bool ViewBuilder::from_cuda_interface() {
  try {
    const py::dict facts(py::handle(array_).attr(kInterface));
    const int version = facts["version"].cast<int>();
    if (version < kVersion) {
      view_.stageable_ = true;  // JAX makes its own copy
      return refuse_it("(" + type_name() + ") speaks version " + std::to_string(version) +
                           " of the CUDA array interface, which does not say on which stream it is made: "
                           "version 3 does",
                       Code::kUnsupported);
    }
    if (!use_.on_gpu) return refuse_gpu("a GPU");
    if (facts.contains("mask") && !facts["mask"].is_none())
      return refuse_it("has a mask, which would be lost: pass its data");
    const std::string typestr = facts["typestr"].cast<std::string>();
    if (typestr.starts_with('>')) return refuse_byte_order();
    const std::optional<DType> dtype = dtype_of_typestr(typestr, array_);
    if (!dtype) return refuse_dtype(typestr, Code::kUnsupported);
    const py::tuple data = facts["data"].cast<py::tuple>();
    if (use_.written && data[1].cast<bool>()) return refuse_read_only();
    auto shape = std::make_unique<ShapeHold>(integers(facts["shape"]));
    const int ndim = static_cast<int>(py::len(facts["shape"]));
    std::vector<int64_t> strides;
    if (facts.contains("strides") && !facts["strides"].is_none()) strides = integers(facts["strides"]);
    view_.stream_ = stream_in(facts);
    view_.gpu_stream_.emplace(nullptr, kUnknownGpu);
    device_ = {DeviceType::kCuda, kUnknownGpu};
    const int64_t* const lengths = shape->shape();
    view_.hold_ = std::move(shape);
    return fill(reinterpret_cast<void*>(data[0].cast<uintptr_t>()), *dtype, ndim, lengths,
                strides.empty() ? nullptr : strides.data(), static_cast<int64_t>(size_of(*dtype)));
  } catch (py::error_already_set& e) {
    e.restore();
    if (PyErr_ExceptionMatches(PyExc_AttributeError) != 0 && clear_python_error()) {
      // The type has the interface, but this array is not on a GPU
      if (has_dlpack(array_)) return from_dlpack();
      if (PyObject_CheckBuffer(array_) != 0) return from_buffer();
    }
  } catch (const py::cast_error& e) {
    return refuse_it("(" + type_name() + ") has a malformed __cuda_array_interface__: " + e.what());
  }
  return refuse_it("(" + type_name() + ") has no usable __cuda_array_interface__: " + take_python_error());
}

bool ViewBuilder::take_stream(const dlpack::ExchangeApi& exchange, int32_t device) {
  if (!use_.on_gpu) return refuse_gpu("GPU " + std::to_string(device));
  if (exchange.version.minor < dlpack::kMinorWithStreams || exchange.current_work_stream == nullptr)
    return refuse_it("lies on a GPU, and this torch does not say on which stream: it must be newer",
                     Code::kUnsupported);
  view_.gpu_stream_.emplace(&exchange, device);
  if (!view_.gpu_stream_->ask(array_, &view_.stream_))
    return refuse_it("lies on a GPU, and its library does not say on which stream: " + take_python_error());
  device_ = {DeviceType::kCuda, static_cast<int16_t>(device)};
  return true;
}

bool ViewBuilder::refuse_gpu(const std::string& where) const {
  view_.stageable_ = true;  // Python can still make a planned call, anew each time
  return refuse_it("lies on " + where + ", and " + use_.function +
                       " takes arrays of the CPU alone in this form (docs/gpu.md): pass a copy on the CPU",
                   Code::kUnsupported);
}

}  // namespace pc
