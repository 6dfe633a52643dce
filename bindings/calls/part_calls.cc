#include "bindings/calls/part_calls.h"

#include <algorithm>
#include <vector>

#include "bindings/arrays/new_array.h"
#include "bindings/arrays/view_builder.h"
#include "bindings/calls/arguments.h"
#include "bindings/calls/run_prepared.h"
#include "bindings/calls/running_call.h"
#include "bindings/calls/work.h"
#include "bindings/python/ref.h"
#include "bindings/state/errors.h"

namespace pc {
namespace {

// The shape of the result: x's shape with another first length. Valid as long as the view of x.
struct ResultShape {
  int ndim = 0;
  int64_t first = 0;
  const int64_t* tail = nullptr;

  std::vector<int64_t> lengths() const {
    std::vector<int64_t> all = {first};
    all.insert(all.end(), tail, tail + ndim - 1);
    return all;
  }
  bool is_of(const View& view) const {
    return view.ndim() == ndim && view.length(0) == first &&
           std::equal(tail, tail + ndim - 1, view.shape() + 1);
  }
};

// Sets `result` to the shape of the result. Returns false with the error set if x cannot be
// divided.
bool result_shape(const GroupObject& group, Collective collective, const View& x, ResultShape& result) {
  static constexpr int64_t kNumber = 1;  // 0-d arrays are gathered into a vector
  const bool gathers = collective == Collective::kAllgather || collective == Collective::kGather;
  const bool is_number = x.ndim() == 0;
  const int64_t* const shape = is_number ? &kNumber : x.shape();
  result = {is_number ? 1 : x.ndim(), shape[0], shape + 1};
  if (gathers) return result.first *= group.size, true;
  const std::string_view function = name_of(collective);
  if (is_number)
    return refuse(*group.state, std::string(function) + ": x has no axis to cut: it is a 0-d array");
  if (result.first % group.size != 0) {
    return refuse(*group.state, std::string(function) + ": x of shape " + shape_text(x.shape(), x.ndim()) +
                                    " cannot be cut into " + std::to_string(group.size) +
                                    " equal parts along axis 0: give counts=, a list or \"auto\"");
  }
  if (collective != Collective::kAlltoall) result.first /= group.size;
  return true;
}

bool is_zero(PyObject* axis) {
  if (axis == nullptr) return true;
  return PyLong_CheckExact(axis) && PyLong_AsLong(axis) == 0;
}

enum class Prepared : uint8_t {
  kYes,
  kNo,
  kStaged
};  // kNo: a Python error is set; kStaged: pycollective.calls.packing can make the call

class PartCall {
 public:
  PartCall(GroupObject& group, const Given& given, PreparedCall& call)
      : group_(group),
        state_(*group.state),
        given_(given),
        call_(call) {}

  Prepared prepare() {
    Request& request = call_.request;
    int64_t root = 0;
    bool by_world = false;
    if (!to_op(state_, call_.function, given_[kOp], &request.op) ||
        !to_timeout(state_, call_.function, given_[kTimeout], &call_.timeout_s) ||
        !to_integer(state_, call_.function, "root", given_[kRoot], group_.size - 1, &root) ||
        !to_reproducible(state_, call_.function, given_[kReproducible], &request.fixed_order, &by_world)) {
      return Prepared::kNo;
    }
    request.root = static_cast<Rank>(root);
    if (is_given(given_[kCounts]) || is_given(given_[kRecvCounts]) || !is_zero(given_[kAxis]) || by_world)
      return Prepared::kStaged;
    return at_root() ? with_whole() : without_whole();
  }

 private:
  bool at_root() const { return !is_rooted(call_.request.collective) || call_.request.root == group_.rank; }
  static Prepared refused(const View& view) { return view.stageable() ? Prepared::kStaged : Prepared::kNo; }

