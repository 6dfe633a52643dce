// Arrays that have __dlpack__ and no file of their own, and the parts common to all DLPack
// exporters.
#include <pybind11/pybind11.h>

#include <utility>

#include "bindings/arrays/view_builder.h"
#include "bindings/python/ref.h"
#include "bindings/state/errors.h"

namespace py = pybind11;

namespace pc {
namespace {

std::optional<DType> dtype_of(const dlpack::DataType& t) {
  if (t.lanes != 1) return std::nullopt;
  const auto pick = [&](DType b8, DType b16, DType b32, DType b64) -> std::optional<DType> {
    switch (t.bits) {
      case 8: return b8;
      case 16: return b16;
      case 32: return b32;
      case 64: return b64;
      default: return std::nullopt;
    }
  };
  switch (t.code) {
    case dlpack::kInt: return pick(DType::kI8, DType::kI16, DType::kI32, DType::kI64);
    case dlpack::kUInt: return pick(DType::kU8, DType::kU16, DType::kU32, DType::kU64);
    case dlpack::kFloat:
      return t.bits == 8 ? std::nullopt : pick(DType::kF16, DType::kF16, DType::kF32, DType::kF64);
    case dlpack::kBfloat: return t.bits == 16 ? std::optional(DType::kBF16) : std::nullopt;
    case dlpack::kComplex:
      return t.bits == 64    ? std::optional(DType::kC64)
             : t.bits == 128 ? std::optional(DType::kC128)
                             : std::nullopt;
    case dlpack::kFloat8E4M3FN: return t.bits == 8 ? std::optional(DType::kF8E4M3FN) : std::nullopt;
    case dlpack::kFloat8E5M2: return t.bits == 8 ? std::optional(DType::kF8E5M2) : std::nullopt;
    case dlpack::kBool: return t.bits == 8 ? std::optional(DType::kBool) : std::nullopt;
    default: return std::nullopt;
  }
}

// Saves a pending Python error while the exporter's code (a capsule's destructor, a tensor's
// deleter) runs, because JAX's code clears the error.
class Capsule final {
 public:
  explicit Capsule(py::object capsule) : capsule_(std::move(capsule)) {}
  ~Capsule() {
    const py::error_scope kept;
    capsule_ = py::object();
  }
  Capsule(const Capsule&) = delete;
  Capsule& operator=(const Capsule&) = delete;
  PyObject* ptr() const { return capsule_.ptr(); }

 private:
  py::object capsule_;
};

// Owns the contents of a capsule.
template <class Managed>
class CapsuleHold final : public Hold {
 public:
  explicit CapsuleHold(Managed* managed) : managed_(managed) {}
  ~CapsuleHold() override {
    if (managed_->deleter == nullptr || !holds_gil()) return;
    const py::error_scope kept;
    managed_->deleter(managed_);
  }
  CapsuleHold(const CapsuleHold&) = delete;
  CapsuleHold& operator=(const CapsuleHold&) = delete;

