// The methods of access to an array's memory. Each has its own file: view_numpy.cc, view_torch.cc,
// view_paddle.cc, view_buffer.cc, view_dlpack.cc, view_cuda.cc.
#pragma once

#include <string>

#include "bindings/arrays/view.h"

namespace pc {

// Returns how to access the memory of `array`; the answer is cached for its type. Returns nullptr
// with a Python error set.
const TypeInfo* type_info(State& state, PyObject* array);

// Returns true if the array has __dlpack__. Throws py::error_already_set if the lookup is
// interrupted.
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

  // Sets the error "<function>: <argument> <what>", such as "allreduce: x is read-only". Always
  // returns false.
  bool refuse_it(const std::string& what, Code code = Code::kInvalidArgument) const;
  std::string type_name() const { return Py_TYPE(array_)->tp_name; }

 private:
  // Fills the view and checks that the memory is contiguous. `strides` are in units of
  // `stride_unit` bytes; null means contiguous.
  bool fill(void* data, DType dtype, int ndim, const int64_t* shape, const int64_t* strides,
            int64_t stride_unit);
  bool fill(const dlpack::Tensor& tensor);
  // Takes a NumPy array with elements that are moved as bytes. `dtype` is the NumPy dtype.
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
  // Calls __dlpack__ of `exporter` and takes ownership of the result.
  bool from_capsule(PyObject* exporter);
  // Takes ownership of the exported tensor.
  bool from_managed(dlpack::ManagedTensor* managed);

  State& state_;
  PyObject* array_;
  const Use& use_;
  View& view_;
  Device device_ = {};  // device of the memory, for fill()
};

}  // namespace pc
