// All types with the buffer protocol: bytearray, memoryview, array.array, ctypes arrays, mmap.
#include "bindings/arrays/view_builder.h"
#include "bindings/python/ref.h"
#include "bindings/state/errors.h"

namespace pc {
namespace {

class BufferHold final : public Hold {
 public:
  BufferHold() = default;
  BufferHold(const BufferHold&) = delete;
  BufferHold& operator=(const BufferHold&) = delete;
  ~BufferHold() override {
    if (exported && holds_gil()) PyBuffer_Release(&raw);
  }
  int traverse(visitproc visit, void* arg) const override {
    if (exported) Py_VISIT(raw.obj);
    return 0;
  }
  Py_buffer raw{};
  bool exported = false;
};

// `format` is one item in the syntax of the struct module, without a byte order.
std::optional<DType> dtype_of_format(std::string_view format, std::size_t nbytes) {
  const auto pick = [&](DType b1, DType b2, DType b4, DType b8) -> std::optional<DType> {
    switch (nbytes) {
      case 1: return b1;
      case 2: return b2;
      case 4: return b4;
      case 8: return b8;
      default: return std::nullopt;
    }
  };
  if (format == "Zf") return DType::kC64;
  if (format == "Zd") return DType::kC128;
  if (format.size() != 1) return std::nullopt;
  const char kind = format[0];
  if (kind == '?') return DType::kBool;
  if (kind == 'e') return DType::kF16;
  if (kind == 'f') return DType::kF32;
  if (kind == 'd') return DType::kF64;
  if (kind == 'c') return DType::kU8;
  if (std::string_view("bhilqn").find(kind) != std::string_view::npos) {
    return pick(DType::kI8, DType::kI16, DType::kI32, DType::kI64);
  }
  if (std::string_view("BHILQN").find(kind) != std::string_view::npos) {
    return pick(DType::kU8, DType::kU16, DType::kU32, DType::kU64);
  }
  return std::nullopt;
}

}  // namespace

bool ViewBuilder::from_buffer() {
  auto hold = std::make_unique<BufferHold>();
  if (PyObject_GetBuffer(array_, &hold->raw, PyBUF_FULL_RO) != 0) {
    const std::string why = take_python_error();
    if (PyErr_Occurred() != nullptr) return false;
    if (has_dlpack(array_)) return from_dlpack();
    return refuse_it("(" + type_name() + ") does not export its memory (" + why + "): pass a NumPy array");
  }
  hold->exported = true;
  const Py_buffer& raw = hold->raw;
  std::string_view format = raw.format == nullptr ? "B" : raw.format;
  const bool foreign = format.starts_with('>') || format.starts_with('!');
  if (!format.empty() && std::string_view("@=<>!|").find(format[0]) != std::string_view::npos)
    format.remove_prefix(1);
  const std::optional<DType> dtype = dtype_of_format(format, static_cast<std::size_t>(raw.itemsize));
  if (!dtype || (raw.format == nullptr && raw.itemsize != 1)) {
    const std::string kind = raw.format == nullptr ? "unknown, of " + std::to_string(raw.itemsize) + " bytes"
                                                   : "with buffer format \"" + std::string(raw.format) + "\"";
    return refuse_dtype(kind, Code::kInvalidArgument);
  }
  if (foreign && raw.itemsize > 1)
    return refuse_it("has foreign byte order: pass a copy in this machine's order");
  if (use_.written && raw.readonly != 0) return refuse_read_only();
  if (raw.suboffsets != nullptr) return refuse_it("is an array of pointers to rows: pass a contiguous copy");
  static_assert(sizeof(Py_ssize_t) == sizeof(int64_t));
  view_.hold_ = std::move(hold);
  return fill(raw.buf, *dtype, raw.ndim, raw.shape, raw.strides, raw.itemsize);
}

}  // namespace pc
