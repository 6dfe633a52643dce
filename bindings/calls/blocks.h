// One array, or a list of arrays of one dtype that travel as one from where they lie.
#pragma once

#include <memory>
#include <span>

#include "base/io_vec.h"
#include "bindings/arrays/view.h"
#include "bindings/python/ref.h"
#include "bindings/state/group_object.h"

namespace pc {

// For the time of one call. Stays where it is: its buffer points into it. Thread-safety: as View.
class Blocks {
 public:
  // `arrays`: an array, or a list of at least one. False: a Python error is set.
  bool take(State& state, PyObject* arrays, const Use& use);
  Buffer buffer() const;
  const IoVec& list() const { return list_; }
  std::span<const View> views() const { return {views_.get(), count_}; }
  std::span<View> views() { return {views_.get(), count_}; }
  PyObject* arrays() const { return held_->get(); }  // a tuple of as many
  const View* single() const { return count_ == 1 ? &views_[0] : nullptr; }
  bool note_write(const State& state) const;       // of all; a Python error that is set stays
  int traverse(visitproc visit, void* arg) const;  // for the garbage collector

 private:
  std::unique_ptr<Ref> held_;  // a tuple of the arrays
  std::size_t count_ = 0;
  std::unique_ptr<View[]> views_;
  IoVec list_;
};

// finish() of running_call.h.
PyObject* finish_blocks(const GroupObject& group, const Status& status, const Blocks* written,
                        PyObject* result);

}  // namespace pc
