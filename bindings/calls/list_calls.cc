#include "bindings/calls/list_calls.h"

#include <memory>
#include <optional>
#include <string>

#include "bindings/calls/arguments.h"
#include "bindings/calls/blocks.h"
#include "bindings/calls/forms.h"
#include "bindings/calls/prepared_call.h"
#include "bindings/calls/running_call.h"
#include "bindings/state/errors.h"

namespace pc {

bool prepare_list(GroupObject& group, PyObject* const* args, PreparedCall& call) {
  State& state = *group.state;
  const char* const name = PyUnicode_AsUTF8(args[0]);
  if (name == nullptr) return false;
  const std::optional<Collective> collective = collective_from_name(name);
  if (!collective) return refuse(state, "no collective is called \"" + std::string(name) + "\"");
  call.function = name_of(*collective).data();
  Request& request = call.request;
  request.collective = *collective;
  request.site = site_of(group);
  int64_t root = 0, bundle = 0;
  if ((args[3] != Py_None && !to_op(state, call.function, args[3], &request.op)) ||
      !to_integer(state, call.function, "root", args[4], group.size - 1, &root) ||
      !to_integer(state, call.function, "bundle", args[5], INT64_MAX, &bundle) ||
      !to_timeout(state, call.function, args[6], &call.timeout_s)) {
    return false;
  }
  request.root = static_cast<Rank>(root);
  request.bundle = static_cast<uint64_t>(bundle);
  request.fixed_order = args[7] == Py_True;
  const bool writes = args[2] == Py_True;
  call.list = std::make_unique<Blocks>();
  if (!call.list->take(state, args[1], {call.function, "x", writes, true, true})) return false;
  request.in = call.list->buffer();
  if (writes) request.out = call.list->buffer();
  call.writes_list = writes;
  call.arrays[0] = args[1];
  call.result = Py_None;
  return true;
}

PyObject* run_list(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (nargs != 8 || kwnames != nullptr)
    return PyErr_Format(PyExc_TypeError, "_run_list() takes eight arguments by position");
  PreparedCall call;
  return prepare_list(group, args, call) ? run_prepared(group, call) : nullptr;
}

PyObject* begin_list(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (nargs != 9 || kwnames != nullptr)
    return PyErr_Format(PyExc_TypeError, "_begin_list() takes nine arguments by position");
  auto call = std::make_unique<PreparedCall>();
  if (!prepare_list(group, args, *call)) return nullptr;
  call->result = args[8];
  return launch_prepared(group, std::move(call));
}

}  // namespace pc
