#include "bindings/calls/forms.h"

#include <memory>
#include <string>
#include <utility>

#include "bindings/calls/in_python.h"
#include "bindings/calls/planned_call.h"
#include "bindings/calls/run_prepared.h"
#include "bindings/calls/running_call.h"
#include "bindings/calls/work.h"
#include "bindings/state/errors.h"

namespace pc {
namespace {

bool prepare(GroupObject& group, const CallRow& row, Form form, const Signature& signature,
             const Given& given, PreparedCall& call) {
  call.function = signature.function;
  // The call site comes first, because the check of the arrays may run Python code.
  call.request.site = row.is_message ? group.state->sites.here() : site_of(group);
  return row.prepare(group, given, form, call);
}

bool is_stageable(const PreparedCall& call) {
  return call.is_staged || call.in_view.stageable() || call.out_view.stageable();
}

bool is_collection(PyObject* x) {
  return x != nullptr && (PyList_Check(x) || PyTuple_Check(x) || PyDict_Check(x));
}

}  // namespace

PyObject* make_blocking(GroupObject& group, const CallRow& row, const Arguments& arguments) {
  Given given;
  if (!parse(*group.state, row.signature, arguments, given)) return nullptr;
  PreparedCall call;
  if (prepare(group, row, Form::kBlocking, row.signature, given, call)) return run_prepared(group, call);
  return is_stageable(call) ? staged(group, row.signature, given) : nullptr;
}

PyObject* make_async(GroupObject& group, const CallRow& row, const Arguments& arguments) {
  const Signature signature = row.signature_of(Form::kAsync);
  Given given;
  if (!parse(*group.state, signature, arguments, given)) return nullptr;
  auto call = std::make_unique<PreparedCall>();
  if (prepare(group, row, Form::kAsync, signature, given, *call))
    return launch_prepared(group, std::move(call));
  const std::string name = row.signature.function;
  if (row.background == Background::kParts) {
    if (call->is_staged && clear_python_error())
      refuse(*group.state, Code::kUnsupported,
             name +
                 "_async takes equal parts along axis 0, arrays that lie in one block, and for scatter "
                 "out=: call " +
                 name + "() for others");
  } else if (call->is_staged) {
    refuse(*group.state, name + "_async: reproducible=\"world\" waits: call it without _async");
  } else if (row.background == Background::kLists &&
             (is_collection(given[kX]) || call->in_view.is_immutable())) {
    return staged(group, signature, given);
  }
  return nullptr;
}

PyObject* make_planned(GroupObject& group, const CallRow& row, const Arguments& arguments) {
  const Signature signature = row.signature_of(Form::kPlanned);
  Given given;
  if (!parse(*group.state, signature, arguments, given)) return nullptr;
  auto call = std::make_unique<PreparedCall>();
  if (prepare(group, row, Form::kPlanned, signature, given, *call))
    return usable(group) == nullptr ? nullptr : plan_prepared(group, std::move(call));
  return is_stageable(*call) ? staged(group, signature, given) : nullptr;
}

}  // namespace pc
