#include "gpu_call.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/env.h"
#include "ended_calls.h"
#include "nccl/search.h"
#include "running_call.h"

namespace py = pybind11;

namespace pc {
namespace {

// What a call on the GPU needs, until its end there has been seen by a thread without the GIL.
class KeptArrays final : public Ended {
 public:
  explicit KeptArrays(PreparedCall& call) : holds_{call.in_view.take_hold(), call.out_view.take_hold()} {
    std::copy(std::begin(call.arrays), std::end(call.arrays), objects_);
    objects_[2] = call.result;
    for (PyObject* object : objects_) Py_XINCREF(object);
  }
  KeptArrays(const KeptArrays&) = delete;
  KeptArrays& operator=(const KeptArrays&) = delete;
  ~KeptArrays() = default;
  void settle() override {
    PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);
    for (std::unique_ptr<Hold>& hold : holds_) hold.reset();
    for (PyObject*& object : objects_) Py_CLEAR(object);
    PyErr_Restore(type, value, traceback);
  }

 private:
  std::unique_ptr<Hold> holds_[2];
  PyObject* objects_[3] = {};
};

std::shared_ptr<const void> kept(const State& state, PreparedCall& call) {
  return {new KeptArrays(call), [calls = state.ended_calls](const KeptArrays* arrays) {
            calls->add(std::shared_ptr<KeptArrays>(const_cast<KeptArrays*>(arrays)));
          }};
}

const View& view_on_gpu(const PreparedCall& call) {
  return call.in_view.is_on_gpu() ? call.in_view : call.out_view;
}

// Of the session, made for its first call. Null: a Python error is set.
std::shared_ptr<DeviceGroups> groups_of(const GroupObject& group) {
  Session& session = *group.session;
  if (session.gpus != nullptr) return session.gpus;
  DeviceGroups::Options options;
  const auto wheels = py::module_::import("pycollective.availability").attr("wheel_folders")();
  options.nccl = nccl::surroundings_of_process(wheels.cast<std::vector<std::string>>());
  const Status read = [&]() -> Status {
    PC_ASSIGN_OR_RETURN(options.driver.path, env_text(Env::kCudaLib));
    PC_ASSIGN_OR_RETURN(const std::string check, env_text(Env::kCheck));
    options.strict = check == "strict";
    PC_ASSIGN_OR_RETURN(options.log, Logger::from_environment());
    return Status::ok();
  }();
  if (!read.is_ok()) return raise_status(*group.state, read), nullptr;
  if (session.runtime == nullptr) return living(group), nullptr;  // the import ran code
  if (session.gpus == nullptr) session.gpus = std::make_shared<DeviceGroups>(std::move(options));
  return session.gpus;
}

// The legacy default stream has two names.
void* plain(void* stream) { return stream == reinterpret_cast<void*>(1) ? nullptr : stream; }

// On which stream the call goes. Empty: on the default one, and the host waits. False: the error is set.
bool stream_of(const State& state, const PreparedCall& call, std::optional<void*>* stream) {
  const View &in = call.in_view, &out = call.out_view;
  const View& one = view_on_gpu(call);
  *stream = one.stream();
  if (*stream) *stream = plain(**stream);
  if (!in.is_on_gpu() || !out.is_on_gpu()) return true;
  const std::optional<void*> other = out.stream();
  if (other.has_value() == stream->has_value() && (!other || plain(*other) == **stream)) return true;
  return refuse(state, std::string(call.function) +
                           ": x and out belong to libraries that work on different streams: make the call "
                           "where both use one");
}

Device* device_in(ConstBuffer& buffer) { return buffer.data == nullptr ? nullptr : &buffer.device; }
Device* device_in(Buffer& buffer) { return buffer.data == nullptr ? nullptr : &buffer.device; }

// Asks the driver on which GPU an array lies where its library does not say. Without elements it lies nowhere.
Status place(DeviceGroups& gpus, Request& request, int* device) {
  const auto locate = [&](auto& buffer) -> Status {
    Device* const its = device_in(buffer);
    if (its == nullptr || its->type != DeviceType::kCuda || its->index != kUnknownGpu || buffer.count == 0)
      return Status::ok();
    PC_ASSIGN_OR_RETURN(const int found, gpus.device_of(buffer.data));
    its->index = static_cast<int16_t>(found);
    return Status::ok();
  };
  PC_TRY(locate(request.in));
  PC_TRY(locate(request.out));
  *device = kUnknownGpu;
  for (const Device* its : {device_in(request.in), device_in(request.out)}) {
    if (its != nullptr && its->type == DeviceType::kCuda && its->index != kUnknownGpu) *device = its->index;
  }
  if (*device == kUnknownGpu) {
    PC_ASSIGN_OR_RETURN(*device, gpus.current_device());
  }
  for (Device* its : {device_in(request.in), device_in(request.out)}) {
    if (its != nullptr && its->index == kUnknownGpu) its->index = static_cast<int16_t>(*device);
  }
  return Status::ok();
}

struct How {
  bool in_line;
  std::function<void()> on_end = {};
};

Status queue(GroupObject& group, PreparedCall& call, How how, std::shared_ptr<StartedDeviceCall>* started) {
  const Status nothing(Code::kInvalidArgument, {});  // was touched: a Python error is set
  std::optional<void*> stream;
  if (usable(group) == nullptr || !stream_of(*group.state, call, &stream)) return nothing;
  std::shared_ptr<DeviceGroups> gpus = groups_of(group);
  if (gpus == nullptr) return nothing;
  std::shared_ptr<Runtime> runtime = group.session->runtime;  // outlives `gpus`
  cuda::DeviceCall queued{call.request, how.in_line, kept(*group.state, call)};
  queued.request.stream = stream.value_or(nullptr);
  const Status status = run(group, [&](Communicator& communicator) -> Status {
    int device = 0;
    PC_TRY(place(*gpus, queued.request, &device));
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<DeviceCalls> calls,
                        gpus->of(communicator, device, queued.request.stream, call.timeout_s));
    PC_ASSIGN_OR_RETURN(*started, calls->launch(queued, call.timeout_s, std::move(how.on_end)));
    return stream || !how.in_line ? Status::ok() : (*started)->wait(-1);
  });
  if (group.session->gpus == nullptr) {  // shut down meanwhile
    const py::gil_scoped_release released;
    gpus.reset();
    runtime.reset();
  }
  return status;
}

}  // namespace

