// Python array -> Buffer, without copying and without asking Python where that can be avoided. What cannot be right is
// refused here, before anything is sent.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/types.h"
#include "bindings/state/state.h"

namespace pc {

// What the call is going to do with an array; for the checks and their messages.
struct Use {
  const char* function;  // "allreduce"
  const char* argument;  // "x" or "out"
  bool written;
  bool held;            // other code may run before the call is over: the memory must not go away
  bool on_gpu = false;  // it may lie there
};

// The library of an array on a GPU says on which stream it works now: what it makes there comes before, what it does there
// afterwards comes behind.
class GpuStream {
 public:
  GpuStream(const dlpack::ExchangeApi* exchange, int32_t device) : exchange_(exchange), device_(device) {}
  // `*stream` stays empty where the library says that nobody need wait. False: a Python error is set.
  bool ask(PyObject* array, std::optional<void*>* stream) const;

 private:
  const dlpack::ExchangeApi* exchange_;  // null: the CUDA array interface
  int32_t device_;
};

// Keeps the exporter of the memory from moving it (buffer protocol, DLPack capsules).
class Hold {
 public:
  Hold() = default;
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  virtual ~Hold() = default;  // with the GIL; without it nothing is let go (ref.h)
  // For the garbage collector. What a DLPack capsule carries does not say whose it is.
  virtual int traverse(visitproc, void*) const { return 0; }
};

std::string shape_text(const int64_t* shape, int ndim);  // "(3, 4)", "(3,)", "()"

// A view of one argument, for the time of one call. Thread-safety: created, used and destroyed with the GIL.
class View {
 public:
  // False: a Python error is set.
  bool take(State& state, PyObject* array, const Use& use);
  const Buffer& buffer() const { return buffer_; }
  // After take() has failed: pycollective.calls.packing can make the call all the same, with a copy that lies in one block.
  bool stageable() const { return stageable_; }
  bool is_immutable() const { return immutable_; }  // an array whose results are always new arrays: JAX's
  bool is_on_gpu() const { return buffer_.device.type == DeviceType::kCuda; }
  // Of an array on a GPU, when the view was taken; empty: there is no stream to wait for.
  std::optional<void*> stream() const { return stream_; }
  const GpuStream& gpu_stream() const { return *gpu_stream_; }
  // What keeps the memory, for whoever uses it longer than this view lives.
  std::unique_ptr<Hold> take_hold() { return std::move(hold_); }
  int ndim() const { return ndim_; }
  int64_t length(int axis) const { return shape_[axis]; }
  const int64_t* shape() const { return shape_; }
  // True if the two have the same shape and dtype; else the error is set. `other` is the first argument.
  bool matches(const State& state, const View& other, const Use& use) const;
  bool same_dtype(const State& state, const View& other, const Use& use) const;
  // True if its elements can take part in that operation as far as the core cannot tell; else the error is set.
  bool fits(const State& state, ReduceOp op, const Use& use) const;
  // To be called after the memory was written, or may have been. False: a Python error is set.
  bool note_write(const State& state) const;
  int traverse(visitproc visit, void* arg) const {
    return hold_ == nullptr ? 0 : hold_->traverse(visit, arg);
  }

 private:
  friend class ViewBuilder;
  Buffer buffer_;
  std::byte nowhere_{};  // where an array without elements may lie
  bool stageable_ = false, immutable_ = false;
  int ndim_ = 0;
  const int64_t* shape_ = nullptr;  // owned by the array or by hold_
  // Borrowed; of the one that is there the version counter is bumped after a write.
  PyObject *torch_tensor_ = nullptr, *paddle_tensor_ = nullptr;
  std::unique_ptr<Hold> hold_;
  std::optional<void*> stream_;
  std::optional<GpuStream> gpu_stream_;  // of an array on a GPU
};

}  // namespace pc
