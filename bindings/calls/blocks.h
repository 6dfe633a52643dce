// One array, or a list of arrays of one dtype that are sent as one message without packing.
#pragma once

#include <memory>
#include <span>

#include "base/io_vec.h"
#include "bindings/arrays/view.h"
#include "bindings/python/ref.h"
#include "bindings/state/group_object.h"

namespace pc {

// Lives for the duration of one call. Must not be moved, because the result of buffer() points to a
// member. Thread-safety: as View.
class Blocks {
 public:
  // `arrays` is an array or a non-empty list. Returns false with a Python error set.
  bool take(State& state, PyObject* arrays, const Use& use);
  Buffer buffer() const;
  const IoVec& list() const { return list_; }
  std::span<const View> views() const { return {views_.get(), count_}; }
  std::span<View> views() { return {views_.get(), count_}; }
  PyObject* arrays() const { return held_->get(); }  // a tuple with one array per view
  const View* single() const { return count_ == 1 ? &views_[0] : nullptr; }
  // Marks every array as written. A Python error that is already set is kept.
  bool note_write(const State& state) const;
  int traverse(visitproc visit, void* arg) const;  // for the garbage collector

 private:
  std::unique_ptr<Ref> held_;  // owns a tuple of the arrays
  std::size_t count_ = 0;
  std::unique_ptr<View[]> views_;
  IoVec list_;
};

// Like finish() of running_call.h.
PyObject* finish_blocks(const GroupObject& group, const Status& status, const Blocks* written,
                        PyObject* result);

}  // namespace pc
