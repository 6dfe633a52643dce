// NumPy arrays and their subclasses, read through pybind11's declaration of the array struct. This
// takes about 10 ns.
#include <pybind11/numpy.h>

#include <algorithm>

#include "bindings/arrays/view_builder.h"
#include "bindings/state/errors.h"

namespace py = pybind11;

namespace pc {
namespace {

// Indexed by NumPy's type number, which is part of its ABI. from_opaque() handles types with
// kNothing.
constexpr uint8_t kNothing = 255;
constexpr uint8_t id(DType dtype) { return static_cast<uint8_t>(dtype); }
static_assert(sizeof(long) == 8 && sizeof(long long) == 8, "LONG and ULONG below");
constexpr std::array<uint8_t, 24> kByNumber = {
    id(DType::kBool), id(DType::kI8),  id(DType::kU8),  id(DType::kI16),  id(DType::kU16), id(DType::kI32),
    id(DType::kU32),  id(DType::kI64), id(DType::kU64), id(DType::kI64),  id(DType::kU64), id(DType::kF32),
    id(DType::kF64),  kNothing,        id(DType::kC64), id(DType::kC128), kNothing,        kNothing,
    kNothing,         kNothing,        kNothing,        kNothing,         kNothing,        id(DType::kF16),
};
constexpr int kObject = 17, kFirstUserType = 256, kVariableWidthString = 2056;

struct MlDtype {
  std::string_view name;
  DType dtype;
};
constexpr std::array<MlDtype, 3> kMlDtypes = {{
    {"bfloat16", DType::kBF16},
    {"float8_e4m3fn", DType::kF8E4M3FN},
    {"float8_e5m2", DType::kF8E5M2},
}};

// Returns kNothing if NumPy's number does not determine the dtype or has not been seen yet.
uint8_t known_as(const State& state, int type_num) {
  if (type_num >= 0 && static_cast<std::size_t>(type_num) < kByNumber.size())
    return kByNumber[static_cast<std::size_t>(type_num)];
  for (std::size_t i = 0; i < kMlDtypes.size(); ++i) {
    if (state.ml_dtypes[i] == type_num) return id(kMlDtypes[i].dtype);
  }
  return kNothing;
}

// NumPy numbers the types of ml_dtypes in the order in which it encounters them.
uint8_t learn(State& state, int type_num, py::handle descr) {
  if (type_num < kFirstUserType) return kNothing;
  const std::string name = py::str(descr.attr("name"));
  for (std::size_t i = 0; i < kMlDtypes.size(); ++i) {
    if (kMlDtypes[i].name != name) continue;
    state.ml_dtypes[i] = type_num;
    return id(kMlDtypes[i].dtype);
  }
  return kNothing;
}

// Returns true for a byte order other than the machine's. Checks every field, because NumPy's
// isnative does not check subarrays.
bool is_foreign(py::handle descr) {
  if (py::detail::array_descriptor_proxy(descr.ptr())->byteorder == '>') return true;
  const py::object subarray = descr.attr("subdtype");
  if (!subarray.is_none()) return is_foreign(py::tuple(subarray)[0]);
  const py::object names = descr.attr("names");
  if (names.is_none()) return false;
  for (const py::handle name : names) {
    if (is_foreign(py::object(descr[name]))) return true;
  }
  return false;
}

// FNV-1a (Fowler, Noll, Vo), 64 bits.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// Two dtypes with the same name are the same dtype: the name includes fields, units, offsets and
// lengths.
const Layout* layout_called(State& state, const std::string& name, std::size_t item_nbytes) {
  constexpr std::size_t kShown = 120;  // bounds the text of a record with many fields in messages
  Layout& layout = state.layouts[name];
  if (!layout.name.empty()) return &layout;
  layout.hash = hash_of(name);
  layout.text = name;
  layout.item_nbytes = item_nbytes;
  std::size_t shown = std::min(name.size(), kShown);
  // does not cut inside a UTF-8 character
  while (shown < name.size() && (static_cast<unsigned char>(name[shown]) & 0xc0) == 0x80) --shown;
  layout.name = name.substr(0, shown);
  if (shown < name.size()) layout.name += "... #" + std::to_string(layout.hash);
  return &layout;
}

}  // namespace

bool ViewBuilder::refuse_byte_order() const {
  return refuse_it("has foreign byte order: pass " + std::string(use_.argument) + ".astype(" + use_.argument +
                   ".dtype.newbyteorder('='))");
}

bool ViewBuilder::from_opaque(PyObject* numpy_dtype) {
  const py::handle descr = numpy_dtype;
  const py::detail::PyArray_Proxy* raw = py::detail::array_proxy(array_);
  const int number = py::detail::array_descriptor_proxy(numpy_dtype)->type_num;
  const std::string text = py::str(descr);
  if (number == kObject || descr.attr("hasobject").cast<bool>() || number == kVariableWidthString)
    return refuse_dtype(text, Code::kInvalidArgument);
  // Only NumPy knows the layout of a type without a number.
  if (number < 0) return refuse_dtype(text, Code::kUnsupported);
  if (is_foreign(descr)) return refuse_byte_order();
  const int64_t item_nbytes = descr.attr("itemsize").cast<int64_t>();
  if (!fill(raw->data, DType::kOpaque, raw->nd, raw->dimensions, raw->strides, item_nbytes)) return false;
  view_.buffer_.count *= static_cast<std::size_t>(item_nbytes);
  view_.buffer_.layout = layout_called(state_, text, static_cast<std::size_t>(item_nbytes));
  return true;
}

bool ViewBuilder::from_numpy() {
  const py::detail::PyArray_Proxy* raw = py::detail::array_proxy(array_);
  const py::handle descr = raw->descr;
  const py::detail::PyArrayDescr_Proxy* dtype = py::detail::array_descriptor_proxy(descr.ptr());
  uint8_t known = known_as(state_, dtype->type_num);
  if (known == kNothing) known = learn(state_, dtype->type_num, descr);
  if (use_.written && (raw->flags & py::detail::npy_api::NPY_ARRAY_WRITEABLE_) == 0)
    return refuse_read_only();
  if (known == kNothing) return from_opaque(descr.ptr());
  // NumPy writes the machine's own order, little-endian, as '='.
  if (dtype->byteorder == '>') return refuse_byte_order();
  static_assert(std::is_same_v<std::remove_cv_t<std::remove_pointer_t<decltype(raw->dimensions)>>, int64_t>);
  return fill(raw->data, static_cast<DType>(known), raw->nd, raw->dimensions, raw->strides,
              static_cast<int64_t>(size_of(static_cast<DType>(known))));
}

}  // namespace pc