bool is_on_gpu(const PreparedCall& call) { return call.in_view.is_on_gpu() || call.out_view.is_on_gpu(); }

PyObject* run_on_gpu(GroupObject& group, PreparedCall& call) {
  group.state->ended_calls->settle();
  std::shared_ptr<StartedDeviceCall> started;
  const Status status = queue(group, call, {true}, &started);
  return finish(group, status, call.written, call.result);
}

GpuCall::GpuCall(const PreparedCall& call)
    : function_(call.function),
      nbytes_(call.nbytes()),
      array_(Py_NewRef(call.in_view.is_on_gpu() ? call.arrays[0] : call.arrays[1])),
      stream_(view_on_gpu(call).gpu_stream()) {}

GpuCall::~GpuCall() { Py_DECREF(array_); }

bool GpuCall::begin(GroupObject& group, PreparedCall& call) {
  const Status status = queue(group, call, {false, [bell = bell_] { bell->ring(); }}, &started_);
  gpus_ = group.session->gpus;
  const Ref returned(finish(group, status, call.written, Py_None));
  return static_cast<bool>(returned);
}

std::optional<Status> GpuCall::precede() const {
  std::optional<void*> stream;
  if (!stream_.ask(array_, &stream) || !stream) return std::nullopt;
  return started_->precede(static_cast<cuda::CUstream>(plain(*stream)));
}

std::optional<Status> GpuCall::wait_on_host(const Session& session, double timeout_s) const {
  std::shared_ptr<Runtime> runtime = session.alive.lock();
  std::shared_ptr<DeviceGroups> gpus = gpus_.lock();
  std::optional<Status> ended;
  {
    const py::gil_scoped_release released;
    ended = started_->wait(timeout_s);
    gpus.reset();
    runtime.reset();
  }
  if (PyErr_Occurred() != nullptr) ended.reset();
  return ended;
}

}  // namespace pc