  // This rank passes or receives the array of all parts.
  Prepared with_whole() {
    const Collective collective = call_.request.collective;
    if (!is_given(given_[kOut])) {
      const Prepared made = make_result();
      if (made != Prepared::kYes) return made;
    }
    PyObject* const result = call_.made != nullptr ? call_.made->get() : given_[kOut];
    const Use in_use = {call_.function, "x", false, true, true},
              out_use = {call_.function, "out", true, true, true};
    View &in = call_.in_view, &out = call_.out_view;
    // A NumPy array is taken last (see prepare_elementwise in calls.cc).
    const bool x_is_numpy =
        PyObject_TypeCheck(given_[kX], reinterpret_cast<PyTypeObject*>(state_.ndarray)) != 0;
    if (x_is_numpy && !out.take(state_, result, out_use)) return refused(out);
    if (!in.take(state_, given_[kX], in_use)) return refused(in);
    if (!x_is_numpy && !out.take(state_, result, out_use)) return refused(out);
    ResultShape shape;
    if (!result_shape(group_, collective, in, shape)) return Prepared::kNo;
    if (reduces(collective) && !in.fits(state_, call_.request.op, in_use)) return Prepared::kNo;
    if (!out.same_dtype(state_, in, out_use) || !has_shape(out, shape)) return Prepared::kNo;
    call_.request.in = in.buffer();
    call_.request.out = out.buffer();
    call_.written = &out;
    call_.arrays[0] = given_[kX];
    call_.arrays[1] = call_.result = result;
    return Prepared::kYes;
  }

  Prepared make_result() {
    const Collective collective = call_.request.collective;
    if (collective == Collective::kScatter) return Prepared::kStaged;
    View x;  // taken again afterwards: new_array() may run Python code
    if (!x.take(state_, given_[kX], {call_.function, "x", false, true, true})) return refused(x);
    ResultShape shape;
    if (!result_shape(group_, collective, x, shape)) return Prepared::kNo;
    PyObject* const result = new_array(state_, given_[kX], shape.lengths());
    if (result == nullptr) return PyErr_Occurred() == nullptr ? Prepared::kStaged : Prepared::kNo;
    call_.made = std::make_unique<Ref>(result);
    return Prepared::kYes;
  }

  bool has_shape(const View& out, const ResultShape& shape) const {
    if (shape.is_of(out)) return true;
    const std::vector<int64_t> lengths = shape.lengths();
    return refuse(state_, std::string(call_.function) + ": out has shape " +
                              shape_text(out.shape(), out.ndim()) + ", but the result " +
                              shape_text(lengths.data(), shape.ndim));
  }

  // This rank passes a part to the root, or receives one from it.
  Prepared without_whole() {
    const bool gathers = call_.request.collective == Collective::kGather;
    if (!gathers && !is_given(given_[kOut])) return Prepared::kStaged;  // the shape must come from the root
    PyObject* const array = gathers ? given_[kX] : given_[kOut];
    View& view = call_.in_view;
    if (!view.take(state_, array, {call_.function, gathers ? "x" : "out", !gathers, true, true}))
      return refused(view);
    if (gathers)
      call_.request.in = view.buffer();
    else
      call_.request.out = view.buffer();
    call_.written = gathers ? nullptr : &view;
    call_.arrays[0] = array;
    call_.result = gathers ? Py_None : array;
    return Prepared::kYes;
  }

