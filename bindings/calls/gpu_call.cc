#include "bindings/calls/gpu_call.h"

#include <string>
#include <utility>
#include <vector>

#include "bindings/calls/arguments.h"
#include "bindings/calls/running_call.h"
#include "bindings/python/ctrl_c.h"
#include "bindings/python/end_signal.h"
#include "bindings/python/ended_calls.h"
#include "bindings/state/errors.h"
#include "kernels/device/embedded.h"

namespace pc {
namespace {

template <class Call, class Each>  // PreparedCall, const or not
void for_each_view(Call& call, Each&& each) {
  if (call.list != nullptr) {
    for (auto& view : call.list->views()) each(view);
  } else {
    each(call.in_view);
    each(call.out_view);
  }
}

// What a call on the GPU needs, until its end there has been seen by a thread without the GIL.
class KeptArrays final : public Ended {
 public:
  explicit KeptArrays(PreparedCall& call) : objects_{call.arrays[0], call.arrays[1], call.result, nullptr} {
    if (call.list != nullptr) objects_[3] = call.list->arrays();  // the list may change
    for (PyObject* object : objects_) Py_XINCREF(object);
    for_each_view(call, [this](View& view) { holds_.push_back(view.take_hold()); });
  }
  KeptArrays(const KeptArrays&) = delete;
  KeptArrays& operator=(const KeptArrays&) = delete;
  ~KeptArrays() = default;
  void settle() override {
    PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);
    holds_.clear();
    for (PyObject*& object : objects_) Py_CLEAR(object);
    PyErr_Restore(type, value, traceback);
  }

 private:
  std::vector<std::unique_ptr<Hold>> holds_;
  PyObject* objects_[4];
};

std::shared_ptr<const void> kept(const State& state, PreparedCall& call) {
  return {new KeptArrays(call), [calls = state.ended_calls](const KeptArrays* arrays) {
            calls->add(std::shared_ptr<KeptArrays>(const_cast<KeptArrays*>(arrays)));
          }};
}

// Where NVIDIA's wheels have NCCL. False: a Python error is set.
bool find_wheel_folders(std::vector<std::string>* folders) {
  const Ref module(PyImport_ImportModule("pycollective.runtime.availability"));
  const Ref found(module ? PyObject_CallMethod(module.get(), "wheel_folders", nullptr) : nullptr);
  const Ref list(found ? PySequence_Fast(found.get(), "wheel_folders() must return a list") : nullptr);
  if (!list) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.get()); ++i) {
    const char* const folder = PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(list.get(), i));
    if (folder == nullptr) return false;
    folders->emplace_back(folder);
  }
  return true;
}

// Of the session, made for its first call. Null: a Python error is set.
std::shared_ptr<DeviceGroups> groups_of(const GroupObject& group) {
  Session& session = *group.session;
  if (session.gpus != nullptr) return session.gpus;
  std::vector<std::string> wheels;
  if (!find_wheel_folders(&wheels)) return nullptr;
  Result<DeviceGroups::Options> read =
      DeviceGroups::Options::from_environment(std::move(wheels), group.state->semaphores);
  if (!read.is_ok()) return raise_status(*group.state, read.status()), nullptr;
  DeviceGroups::Options options = std::move(read).value();
  options.peers.kernels = embedded_kernels();
  options.abandoned = group.state->abandoned;
  options.interrupted = hears_ctrl_c();
  if (options.interrupted == nullptr) return nullptr;
  if (session.runtime == nullptr) return living(group), nullptr;  // the import ran code
  if (session.gpus == nullptr)
    session.gpus = std::make_shared<DeviceGroups>(*session.runtime, std::move(options));
  return session.gpus;
}

// On which stream the call goes. Empty: on the default one, and the host waits. False: the error is set.
bool stream_of(const State& state, const PreparedCall& call, std::optional<void*>* stream) {
  const auto plain_of = [](const View& view) {
    const std::optional<void*> its = view.stream();
    return its ? std::optional(plain_stream(*its)) : its;
  };
  *stream = plain_of(*view_on_gpu(call));
  bool one = true, together = true;
  const int16_t device = view_on_gpu(call)->buffer().device.index;
  for_each_view(call, [&](const View& view) {
    if (view.is_on_gpu()) one = one && plain_of(view) == *stream;
    // Of an array and its out= the core says it.
    together =
        together && (call.list == nullptr || (view.is_on_gpu() && view.buffer().device.index == device));
  });
  if (!together)
    return refuse(state, std::string(call.function) + ": the arrays of the list do not all lie on one GPU");
  return one ||
         refuse(state, std::string(call.function) +
                           ": its arrays belong to libraries that work on different streams: make the call "
                           "where all use one");
}

}  // namespace

std::string explain_on_gpu(const GroupObject& group, std::optional<Collective> collective) {
  const std::string what = collective ? std::string(name_of(*collective)) : "a message";
  const std::string begin =
      what + " of arrays on GPUs, " + std::to_string(group.size) + (group.size == 1 ? " rank: " : " ranks: ");
  if (group.session->gpus == nullptr) return begin + DeviceGroups::not_known_yet();
  return begin + group.session->gpus->explain(*group.communicator, collective);
}