 private:
  Managed* managed_;
};

// Transfers ownership from the capsule; a capsule named "used_..." frees nothing.
template <class Managed>
Managed* take_over(const Capsule& capsule, const char* name, const char* used_name) {
  Managed* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (managed == nullptr || PyCapsule_SetName(capsule.ptr(), used_name) != 0) throw py::error_already_set();
  return managed;
}

// Exports the array. If the call writes the array, passes copy=False to exporters that accept it,
// because a result written to a copy would be lost.
py::object export_capsule(py::handle exporter, bool written) {
  const py::object method = exporter.attr("__dlpack__");
  const py::tuple version = py::make_tuple(1, 1);
  for (const bool no_copy : {true, false}) {
    if (no_copy && !written) continue;
    try {
      return no_copy ? method(py::arg("max_version") = version, py::arg("copy") = false)
                     : method(py::arg("max_version") = version);
    } catch (py::error_already_set& e) {
      if (!e.matches(PyExc_TypeError)) throw;
    }
  }
  return method();  // an exporter older than DLPack 1.0
}

}  // namespace

bool ViewBuilder::fill(const dlpack::Tensor& t) {
  if (t.device.type == dlpack::kCuda && device_.type != DeviceType::kCuda) {
    const std::string where = "GPU " + std::to_string(t.device.index);
    if (!use_.on_gpu) return refuse_gpu(where);
    return refuse_it(
        "lies on " + where + ", and " + type_name() +
            " does not say on which stream it works: pass a copy on the CPU, or where there is CuPy "
            "cupy.from_dlpack(" +
            use_.argument + ")",
        Code::kUnsupported);
  }
  if (t.device.type != dlpack::kCpu && t.device.type != dlpack::kCudaHost && t.device.type != dlpack::kCuda) {
    return refuse_it("lies on another device than CPU or CUDA (DLPack device " +
                         std::to_string(t.device.type) + ":" + std::to_string(t.device.index) +
                         "): pass a copy on the CPU",
                     Code::kUnsupported);
  }
  const std::optional<DType> dtype = dtype_of(t.dtype);
  if (!dtype) {
    std::string name =
        "(DLPack code " + std::to_string(t.dtype.code) + ", " + std::to_string(t.dtype.bits) + " bits)";
    if (PyObject* own = PyObject_GetAttrString(array_, "dtype")) {
      if (PyObject* text = PyObject_Str(own)) {
        if (const char* utf8 = PyUnicode_AsUTF8(text)) name = utf8;
        Py_DECREF(text);
      }
      Py_DECREF(own);
    }
    clear_python_error();
    return refuse_dtype(name, Code::kUnsupported);
  }
  void* data = t.data == nullptr ? nullptr : static_cast<std::byte*>(t.data) + t.byte_offset;
  return fill(data, *dtype, t.ndim, t.shape, t.strides, 1);
}

bool ViewBuilder::from_managed(dlpack::ManagedTensor* managed) {
  view_.hold_ = std::make_unique<CapsuleHold<dlpack::ManagedTensor>>(managed);
  if (managed->version.major != dlpack::kMajorVersion) {
    return refuse_it("speaks DLPack " + std::to_string(managed->version.major) + ", which is newer than 1",
                     Code::kUnsupported);
  }
  if (use_.written && (managed->flags & dlpack::kFlagReadOnly) != 0) return refuse_read_only();
  if (use_.written && (managed->flags & dlpack::kFlagCopied) != 0) {
    return refuse_it("(" + type_name() +
                     ") exports only a copy of itself, in which the result would be lost: pass a NumPy "
                     "array or a torch tensor");
  }
  return fill(managed->tensor);
}

bool ViewBuilder::from_capsule(PyObject* exporter) {
  try {
    const Capsule capsule(export_capsule(exporter, use_.written));
    if (PyCapsule_IsValid(capsule.ptr(), dlpack::kVersionedCapsule) != 0) {
      auto* managed =
          take_over<dlpack::ManagedTensor>(capsule, dlpack::kVersionedCapsule, "used_dltensor_versioned");
      return from_managed(managed);
    }
    auto* managed = take_over<dlpack::LegacyManagedTensor>(capsule, dlpack::kLegacyCapsule, "used_dltensor");
    view_.hold_ = std::make_unique<CapsuleHold<dlpack::LegacyManagedTensor>>(managed);
    // Torch exports neither read-only memory nor copies
    if (use_.written && view_.torch_tensor_ == nullptr) {
      return refuse_it(
          "(" + type_name() +
          ") speaks a DLPack older than 1.0, which cannot say whether its memory may be written: "
          "pass a NumPy array or a torch tensor");
    }
    return fill(managed->tensor);
  } catch (py::error_already_set& e) {
    e.restore();
  }
  return refuse_it("(" + type_name() + ") cannot be exported by __dlpack__: " + take_python_error());
}

bool ViewBuilder::from_dlpack() {
  try {  // check the device first: an export from a GPU may wait for its stream
    const py::tuple device = py::handle(array_).attr("__dlpack_device__")();
    dlpack::Tensor where{};
    where.device = {device[0].cast<int32_t>(), device[1].cast<int32_t>()};
    if (where.device.type != dlpack::kCpu && where.device.type != dlpack::kCudaHost) return fill(where);
  } catch (py::error_already_set& e) {
    e.restore();
    return refuse_it("(" + type_name() + ") does not say where it lies: " + take_python_error());
  } catch (const py::cast_error&) {
    return refuse_it("(" + type_name() +
                     ") does not say where it lies: __dlpack_device__() must return two integers");
  }
  return from_capsule(array_);
}

}  // namespace pc
