// NumPy arrays and their subclasses, read through pybind11's picture of the array struct: about 10 ns.
#include <pybind11/numpy.h>

#include "bind_errors.h"
#include "view_builder.h"

namespace py = pybind11;

namespace pc {
namespace {

// Indexed by NumPy's type number, which is part of its ABI. kNothing: cannot be sent.
constexpr uint8_t kNothing = 255;
constexpr uint8_t id(DType dtype) { return static_cast<uint8_t>(dtype); }
static_assert(sizeof(long) == 8 && sizeof(long long) == 8, "LONG and ULONG below");
constexpr std::array<uint8_t, 24> kByNumber = {
    id(DType::kBool), id(DType::kI8),  id(DType::kU8),  id(DType::kI16),  id(DType::kU16), id(DType::kI32),
    id(DType::kU32),  id(DType::kI64), id(DType::kU64), id(DType::kI64),  id(DType::kU64), id(DType::kF32),
    id(DType::kF64),  kNothing,        id(DType::kC64), id(DType::kC128), kNothing,        kNothing,
    kNothing,         kNothing,        kNothing,        kNothing,         kNothing,        id(DType::kF16),
};
constexpr int kLongDouble = 13, kComplexLongDouble = 16, kFirstUserType = 256;

}  // namespace

bool ViewBuilder::from_numpy() {
  const py::detail::PyArray_Proxy* raw = py::detail::array_proxy(array_);
  const py::handle descr = raw->descr;
  const py::detail::PyArrayDescr_Proxy* dtype = py::detail::array_descriptor_proxy(descr.ptr());
  uint8_t known = kNothing;
  if (dtype->type_num >= 0 && static_cast<std::size_t>(dtype->type_num) < kByNumber.size()) {
    known = kByNumber[static_cast<std::size_t>(dtype->type_num)];
  }
  if (dtype->type_num == state_.bfloat16) known = id(DType::kBF16);
  if (known == kNothing) {
    const std::string name = py::str(descr.attr("name"));
    if (dtype->type_num >= kFirstUserType && name == "bfloat16") {  // ml_dtypes
      state_.bfloat16 = dtype->type_num;
      known = id(DType::kBF16);
    } else {
      const bool later = dtype->type_num < 0 || dtype->type_num >= kFirstUserType ||
                         dtype->type_num == kLongDouble || dtype->type_num == kComplexLongDouble;
      return refuse_dtype(name, later ? Code::kUnsupported : Code::kInvalidArgument);
    }
  }
  if (dtype->byteorder == '>') {  // NumPy writes the machine's own order, which is little-endian, as '='
    return refuse_it("has foreign byte order: pass " + std::string(use_.argument) + ".astype(" +
                     use_.argument + ".dtype.newbyteorder('='))");
  }
  if (use_.written && (raw->flags & py::detail::npy_api::NPY_ARRAY_WRITEABLE_) == 0)
    return refuse_read_only();
  static_assert(std::is_same_v<std::remove_cv_t<std::remove_pointer_t<decltype(raw->dimensions)>>, int64_t>);
  return fill(raw->data, static_cast<DType>(known), raw->nd, raw->dimensions, raw->strides,
              static_cast<int64_t>(size_of(static_cast<DType>(known))));
}

}  // namespace pc
