#include "blocks.h"

#include "running_call.h"

namespace pc {

bool Blocks::take(State& state, PyObject* arrays, const Use& use) {
  const bool is_list = PyList_CheckExact(arrays);
  count_ = is_list ? static_cast<std::size_t>(PyList_GET_SIZE(arrays)) : 1;
  if (count_ == 0) {
    PyErr_Format(PyExc_TypeError, "%s: a list of no blocks", use.function);
    return false;
  }
  views_ = std::make_unique<View[]>(count_);
  // NumPy arrays last: taking others runs Python code, which could move their memory.
  for (const bool numpy : {false, true}) {
    for (std::size_t i = 0; i < count_; ++i) {
      PyObject* const array = is_list ? PyList_GetItem(arrays, static_cast<Py_ssize_t>(i)) : arrays;
      if (array == nullptr) return false;  // it has become shorter
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
  if (count_ == 1) return all;
  all.data = nullptr;
  all.list = &list_;
  for (std::size_t i = 1; i < count_; ++i) all.count += views_[i].buffer().count;
  return all;
}

bool Blocks::note_write(const State& state) const {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  bool noted = true;
  for (std::size_t i = 0; i < count_ && noted; ++i) noted = views_[i].note_write(state);
  if (type == nullptr) return noted;
  PyErr_Restore(type, value, traceback);
  return false;
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
