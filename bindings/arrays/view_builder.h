// The ways into an array's memory, one file each: view_numpy.cc, view_torch.cc, view_paddle.cc, view_buffer.cc,
// view_dlpack.cc, view_cuda.cc.
#pragma once

#include <string>

#include "bindings/arrays/view.h"

namespace pc {

// How the memory of `array`'s type is reached; remembered per type. nullptr: a Python error is set.
const TypeInfo* type_info(State& state, PyObject* array);

// Whether it has __dlpack__. Throws py::error_already_set if asking is interrupted.
bool has_dlpack(PyObject* array);

class ViewBuilder {
 public:
  ViewBuilder(State& state, PyObject* array, const Use& use, View& view)
      : state_(state),
        array_(array),
        use_(use),
        view_(view) {}

  bool from_numpy();
  bool from_torch_exchange(const dlpack::ExchangeApi& exchange);
  bool from_torch_capsule();
  bool from_paddle(const dlpack::ExchangeApi* exchange);
  bool from_buffer();
  bool from_dlpack();
  bool from_cuda_interface();

  // "allreduce: x <what>". Always false, with the Python error set.
  bool refuse_it(const std::string& what, Code code = Code::kInvalidArgument) const;
  std::string type_name() const { return Py_TYPE(array_)->tp_name; }

 private:
  // Fills the view and checks that the memory is one block. `strides` in units of `stride_unit` bytes; null: contiguous.
  bool fill(void* data, DType dtype, int ndim, const int64_t* shape, const int64_t* strides,
            int64_t stride_unit);
  bool fill(const dlpack::Tensor& tensor);
  // A NumPy array of elements that are moved as bytes; `dtype` is NumPy's.
  bool from_opaque(PyObject* dtype);
  bool refuse_byte_order() const;
  bool refuse_layout(const int64_t* shape, const int64_t* strides, int ndim) const;
  bool refuse_dtype(const std::string& name, Code code) const;
  bool refuse_read_only() const;
  bool refuse_gpu(const std::string& where) const;
  bool take_stream(const dlpack::ExchangeApi& exchange, int32_t device);
  bool check_torch_flags(const dlpack::Tensor& tensor);
  bool check_torch_grad();
  bool check_paddle_grad();
  // Takes over what __dlpack__ of `exporter` returns.
  bool from_capsule(PyObject* exporter);
  // Takes over the exported tensor.
  bool from_managed(dlpack::ManagedTensor* managed);

  State& state_;
  PyObject* array_;
  const Use& use_;
  View& view_;
  Device device_ = {};  // where fill() says that the memory lies
};

}  // namespace pc