namespace {

// Runs `call(communicator, gpus)` without the GIL, with both kept alive.
template <class Call>
Status run_with_gpus(GroupObject& group, Call&& call) {
  const Status nothing(Code::kInvalidArgument, {});  // was touched: a Python error is set
  Communicator* const communicator = usable(group);
  if (communicator == nullptr) return nothing;
  watch_end_signals_again();
  const std::shared_ptr<GroupHold> hold =
      group.hold;  // close() in another thread, while Python code runs below
  std::shared_ptr<Runtime> runtime = group.session->runtime;  // outlives `gpus`
  std::shared_ptr<DeviceGroups> gpus = groups_of(group);
  if (gpus == nullptr) return nothing;
  Status status;
  {
    const WithoutGil released;  // also alone in the world: the driver and NCCL may wait
    status = call(*communicator, *gpus);
  }
  if (!status.is_ok() && PyErr_Occurred() == nullptr)
    (void)PyErr_CheckSignals();             // it may have been stuck inside NCCL, where no handler runs
  if (group.session->runtime == nullptr) {  // shut down meanwhile
    const WithoutGil released;
    gpus.reset();
    runtime.reset();
  }
  return status;
}

// Calls `make(communicator, gpus, made, has_stream)`, with `made` the call and what keeps its arrays, without the GIL.
template <class Make>
Status on_gpus(GroupObject& group, PreparedCall& call, Make&& make) {
  std::optional<void*> stream;
  if (!stream_of(*group.state, call, &stream)) return Status(Code::kInvalidArgument, {});
  CallOnGpu made{call, kept(*group.state, call)};
  if (call.list != nullptr && call.list->has_joined()) made.joined = &call.list->list();
  made.call.request.stream = stream.value_or(nullptr);
  return run_with_gpus(group, [&](Communicator& communicator, DeviceGroups& gpus) {
    return make(communicator, gpus, made, stream.has_value());
  });
}

PyObject* finished(const GroupObject& group, const PreparedCall& call, const Status& status,
                   PyObject* result) {
  if (call.list != nullptr)
    return finish_blocks(group, status, call.writes_list ? call.list.get() : nullptr, result);
  return finish(group, status, call.written, result);
}

}  // namespace

bool is_on_gpu(const PreparedCall& call) {
  if (call.list == nullptr) [[likely]]
    return call.in_view.is_on_gpu() || call.out_view.is_on_gpu();
  return view_on_gpu(call) != nullptr;
}

const View* view_on_gpu(const PreparedCall& call) {
  const View* found = nullptr;
  for_each_view(call, [&](const View& view) {
    if (found == nullptr && view.is_on_gpu()) found = &view;
  });
  return found;
}

PyObject* array_on_gpu(const PreparedCall& call) {
  if (call.list != nullptr)
    return PyTuple_GET_ITEM(call.list->arrays(), view_on_gpu(call) - call.list->views().data());
  return call.in_view.is_on_gpu() ? call.arrays[0] : call.arrays[1];
}

void* plain_stream(void* stream) { return stream == reinterpret_cast<void*>(1) ? nullptr : stream; }

PyObject* run_on_gpu(GroupObject& group, PreparedCall& call) {
  const auto run = [&](Communicator& communicator, DeviceGroups& gpus, CallOnGpu& made, bool has_stream) {
    return gpus.run(communicator, std::move(made), call.timeout_s, has_stream);
  };
  const Status status = on_gpus(group, call, run);
  PyObject* const result = finished(group, call, status, call.result);
  group.state->ended_calls->settle();  // last: letting arrays go may run code
  return result;
}

bool begin_on_gpu(GroupObject& group, PreparedCall& call, std::function<void()> on_end,
                  std::shared_ptr<AsyncWork>* begun) {
  const auto begin = [&](Communicator& communicator, DeviceGroups& gpus, CallOnGpu& made, bool) -> Status {
    PC_ASSIGN_OR_RETURN(*begun, gpus.begin(communicator, std::move(made), call.timeout_s, std::move(on_end)));
    return Status::ok();
  };
  const Status status = on_gpus(group, call, begin);
  return static_cast<bool>(Ref(finished(group, call, status, Py_None)));
}

PyObject* join_gpus(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  int64_t device = 0;
  if (nargs != 1 || kwnames != nullptr)
    return PyErr_Format(PyExc_TypeError, "_join_gpus() takes one argument");
  if (!to_integer(*group.state, "_join_gpus", "device", args[0], INT16_MAX, &device)) return nullptr;
  const Status status = run_with_gpus(group, [&](Communicator& communicator, DeviceGroups& gpus) {
    return gpus.of(communicator, static_cast<int>(device), nullptr, -1, true).status();
  });
  return finish(group, status, nullptr, Py_None);
}

PyObject* can_split_gpus(GroupObject& group, PyObject* const*, Py_ssize_t, PyObject*) {
  if (usable(group) == nullptr) return nullptr;
  const std::shared_ptr<DeviceGroups>& gpus = group.session->gpus;
  return PyBool_FromLong(gpus != nullptr && gpus->can_split(*group.communicator));
}

PyObject* split_gpus(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  const bool is_alone = nargs == 2 && args[0] == Py_None;  // in no new group
  if (nargs != 2 || kwnames != nullptr || (!is_alone && !is_group(*group.state, args[0])))
    return PyErr_Format(PyExc_TypeError, "_split_gpus(child, timeout)");
  double timeout_s = -1;
  if (!to_timeout(*group.state, "split", args[1], &timeout_s)) return nullptr;
  GroupObject* const made = is_alone ? nullptr : reinterpret_cast<GroupObject*>(args[0]);
  if (made != nullptr && living(*made) == nullptr) return nullptr;
  Communicator* const child = is_alone ? nullptr : made->communicator;
  const std::shared_ptr<GroupHold> child_hold = is_alone ? nullptr : made->hold;
  const Status status = run_with_gpus(group, [&](Communicator& communicator, DeviceGroups& gpus) {
    return gpus.split(communicator, child, timeout_s);
  });
  return finish(group, status, nullptr, Py_None);
}

}  // namespace pc
