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
#include "bindings/state/with_gil.h"
#include "gpu/device_groups.h"
#include "kernels/device/embedded.h"

namespace pc {
namespace {

template <class Call, class Each>  // `Call` is PreparedCall, const or not
void for_each_view(Call& call, Each&& each) {
  if (call.list != nullptr) {
    for (auto& view : call.list->views()) each(view);
  } else {
    each(call.in_view);
    each(call.out_view);
  }
}

// The arrays of a call on the GPU. A thread without the GIL passes them to ended_calls when it has
// seen the end of the call.
class KeptArrays final : public Ended {
 public:
  explicit KeptArrays(PreparedCall& call) : objects_{call.arrays[0], call.arrays[1], call.result, nullptr} {
    if (call.list != nullptr) objects_[3] = call.list->arrays();  // the list itself may change
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

// Finds the folders of NVIDIA's wheels that may contain NCCL. Returns false with a Python error
// set.
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

// Called with the GIL.
Result<std::shared_ptr<Devices>> make_with_gil(const State& state, const std::shared_ptr<Session>& session,
                                               Runtime& runtime) {
  const Status raised(Code::kInvalidArgument, {});
  std::vector<std::string> wheels;
  if (!find_wheel_folders(&wheels)) return raised;
  PC_ASSIGN_OR_RETURN(DeviceGroups::Options options,
                      DeviceGroups::Options::from_environment(std::move(wheels), state.semaphores));
  options.peers.kernels = embedded_kernels();
  options.abandoned = state.abandoned;
  options.interrupted = ctrl_c_probe();
  if (options.interrupted == nullptr) return raised;
  if (session == nullptr || session->runtime == nullptr)  // the import ran Python code
    return Status(Code::kNotInitialized, kWorldWasShutDown);
  return std::shared_ptr<Devices>(std::make_shared<DeviceGroups>(runtime, std::move(options)));
}

// Sets `*stream` to the stream of the call. If it stays empty, the call uses the default stream and
// the host waits. Returns false with the error set.
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
    // Only lists are checked here: the core checks that x and out= are on one device.
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

Result<std::shared_ptr<Devices>> make_devices(const State& state, const std::shared_ptr<Session>& session,
                                              Runtime& runtime) {
  const WithGil held;
  return make_with_gil(state, session, runtime);
}

std::string explain_on_gpu(const GroupObject& group, std::optional<Collective> collective) {
  const std::string what = collective ? std::string(name_of(*collective)) : "a message";
  const std::string begin =
      what + " of arrays on GPUs, " + std::to_string(group.size) + (group.size == 1 ? " rank: " : " ranks: ");
  const std::shared_ptr<Devices> devices = group.session->runtime->devices().made();
  return begin +
         (devices == nullptr ? Devices::not_known_yet() : devices->explain(*group.communicator, collective));
}

namespace {

// Runs `call(communicator, devices)` without the GIL, also in a world of one rank: the driver and
// NCCL may wait.
template <class Call>
Status run_on_devices(GroupObject& group, Call&& call) {
  watch_end_signals_again();
  if (usable(group) == nullptr) return Status(Code::kInvalidArgument, {});
  LazyDevices& devices = group.session->runtime->devices();
  const Status status = run(
      group, [&](Communicator& communicator) { return call(communicator, devices); }, true);
  if (!status.is_ok() && PyErr_Occurred() == nullptr)
    (void)PyErr_CheckSignals();  // a signal may have arrived inside NCCL, where no Python handler runs
  return status;
}

// Calls `make(communicator, devices, made)` without the GIL. `made` is a copy of the call that also
// owns what keeps the arrays alive.
template <class Make>
Status on_gpus(GroupObject& group, PreparedCall& call, Make&& make) {
  std::optional<void*> stream;
  if (!stream_of(*group.state, call, &stream)) return Status(Code::kInvalidArgument, {});
  UserCall made = call;
  made.request.stream = stream;
  made.keeps = kept(*group.state, call);
  if (call.list != nullptr) made.joined = &call.list->list();
  return run_on_devices(group, [&](Communicator& communicator, LazyDevices& devices) {
    return make(communicator, devices, std::move(made));
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
  const auto run = [&](Communicator& communicator, LazyDevices& devices, UserCall made) {
    return devices.run(communicator, std::move(made), call.timeout_s);
  };
  const Status status = on_gpus(group, call, run);
  PyObject* const result = finished(group, call, status, call.result);
  group.state->ended_calls->settle();  // last, because the release of arrays may run Python code
  return result;
}

bool begin_on_gpu(GroupObject& group, PreparedCall& call, std::function<void(const Status&)> on_end,
                  std::shared_ptr<AsyncWork>* begun) {
  const auto begin = [&](Communicator& communicator, LazyDevices& devices, UserCall made) -> Status {
    PC_ASSIGN_OR_RETURN(*begun,
                        devices.begin(communicator, std::move(made), {call.timeout_s, std::move(on_end)}));
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
  const Status status = run_on_devices(group, [&](Communicator& communicator, LazyDevices& lazy) -> Status {
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<Devices> devices, lazy.get());
    return devices->join(communicator, static_cast<int>(device), nullptr, -1, true);
  });
  return finish(group, status, nullptr, Py_None);
}

PyObject* can_split_gpus(GroupObject& group, PyObject* const*, Py_ssize_t, PyObject*) {
  if (usable(group) == nullptr) return nullptr;
  const std::shared_ptr<Devices> devices = group.session->runtime->devices().made();
  return PyBool_FromLong(devices != nullptr && devices->can_split(*group.communicator));
}

PyObject* split_gpus(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  const bool is_alone = nargs == 2 && args[0] == Py_None;  // this rank is in no new group
  if (nargs != 2 || kwnames != nullptr || (!is_alone && !is_group(*group.state, args[0])))
    return PyErr_Format(PyExc_TypeError, "_split_gpus(child, timeout)");
  double timeout_s = -1;
  if (!to_timeout(*group.state, "split", args[1], &timeout_s)) return nullptr;
  GroupObject* const made = is_alone ? nullptr : reinterpret_cast<GroupObject*>(args[0]);
  if (made != nullptr && living(*made) == nullptr) return nullptr;
  Communicator* const child = is_alone ? nullptr : made->communicator;
  const std::shared_ptr<GroupHold> child_hold = is_alone ? nullptr : made->hold;
  const Status status = run_on_devices(group, [&](Communicator& communicator, LazyDevices& lazy) -> Status {
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<Devices> devices, lazy.get());
    return devices->split(communicator, child, timeout_s);
  });
  return finish(group, status, nullptr, Py_None);
}

}  // namespace pc
