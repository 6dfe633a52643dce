// Converts a Python array to a Buffer, without a copy and where possible without calling Python.
// Invalid arguments are refused here, before anything is sent.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/types.h"
#include "bindings/state/state.h"

namespace pc {

// What the call does with an array; used for checks and their messages.
struct Use {
  const char* function;  // "allreduce"
  const char* argument;  // "x" or "out"
  bool written;
  bool held;            // other code may run before the call has ended: the memory must be kept alive
  bool on_gpu = false;  // the array may be on a GPU
};

// Finds the stream on which the library of a GPU array works now. A call runs after the work that
// is already queued on that stream, and before work that is queued later.
class GpuStream {
 public:
  GpuStream(const dlpack::ExchangeApi* exchange, int32_t device) : exchange_(exchange), device_(device) {}
  // Leaves `*stream` empty if the library reports that no synchronization is needed. Returns false
  // with a Python error set.
  bool ask(PyObject* array, std::optional<void*>* stream) const;

 private:
  const dlpack::ExchangeApi* exchange_;  // null: the stream is read through the CUDA array interface
  int32_t device_;
};

// Keeps the exporter from moving the memory (buffer protocol, DLPack capsules).
class Hold {
 public:
  Hold() = default;
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  // Called with the GIL. In a thread that has lost it, nothing is released (ref.h).
  virtual ~Hold() = default;
  // For the garbage collector. Visits nothing by default: a DLPack capsule does not report the
  // owner of its memory.
  virtual int traverse(visitproc, void*) const { return 0; }
};

std::string shape_text(const int64_t* shape, int ndim);  // "(3, 4)", "(3,)", "()"

// A view of one argument, for the duration of one call. Thread-safety: created, used and destroyed
// with the GIL.
class View {
 public:
  // Returns false with a Python error set.
  bool take(State& state, PyObject* array, const Use& use);
  const Buffer& buffer() const { return buffer_; }
  // True after take() has failed if pycollective.calls.packing can still make the call, with a
  // contiguous copy.
  bool stageable() const { return stageable_; }
  // True if the library never writes its arrays (JAX): results are new arrays
  bool is_immutable() const { return immutable_; }
  bool is_on_gpu() const { return buffer_.device.type == DeviceType::kCuda; }
  // The stream on which a GPU array's library worked when the view was taken. Empty if there is no
  // stream to wait for.
  std::optional<void*> stream() const { return stream_; }
  const GpuStream& gpu_stream() const { return *gpu_stream_; }
  // Returns what keeps the memory alive, for a user that outlives this view.
  std::unique_ptr<Hold> take_hold() { return std::move(hold_); }
  int ndim() const { return ndim_; }
  int64_t length(int axis) const { return shape_[axis]; }
  const int64_t* shape() const { return shape_; }
  // Returns true if this view has the shape and dtype of `other`, the view of x, and does not
  // overlap it in part. Otherwise sets the error.
  bool matches(const State& state, const View& other, const Use& use) const;
  bool same_dtype(const State& state, const View& other, const Use& use) const;
  // Returns true if the dtype can be reduced and, for an operation on pairs, the last axis has
  // length 2. Otherwise sets the error. The core checks the rest.
  bool fits(const State& state, ReduceOp op, const Use& use) const;
  // Call this after the memory was, or may have been, written. Returns false with a Python error
  // set.
  bool note_write(const State& state) const;
  int traverse(visitproc visit, void* arg) const {
    return hold_ == nullptr ? 0 : hold_->traverse(visit, arg);
  }

 private:
  friend class ViewBuilder;
  Buffer buffer_;
  std::byte nowhere_{};  // address of an array without elements
  bool stageable_ = false, immutable_ = false;
  int ndim_ = 0;
  const int64_t* shape_ = nullptr;  // owned by the array or by hold_
  // Borrowed. note_write() increments the version counter of the one that is not null.
  PyObject *torch_tensor_ = nullptr, *paddle_tensor_ = nullptr;
  std::unique_ptr<Hold> hold_;
  std::optional<void*> stream_;
  std::optional<GpuStream> gpu_stream_;  // set for an array on a GPU
};

}  // namespace pc
