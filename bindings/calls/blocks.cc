#include "bindings/calls/blocks.h"

#include "bindings/calls/running_call.h"

namespace pc {

bool Blocks::take(State& state, PyObject* arrays, const Use& use) {
  // A tuple, because the list may change while the call runs.
  held_ = std::make_unique<Ref>(PyList_CheckExact(arrays) ? PyList_AsTuple(arrays) : PyTuple_Pack(1, arrays));
  if (!*held_) return false;
  count_ = static_cast<std::size_t>(PyTuple_GET_SIZE(held_->get()));
  if (count_ == 0) {
    PyErr_Format(PyExc_TypeError, "%s: a list of no blocks", use.function);
    return false;
  }
  views_ = std::make_unique<View[]>(count_);
  // NumPy arrays last: taking a view of another array runs Python code, which could move a NumPy
  // array's memory.
  for (const bool numpy : {false, true}) {
    for (std::size_t i = 0; i < count_; ++i) {
      PyObject* const array = PyTuple_GET_ITEM(held_->get(), static_cast<Py_ssize_t>(i));
      const bool is_numpy = PyObject_TypeCheck(array, reinterpret_cast<PyTypeObject*>(state.ndarray)) != 0;
      if (is_numpy == numpy && !views_[i].take(state, array, use)) return false;
    }
  }
  for (std::size_t i = 0; i < count_; ++i) {
    if (!views_[i].same_dtype(state, views_[0], use)) return false;
    list_.add(views_[i].buffer().data, views_[i].buffer().nbytes());
  }
  return true;
}

Buffer Blocks::buffer() const {
  Buffer all = views_[0].buffer();
  for (std::size_t i = 1; i < count_; ++i) all.count += views_[i].buffer().count;
  const bool together = list_.nbytes() == 0 || list_.at(0, list_.nbytes()).size() == list_.nbytes();
  if (list_.nbytes() != 0) all.data = together ? list_.at(0, 1).data() : nullptr;
  if (!together) all.list = &list_;
  return all;
}

bool Blocks::note_write(const State& state) const {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  for (std::size_t i = 0; i < count_; ++i) {  // marks all of them and keeps the first error
    if (views_[i].note_write(state)) continue;
    if (type == nullptr) {
      PyErr_Fetch(&type, &value, &traceback);
    } else {
      PyErr_Clear();
    }
  }
  if (type == nullptr) return true;
  PyErr_Restore(type, value, traceback);
  return false;
}

int Blocks::traverse(visitproc visit, void* arg) const {
  if (held_ != nullptr) Py_VISIT(held_->get());
  for (std::size_t i = 0; views_ != nullptr && i < count_; ++i) {
    if (const int stop = views_[i].traverse(visit, arg); stop != 0) return stop;
  }
  return 0;
}

PyObject* finish_blocks(const GroupObject& group, const Status& status, const Blocks* written,
                        PyObject* result) {
  PyObject* const ended = finish(group, status, nullptr, result);
  if (written == nullptr || status.code() == Code::kInvalidArgument || written->note_write(*group.state))
    return ended;
  Py_XDECREF(ended);
  return nullptr;
}

}  // namespace pc
