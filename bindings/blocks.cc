#include "blocks.h"

#include <optional>
#include <string>

#include "arguments.h"
#include "bind_errors.h"
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

PyObject* finish(const GroupObject& group, const Status& status, const Blocks* written, PyObject* result) {
  const View* const none = nullptr;
  PyObject* const ended = finish(group, status, none, result);
  if (written == nullptr || status.code() == Code::kInvalidArgument || written->note_write(*group.state))
    return ended;
  Py_XDECREF(ended);
  return nullptr;
}

PyObject* run_list(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (nargs != 8 || kwnames != nullptr) {
    PyErr_SetString(PyExc_TypeError,
                    "_run_list(collective, blocks, writes, op, root, bundle, timeout, fixed_order)");
    return nullptr;
  }
  State& state = *group.state;
  const char* const name = PyUnicode_AsUTF8(args[0]);
  const std::optional<Collective> collective = name == nullptr ? std::nullopt : collective_from_name(name);
  if (!collective) {
    if (name != nullptr) refuse(state, "no collective is called \"" + std::string(name) + "\"");
    return nullptr;
  }
  const char* const function = name_of(*collective).data();
  const bool writes = args[2] == Py_True;
  Request request;
  request.collective = *collective;
  request.site = site_of(group);
  int64_t root = 0, bundle = 0;
  double timeout = -1;
  if ((args[3] != Py_None && !to_op(state, function, args[3], &request.op)) ||
      !to_integer(state, function, "root", args[4], group.size - 1, &root) ||
      !to_integer(state, function, "bundle", args[5], UINT32_MAX, &bundle) ||
      !to_timeout(state, function, args[6], &timeout)) {
    return nullptr;
  }
  request.root = static_cast<Rank>(root);
  request.bundle = static_cast<uint64_t>(bundle);
  request.fixed_order = args[7] == Py_True;
  Blocks blocks;
  if (!blocks.take(state, args[1], {function, "x", writes, true})) return nullptr;
  request.in = blocks.buffer();
  if (writes) request.out = blocks.buffer();
  const Status status = run(group, [&](Communicator& c) { return c.run(request, timeout); });
  return finish(group, status, writes ? &blocks : nullptr, Py_None);
}

}  // namespace pc
