// Calls of arrays on a GPU. They are queued behind what makes the arrays, on the stream that the arrays' library says, and in
// front of what it does there next: the host waits for none of it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "bindings/calls/prepared_call.h"
#include "bindings/python/end_bell.h"
#include "gpu/device_groups.h"

namespace pc {

bool is_on_gpu(const PreparedCall& call);

// nullptr: a Python error is set.
PyObject* run_on_gpu(GroupObject& group, PreparedCall& call);

// _join_gpus(device): joins the ranks on their GPUs, as the first call of arrays there would. nullptr: a Python error is set.
PyObject* join_gpus(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

// _can_split_gpus(), _split_gpus(child, timeout): see DeviceGroups::split().
PyObject* can_split_gpus(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* split_gpus(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

// Which way a collective of arrays on GPUs goes, or a message. Does not open a driver.
std::string explain_on_gpu(const GroupObject& group, std::optional<Collective> collective);

// What a Work has of such a call. Thread-safety: with the GIL.
class GpuCall {
 public:
  explicit GpuCall(const PreparedCall& call);
  ~GpuCall();  // with the GIL
  GpuCall(const GpuCall&) = delete;
  GpuCall& operator=(const GpuCall&) = delete;

  // False: a Python error is set.
  bool begin(GroupObject& group, PreparedCall& call);
  // On which stream the arrays' library works now, in this thread. Empty: it has none to say, so the host has to wait. False: a
  // Python error is set.
  bool ask_stream(std::optional<void*>* stream) const;
  // Puts what is queued there from now on behind the call. Null: a signal handler raised, or `timeout_s` is over, and not the call's
  // own.
  std::optional<Status> precede(const Session& session, double timeout_s, void* stream) const;
  // Null: a signal handler raised. kTimeout while started().state() is still kRunning: `timeout_s` is over, and not the call's own.
  std::optional<Status> wait_on_host(const Session& session, double timeout_s) const;

  StartedDeviceCall& started() const { return *started_; }
  EndBell& bell() const { return *bell_; }
  const char* function() const { return function_; }
  std::size_t nbytes() const { return nbytes_; }

 private:
  template <class Wait>
  std::optional<Status> without_gil(const Session& session, Wait&& wait) const;

  const char* const function_;
  const std::size_t nbytes_;
  PyObject* const array_;  // owned: its library says the stream
  const GpuStream stream_;
  const std::shared_ptr<EndBell> bell_ = std::make_shared<EndBell>();
  std::shared_ptr<StartedDeviceCall> started_;
  std::weak_ptr<DeviceGroups> gpus_;  // they end with the world
};

}  // namespace pc
