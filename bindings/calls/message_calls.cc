#include "bindings/calls/message_calls.h"

#include <memory>
#include <optional>

#include "bindings/arrays/new_array.h"
#include "bindings/calls/arguments.h"
#include "bindings/calls/blocks.h"
#include "bindings/calls/prepared_call.h"
#include "bindings/calls/run_prepared.h"
#include "bindings/calls/running_call.h"
#include "bindings/python/ref.h"
#include "bindings/state/errors.h"
#include "failure/array_description.h"

namespace pc {
namespace {

constexpr int64_t kMostTag = UINT32_MAX;

bool is_any_rank(PyObject* value) {
  int overflow = 0;
  return value != nullptr && PyLong_CheckExact(value) &&
         PyLong_AsLongAndOverflow(value, &overflow) == kAnyRank && overflow == 0;
}

// The peer, tag and timeout of a message.
struct Address {
  int64_t peer = 0, tag = 0;
  double timeout_s = -1;

  bool read(const GroupObject& group, const char* function, PyObject* given_peer, PyObject* tag_given,
            PyObject* timeout, const char* name = "peer") {
    const State& state = *group.state;
    if (is_any_rank(given_peer)) {
      peer = kAnyRank;
    } else if (!to_integer(state, function, name, given_peer, group.size - 1, &peer)) {
      return false;
    }
    return to_integer(state, function, "tag", tag_given, kMostTag, &tag) &&
           to_timeout(state, function, timeout, &timeout_s);
  }
};

std::span<const int64_t> shape_of(const View& view) {
  return {view.shape(), static_cast<std::size_t>(view.ndim())};
}

bool refuse_any_rank(const State& state, const char* function) {
  return refuse(
      state, std::string(function) + ": ANY_SOURCE is for recv(), which waits for any sender: name one rank");
}

// The message that a token of _find() refers to.
struct Found {
  std::optional<FoundMessage> message;  // empty once it is received
  std::shared_ptr<Session> session;
  Communicator* communicator;
  std::shared_ptr<GroupHold> hold;
};
constexpr const char* kToken = "pycollective._core.found_message";

void let_go(Found& found) {
  if (found.message && found.session->runtime != nullptr)
    found.communicator->messages().put_back(*found.message);
  found.message.reset();
}

void end_token(PyObject* token) {
  const std::unique_ptr<Found> found(static_cast<Found*>(PyCapsule_GetPointer(token, kToken)));
  let_go(*found);
}

// Python: Group._send and _recv(x, peer, tag, timeout, bundle).
template <bool kSends>
PyObject* as_it_is(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  constexpr const char* kName = kSends ? "send" : "recv";
  if (nargs != 5 || kwnames != nullptr) return PyErr_Format(PyExc_TypeError, "five arguments by position");
  const State& state = *group.state;
  const char* const site = group.state->sites.here();
  Address address;
  int64_t bundle = 0;
  if (!address.read(group, kName, args[1], args[2], args[3]) ||
      !to_integer(state, kName, "bundle", args[4], INT64_MAX, &bundle)) {
    return nullptr;
  }
  if (address.peer == kAnyRank) return refuse_any_rank(state, kName), nullptr;
  PreparedCall call;
  call.function = kName;
  call.kind = kSends ? UserCall::Kind::kSend : UserCall::Kind::kRecv;
  call.list = std::make_unique<Blocks>();
  if (!call.list->take(*group.state, args[0], {kName, "x", !kSends, true, true})) return nullptr;
  if (kSends)
    call.request.in = call.list->buffer();
  else
    call.request.out = call.list->buffer();
  call.request.root = static_cast<Rank>(address.peer);
  call.request.site = site;
  call.request.bundle = static_cast<uint64_t>(bundle);
  call.tag = static_cast<uint32_t>(address.tag);
  call.timeout_s = address.timeout_s;
  if (const View* const view = call.list->single(); kSends && view != nullptr) call.shape = shape_of(*view);
  call.writes_list = !kSends;
  call.arrays[0] = call.result = args[0];
  return run_prepared(group, call);
}

}  // namespace

bool prepare_send(GroupObject& group, const Given& given, Form, PreparedCall& call) {
  State& state = *group.state;
  Address to;
  if (!to.read(group, call.function, given[kPeer], given[kTag], given[kTimeout])) return false;
  if (to.peer == kAnyRank) return refuse_any_rank(state, call.function);
  if (!call.in_view.take(state, given[kX], {call.function, "x", false, true, true})) return false;
  call.kind = PreparedCall::Kind::kSend;
  call.shape = shape_of(call.in_view);
  call.request.in = call.in_view.buffer();
  call.request.root = static_cast<Rank>(to.peer);
  call.tag = static_cast<uint32_t>(to.tag);
  call.timeout_s = to.timeout_s;
  call.arrays[0] = call.result = given[kX];
  return true;
}

bool prepare_recv(GroupObject& group, const Given& given, Form form, PreparedCall& call) {
  const bool waits = form == Form::kBlocking;
  State& state = *group.state;
  Address from;
  if (!from.read(group, call.function, given[kPeer], given[kTag], given[kTimeout])) return false;
  if (!waits && from.peer == kAnyRank) return refuse_any_rank(state, call.function);
  if (!waits && given[kX] == Py_None) {
    return refuse(state, std::string(call.function) +
                             ": x is None: only recv(), which waits, can make an array of what comes");
  }
  call.is_staged = from.peer == kAnyRank || given[kX] == Py_None || is_given(given[kWithSource]);
  if (call.is_staged) return false;
  if (!call.in_view.take(state, given[kX], {call.function, "x", true, true, true})) return false;
  call.kind = PreparedCall::Kind::kRecv;
  call.request.out = call.in_view.buffer();
  call.request.root = static_cast<Rank>(from.peer);
  call.tag = static_cast<uint32_t>(from.tag);
  call.timeout_s = from.timeout_s;
  call.written = &call.in_view;
  call.arrays[0] = call.result = given[kX];
  return true;
}

bool prepare_sendrecv(GroupObject& group, const Given& given, Form, PreparedCall& call) {
  State& state = *group.state;
  Address to, from;
  PyObject* const x = given[kX];
  PyObject* const source = is_given(given[kSource]) ? given[kSource] : given[kDest];
  if (!to.read(group, call.function, given[kDest], given[kTag], given[kTimeout], "dest") ||
      !from.read(group, call.function, source, given[kTag], given[kTimeout], "source")) {
    return false;
  }
  if (to.peer == kAnyRank || from.peer == kAnyRank) return refuse_any_rank(state, call.function);
  if (!call.in_view.take(state, x, {call.function, "x", false, true, true})) return false;
  PyObject* out = given[kOut];
  if (!is_given(out)) {
    call.made = std::make_unique<Ref>(
        new_array(state, x, {call.in_view.shape(), call.in_view.shape() + call.in_view.ndim()}));
    out = call.made->get();
    call.is_staged = out == nullptr && PyErr_Occurred() == nullptr;
    if (out == nullptr) return false;
  }
  if (!call.out_view.take(state, out, {call.function, "out", true, true, true})) return false;
  call.kind = PreparedCall::Kind::kSendrecv;
  call.shape = shape_of(call.in_view);
  call.request.in = call.in_view.buffer();
  call.request.out = call.out_view.buffer();
  call.request.root = static_cast<Rank>(to.peer);
  call.source = static_cast<Rank>(from.peer);
  call.tag = static_cast<uint32_t>(to.tag);
  call.timeout_s = to.timeout_s;
  call.written = &call.out_view;
  call.arrays[0] = x;
  call.arrays[1] = call.result = out;
  return true;
}

PyObject* find_message(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (nargs != 3 || kwnames != nullptr) return PyErr_Format(PyExc_TypeError, "_find(peer, tag, timeout)");
  const char* const site = group.state->sites.here();
  Address from;
  if (!from.read(group, "recv", args[0], args[1], args[2])) return nullptr;
  auto found = std::make_unique<Found>(Found{{}, group.session, group.communicator, group.hold});
  const auto find = [&](Communicator& c) -> Status {
    PC_ASSIGN_OR_RETURN(found->message, c.find(static_cast<Rank>(from.peer), static_cast<uint32_t>(from.tag),
                                               from.timeout_s, site));
    return Status::ok();
  };
  const Status status = run(group, find, true);
  if (!status.is_ok()) return finish(group, status, nullptr, Py_None);
  const Result<ArrayDescription> described =
      described_array(found->message->description, found->message->nbytes);
  const ArrayDescription array = described.is_ok() ? described.value() : ArrayDescription();
  const Rank source = found->message->peer;
  const Ref token(PyCapsule_New(found.get(), kToken, end_token));
  if (!token) return nullptr;
  static_cast<void>(found.release());  // now owned by the token
  const std::string dtype = !described.is_ok()     ? std::string()
                            : array.layout.empty() ? std::string(name_of(array.dtype))
                                                   : array.layout;
  const Ref shape(shape_tuple(array.shape));
  const Ref result(shape ? Py_BuildValue("isOO", source, dtype.c_str(), shape.get(), token.get()) : nullptr);
  return result ? finish(group, status, nullptr, result.get()) : nullptr;
}

PyObject* receive_found(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (nargs != 3 || kwnames != nullptr || PyCapsule_IsValid(args[1], kToken) == 0)
    return PyErr_Format(PyExc_TypeError, "_receive(x, token, bundle)");
  Found& found = *static_cast<Found*>(PyCapsule_GetPointer(args[1], kToken));
  if (!found.message) return PyErr_Format(PyExc_TypeError, "_receive(): it has been received");
  int64_t bundle = 0;
  PreparedCall call;
  call.function = "recv";
  call.kind = UserCall::Kind::kRecvFound;
  call.has_bundle = args[2] != Py_None;
  call.list = std::make_unique<Blocks>();
  if ((call.has_bundle && !to_integer(*group.state, "recv", "bundle", args[2], INT64_MAX, &bundle)) ||
      !call.list->take(*group.state, args[0], {"recv", "x", true, true, true})) {
    let_go(found);
    return nullptr;
  }
  const FoundMessage message = *std::exchange(found.message, std::nullopt);
  call.found = &message;
  call.request.out = call.list->buffer();
  call.request.bundle = static_cast<uint64_t>(bundle);
  call.request.site = message.site;
  call.writes_list = true;
  call.arrays[0] = call.result = args[0];
  return run_prepared(group, call);
}

PyObject* send_as_it_is(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return as_it_is<true>(group, args, nargs, kwnames);
}

PyObject* recv_as_it_is(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return as_it_is<false>(group, args, nargs, kwnames);
}

}  // namespace pc
