#include "part_calls.h"

#include <vector>

#include "arguments.h"
#include "bind_errors.h"
#include "call.h"
#include "new_array.h"
#include "ref.h"
#include "view_builder.h"

namespace pc {
namespace {

struct Given {  // borrowed; null: left out
  PyObject *x = nullptr, *op = nullptr, *root = nullptr, *out = nullptr, *counts = nullptr,
           *recv_counts = nullptr, *axis = nullptr, *timeout = nullptr;
};
bool is_given(PyObject* value) { return value != nullptr && value != Py_None; }

// The result's shape, from that of x. False: x cannot be cut; the error is set.
bool result_shape(const GroupObject& group, Collective collective, const View& x,
                  std::vector<int64_t>& shape) {
  shape.assign(x.shape(), x.shape() + x.ndim());
  const bool gathers = collective == Collective::kAllgather || collective == Collective::kGather;
  if (gathers) {
    if (shape.empty()) shape.push_back(1);  // numbers make a vector
    shape[0] *= group.size;
    return true;
  }
  const std::string who = std::string(name_of(collective)) + ": x ";
  if (shape.empty()) return refuse(*group.state, who + "has no axis to cut: it is a 0-d array");
  if (shape[0] % group.size != 0) {
    return refuse(*group.state, who + "of shape " + shape_text(x.shape(), x.ndim()) + " cannot be cut into " +
                                    std::to_string(group.size) +
                                    " equal parts along axis 0: give counts=, a list or \"auto\"");
  }
  if (collective != Collective::kAlltoall) shape[0] /= group.size;
  return true;
}

bool has_shape(const GroupObject& group, const char* function, const View& out,
               const std::vector<int64_t>& shape) {
  if (std::vector<int64_t>(out.shape(), out.shape() + out.ndim()) == shape) return true;
  return refuse(*group.state, std::string(function) + ": out has shape " +
                                  shape_text(out.shape(), out.ndim()) + ", but the result " +
                                  shape_text(shape.data(), static_cast<int>(shape.size())));
}

bool is_zero(PyObject* axis) {
  if (axis == nullptr) return true;
  return PyLong_CheckExact(axis) && PyLong_AsLong(axis) == 0;
}

class PartCall {
 public:
  PartCall(Collective collective, GroupObject& group, PyObject* const* args, Py_ssize_t nargs,
           PyObject* kwnames)
      : function_(name_of(collective).data()),
        group_(group),
        state_(*group.state),
        args_(args),
        nargs_(nargs),
        kwnames_(kwnames) {
    request_.collective = collective;
  }

  // `order`: where each parameter of the signature goes.
  template <std::size_t n>
  PyObject* make(const Signature& signature, PyObject* Given::*const (&order)[n]) {
    PyObject* slots[n];
    if (!parse(state_, signature, args_, nargs_, kwnames_, slots)) return nullptr;
    for (std::size_t i = 0; i < n; ++i) given_.*order[i] = slots[i];
    request_.site = site_of(group_);
    int64_t root = 0;
    if (!to_op(state_, function_, given_.op, &request_.op) ||
        !to_timeout(state_, function_, given_.timeout, &timeout_) ||
        !to_integer(state_, function_, "root", given_.root, group_.size - 1, &root)) {
      return nullptr;
    }
    request_.root = static_cast<Rank>(root);
    if (is_given(given_.counts) || is_given(given_.recv_counts) || !is_zero(given_.axis)) return in_staged();
    return at_root() ? with_whole() : without_whole();
  }

 private:
  bool at_root() const { return !is_rooted(request_.collective) || request_.root == group_.rank; }
  PyObject* in_staged() { return staged(function_, group_, args_, nargs_, kwnames_); }
  PyObject* refused(const View& view) { return view.stageable() ? in_staged() : nullptr; }

  // This rank has the array of all parts, or gets it.
  PyObject* with_whole() {
    if (request_.collective == Collective::kScatter && !is_given(given_.out)) return in_staged();
    const Use in_use = {function_, "x", false, true}, out_use = {function_, "out", true, true};
    View first, in, out;
    if (!first.take(state_, given_.x, in_use)) return refused(first);
    std::vector<int64_t> shape;
    if (!result_shape(group_, request_.collective, first, shape)) return nullptr;
    const Ref result(is_given(given_.out) ? Py_NewRef(given_.out) : new_array(state_, given_.x, shape));
    if (!result) return PyErr_Occurred() == nullptr ? in_staged() : nullptr;
    // Again, for code has run meanwhile; and a NumPy array last (see elementwise in calls.cc).
    const bool x_is_numpy =
        PyObject_TypeCheck(given_.x, reinterpret_cast<PyTypeObject*>(state_.ndarray)) != 0;
    if (x_is_numpy && !out.take(state_, result.get(), out_use)) return refused(out);
    if (!in.take(state_, given_.x, in_use)) return refused(in);
    if (!x_is_numpy && !out.take(state_, result.get(), out_use)) return refused(out);
    if (reduces(request_.collective) && !in.fits(state_, request_.op, in_use)) return nullptr;
    if (!out.same_dtype(state_, in, out_use) || !has_shape(group_, function_, out, shape)) return nullptr;
    request_.in = in.buffer();
    request_.out = out.buffer();
    return run_and_finish(&out, result.get());
  }

