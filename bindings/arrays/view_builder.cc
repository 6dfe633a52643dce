#include "bindings/arrays/view_builder.h"

#include "bindings/state/errors.h"

namespace pc {
namespace {

// Returns true if the memory is row-major without gaps. Dimensions of length one may have any
// stride.
bool contiguous(const int64_t* shape, const int64_t* strides, int ndim, int64_t expected) {
  for (int i = ndim - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

}  // namespace

bool ViewBuilder::refuse_it(const std::string& what, Code code) const {
  return refuse(state_, code, std::string(use_.function) + ": " + use_.argument + " " + what);
}

bool ViewBuilder::refuse_dtype(const std::string& name, Code code) const {
  std::string names;
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    if (dtype != DType::kOpaque) names += std::string(pc::name_of(dtype)) + ", ";
  }
  return refuse_it("has dtype " + name + "; what can be sent is " + names +
                       "and any other NumPy dtype of fixed size without objects inside",
                   code);
}

bool ViewBuilder::refuse_read_only() const {
  return refuse_it(std::string("is read-only and ") + use_.function + " writes it: pass a copy" +
                   (std::string_view(use_.function).find("allreduce") != std::string_view::npos &&
                            std::string_view(use_.argument) == "x"
                        ? ", or out="
                        : ""));
}

bool ViewBuilder::refuse_layout(const int64_t* shape, const int64_t* strides, int ndim) const {
  view_.stageable_ = true;
  const std::string name = use_.argument;
  std::string copy = "numpy.ascontiguousarray(" + name + ")", back = name + "[...] = copy";
  if (view_.torch_tensor_ != nullptr) copy = name + ".contiguous()", back = name + ".copy_(copy)";
  if (device_.type == DeviceType::kCuda && view_.torch_tensor_ == nullptr)
    copy = "cupy.ascontiguousarray(" + name + ")";
  // Paddle's contiguous() would move the tensor itself to other memory.
  if (view_.paddle_tensor_ != nullptr) copy = name + ".clone()", back = name + ".copy_(copy, True)";
  bool expanded = false;
  for (int i = 0; i < ndim; ++i) expanded = expanded || (shape[i] > 1 && strides[i] == 0);
  std::string what = "of shape " + shape_text(shape, ndim);
  what += expanded ? " is expanded: several of its elements share one place in memory. Pass a copy: "
                   : " is not C-contiguous: its elements do not lie in one block, row by row. Pass a copy: ";
  what += copy;
  if (use_.written && !expanded) what += ", then write it back: " + back;
  return refuse_it(what);
}

bool ViewBuilder::fill(void* data, DType dtype, int ndim, const int64_t* shape, const int64_t* strides,
                       int64_t stride_unit) {
  int64_t count = 1;
  for (int i = 0; i < ndim; ++i) count *= shape[i];
  if (count != 0 && strides != nullptr && !contiguous(shape, strides, ndim, stride_unit)) {
    return refuse_layout(shape, strides, ndim);
  }
  if (count != 0 && data == nullptr) {
    return refuse_it("is a " + type_name() + " that has no memory of its own: pass an ordinary array");
  }
  // An array without elements may have a null address, but null means to the core that there is no
  // array.
  if (data == nullptr) data = &view_.nowhere_;
  view_.buffer_ = Buffer{static_cast<std::byte*>(data), static_cast<std::size_t>(count), dtype, device_};
  view_.ndim_ = ndim;
  view_.shape_ = shape;
  return true;
}

}  // namespace pc