  GroupObject& group_;
  State& state_;
  const Given& given_;
  PreparedCall& call_;
};

// Converts a Python sequence of integers to sizes. Returns false with the error set.
bool to_counts(const State& state, const char* function, const char* name, PyObject* value,
               std::vector<uint64_t>& counts) {
  if (!is_given(value)) return true;
  const Ref items(PySequence_Fast(value, "counts must be a list of integers"));
  if (!items) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    int64_t count = 0;
    if (!to_integer(state, function, name, PySequence_Fast_GET_ITEM(items.get(), i), INT64_MAX, &count))
      return false;
    counts.push_back(static_cast<uint64_t>(count));
  }
  return true;
}

// The arguments of _run() and _begin(): collective, x, out, op, root, counts, recv_counts, timeout,
// fixed_order.
bool prepare_as_it_is(GroupObject& group, PyObject* const* args, PreparedCall& call) {
  State& state = *group.state;
  const char* const name = PyUnicode_AsUTF8(args[0]);
  if (name == nullptr) return false;
  const std::optional<Collective> collective = collective_from_name(name);
  if (!collective) return refuse(state, "no collective is called \"" + std::string(name) + "\"");
  const char* const function = call.function = name_of(*collective).data();
  Request& request = call.request;
  request.collective = *collective;
  request.site = site_of(group);
  int64_t root = 0;
  if ((is_given(args[3]) && !to_op(state, function, args[3], &request.op)) ||
      !to_integer(state, function, "root", args[4], group.size - 1, &root) ||
      !to_counts(state, function, "counts", args[5], call.counts) ||
      !to_counts(state, function, "recv_counts", args[6], call.recv_counts) ||
      !to_timeout(state, function, args[7], &call.timeout_s)) {
    return false;
  }
  request.root = static_cast<Rank>(root);
  request.fixed_order = args[8] == Py_True;
  const bool has_in = is_given(args[1]), has_out = is_given(args[2]), in_place = args[1] == args[2];
  View &in = call.in_view, &out = call.out_view;
  if (has_in && !in.take(state, args[1], {function, "x", in_place, true, true})) return false;
  if (has_out && !in_place && !out.take(state, args[2], {function, "out", true, true, true})) return false;
  const View& written = in_place ? in : out;
  request.in = in.buffer();
  if (has_out) {
    request.out = written.buffer();
    call.written = &written;
    call.arrays[1] = args[2];
  }
  if (has_in) call.arrays[0] = args[1];
  if (!has_parts(*collective)) note_shape(group, has_in ? in : out, request);
  // The core measures opaque elements in bytes.
  const Layout* const layout = has_in ? in.buffer().layout : out.buffer().layout;
  for (std::vector<uint64_t>* list : {&call.counts, &call.recv_counts}) {
    for (uint64_t& count : *list) count *= layout == nullptr ? 1 : layout->item_nbytes;
  }
  request.counts = call.counts;
  request.recv_counts = call.recv_counts;
  call.result = Py_None;
  return true;
}

}  // namespace

template <Collective collective>
bool prepare_parts(GroupObject& group, const Given& given, Form, PreparedCall& call) {
  call.request.collective = collective;
  const Prepared prepared = PartCall(group, given, call).prepare();
  call.is_staged = prepared == Prepared::kStaged;
  return prepared == Prepared::kYes;
}
template bool prepare_parts<Collective::kAllgather>(GroupObject&, const Given&, Form, PreparedCall&);
template bool prepare_parts<Collective::kReduceScatter>(GroupObject&, const Given&, Form, PreparedCall&);
template bool prepare_parts<Collective::kAlltoall>(GroupObject&, const Given&, Form, PreparedCall&);
template bool prepare_parts<Collective::kGather>(GroupObject&, const Given&, Form, PreparedCall&);
template bool prepare_parts<Collective::kScatter>(GroupObject&, const Given&, Form, PreparedCall&);

PyObject* run_as_it_is(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (nargs != 9 || kwnames != nullptr)
    return PyErr_Format(PyExc_TypeError, "_run() takes nine arguments by position");
  PreparedCall call;
  return prepare_as_it_is(group, args, call) ? run_prepared(group, call) : nullptr;
}

PyObject* begin_as_it_is(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (nargs != 9 || kwnames != nullptr)
    return PyErr_Format(PyExc_TypeError, "_begin() takes nine arguments by position");
  auto call = std::make_unique<PreparedCall>();
  return prepare_as_it_is(group, args, *call) ? launch_prepared(group, std::move(call)) : nullptr;
}

}  // namespace pc