  // This rank gives a part to the root, or gets one from it.
  PyObject* without_whole() {
    View view;
    if (request_.collective == Collective::kGather) {
      if (!view.take(state_, given_.x, {function_, "x", false, true})) return refused(view);
      request_.in = view.buffer();
      return run_and_finish(nullptr, Py_None);
    }
    if (!is_given(given_.out)) return in_staged();  // its shape must come from the root
    if (!view.take(state_, given_.out, {function_, "out", true, true})) return refused(view);
    request_.out = view.buffer();
    return run_and_finish(&view, given_.out);
  }

  PyObject* run_and_finish(const View* written, PyObject* result) {
    const Status status = run(group_, [&](Communicator& c) { return c.run(request_, timeout_); });
    return finish(group_, status, written, result);
  }

  const char* const function_;
  GroupObject& group_;
  State& state_;
  PyObject* const* const args_;
  const Py_ssize_t nargs_;
  PyObject* const kwnames_;
  Given given_;
  Request request_;
  double timeout_ = -1;
};

// Sizes from a Python sequence of integers. False: the error is set.
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

}  // namespace

PyObject* allgather(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr Signature kSignature = {"allgather", 1, 1, 5, {kX, kOut, kCounts, kAxis, kTimeout}};
  return PartCall(Collective::kAllgather, group, args, nargs, kwnames)
      .make(kSignature, {&Given::x, &Given::out, &Given::counts, &Given::axis, &Given::timeout});
}

PyObject* reduce_scatter(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr Signature kSignature = {
      "reduce_scatter", 1, 2, 6, {kX, kOp, kOut, kCounts, kAxis, kTimeout}};
  return PartCall(Collective::kReduceScatter, group, args, nargs, kwnames)
      .make(kSignature, {&Given::x, &Given::op, &Given::out, &Given::counts, &Given::axis, &Given::timeout});
}

PyObject* alltoall(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr Signature kSignature = {
      "alltoall", 1, 1, 6, {kX, kOut, kCounts, kRecvCounts, kAxis, kTimeout}};
  return PartCall(Collective::kAlltoall, group, args, nargs, kwnames)
      .make(kSignature,
            {&Given::x, &Given::out, &Given::counts, &Given::recv_counts, &Given::axis, &Given::timeout});
}

PyObject* gather(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr Signature kSignature = {"gather", 1, 2, 6, {kX, kRoot, kOut, kCounts, kAxis, kTimeout}};
  return PartCall(Collective::kGather, group, args, nargs, kwnames)
      .make(kSignature,
            {&Given::x, &Given::root, &Given::out, &Given::counts, &Given::axis, &Given::timeout});
}

PyObject* scatter(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr Signature kSignature = {"scatter", 1, 2, 6, {kX, kRoot, kOut, kCounts, kAxis, kTimeout}};
  return PartCall(Collective::kScatter, group, args, nargs, kwnames)
      .make(kSignature,
            {&Given::x, &Given::root, &Given::out, &Given::counts, &Given::axis, &Given::timeout});
}

PyObject* run_as_it_is(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (nargs != 9 || kwnames != nullptr) {
    PyErr_SetString(PyExc_TypeError,
                    "_run(collective, x, out, op, root, counts, recv_counts, bundle, timeout)");
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
  Request request;
  request.collective = *collective;
  request.site = site_of(group);
  int64_t root = 0, bundle = 0;
  double timeout = -1;
  std::vector<uint64_t> counts, recv_counts;
  if ((is_given(args[3]) && !to_op(state, function, args[3], &request.op)) ||
      !to_integer(state, function, "root", args[4], group.size - 1, &root) ||
      !to_counts(state, function, "counts", args[5], counts) ||
      !to_counts(state, function, "recv_counts", args[6], recv_counts) ||
      !to_integer(state, function, "bundle", args[7], UINT32_MAX, &bundle) ||
      !to_timeout(state, function, args[8], &timeout)) {
    return nullptr;
  }
  request.root = static_cast<Rank>(root);
  request.bundle = static_cast<uint64_t>(bundle);
  request.counts = counts;
  request.recv_counts = recv_counts;
  const bool in_place = args[1] == args[2];
  View in, out;
  if (is_given(args[1]) && !in.take(state, args[1], {function, "x", in_place, true})) return nullptr;
  if (is_given(args[2]) && !in_place && !out.take(state, args[2], {function, "out", true, true}))
    return nullptr;
  const View* const written = in_place ? &in : &out;
  request.in = in.buffer();
  if (is_given(args[2])) request.out = written->buffer();
  // The core counts elements it knows only as bytes in bytes.
  const Layout* const layout = is_given(args[1]) ? in.buffer().layout : out.buffer().layout;
  for (std::vector<uint64_t>* list : {&counts, &recv_counts}) {
    for (uint64_t& count : *list) count *= layout == nullptr ? 1 : layout->item_nbytes;
  }
  const Status status = run(group, [&](Communicator& c) { return c.run(request, timeout); });
  return finish(group, status, is_given(args[2]) ? written : nullptr, Py_None);
}

}  // namespace pc
