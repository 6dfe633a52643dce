#include "bind_runtime.h"

#include <pthread.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

#include "base/env.h"
#include "bind_errors.h"
#include "bind_group.h"
#include "comm/runtime.h"
#include "print_request.h"
#include "store/tcp_client.h"
#include "store/tcp_server.h"

namespace py = pybind11;

namespace pc {
namespace {

// Throws the Python exception that `status` stands for.
void check(const State& state, const Status& status) {
  if (status.is_ok() && PyErr_Occurred() == nullptr) return;
  if (!status.is_ok()) raise_status(state, status);
  throw py::error_already_set();
}

template <class T>
T value_or_raise(const State& state, Result<T> result) {
  check(state, result.status());
  return std::move(result).value();
}

JobId job_id(const State& state, const std::string& bytes) {
  JobId job{};
  if (bytes.size() != job.size()) {
    check(state,
          Status(Code::kInvalidArgument, "a job id has 16 bytes, not " + std::to_string(bytes.size())));
  }
  std::memcpy(job.data(), bytes.data(), job.size());
  return job;
}

// Runs Python's signal handlers if this is the main thread. True: one of them raised (Ctrl-C does), and that exception
// is now pending in this thread. Only the main thread takes the GIL for it.
std::function<bool()> interrupt_probe() {
  const pthread_t main = static_cast<pthread_t>(
      py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>());
  return [main] {
    if (pthread_equal(main, pthread_self()) == 0) return false;
    const PyGILState_STATE gil = PyGILState_Ensure();
    const bool raised = PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
    PyGILState_Release(gil);
    return raised;
  };
}

class PyStoreServer {
 public:
  PyStoreServer(const State& state, const std::string& address, int port, const std::string& job)
      : server_(value_or_raise(state, TcpStoreServer::open(address, port, job_id(state, job)))) {}
  std::string address() const { return address_; }
  void close() {
    const py::gil_scoped_release release;
    server_.reset();
  }

 private:
  std::unique_ptr<TcpStoreServer> server_;
  std::string address_ = server_->address();
};

struct Options {
  Rank rank, size;
  std::vector<std::string> store_addresses;
  std::optional<std::vector<std::string>> host_store;
  std::string job;
  uint32_t epoch;
  std::string address;
  Rank local_rank, local_size;
  std::optional<double> timeout_s;
  std::optional<std::string> transport, tune;
};

// One rank's runtime and, until all have joined, the store on the rank that hosts it.
class PyRuntime {
 public:
  PyRuntime(State* state, const Options& options) : state_(state) {
    RuntimeOptions native;
    native.rank = options.rank;
    native.size = options.size;
    native.job = job_id(*state, options.job);
    native.timeout_s =
        options.timeout_s ? *options.timeout_s : value_or_raise(*state, env_seconds(Env::kTimeoutS));
    native.transport =
        options.transport ? *options.transport : value_or_raise(*state, env_text(Env::kTransport));
    if (options.tune) native.tune = *options.tune;
    if (!options.tune && env_is_set(Env::kTune)) native.tune = value_or_raise(*state, env_text(Env::kTune));
    const std::string check_name = value_or_raise(*state, env_text(Env::kCheck));
    native.check = check_name == "off" ? Check::kOff : check_name == "strict" ? Check::kStrict : Check::kOn;
    native.find_position = [position = state->position](ProgramPosition::Found found) {
      position->find(std::move(found));
    };
    if (options.size > 1) native.print_request = print_request();
    native.epoch = options.epoch;
    native.address = options.address;
    native.interrupted = interrupt_probe();
    native.log = value_or_raise(*state, Logger::from_environment());
    timeout_s_ = native.timeout_s;
    Status status;
    std::unique_ptr<Runtime> runtime;
    {
      const py::gil_scoped_release release;
      status = start(options, std::move(native), &runtime);
    }
    check(*state, status);
    session_->runtime = std::move(runtime);
    world_ = py::reinterpret_steal<py::object>(make_world_group(state, session_));
    if (!world_) throw py::error_already_set();
    if (options.local_size > 0) {  // the launcher's word; else the host map has counted
      GroupObject& world = *reinterpret_cast<GroupObject*>(world_.ptr());
      world.local_rank = options.local_rank;
      world.local_size = options.local_size;
    }
  }

  ~PyRuntime() { close(); }
  PyRuntime(const PyRuntime&) = delete;
  PyRuntime& operator=(const PyRuntime&) = delete;

  py::object world() const { return world_; }

  // Says goodbye together with the others, unless the world has failed already: then there is nobody to wait for.
  void shutdown(std::optional<double> timeout_s) {
    std::shared_ptr<Runtime> runtime =
        std::move(session_->runtime);  // from here on every call says the world is gone
    Status status;
    if (runtime != nullptr && !session_->forked) {
      const py::gil_scoped_release release;
      status = runtime->shutdown(Deadline::after(timeout_s.value_or(timeout_s_)));
    }
    end(std::move(runtime));
    check(*state_, status);
  }

  // At once, without waiting for anybody; if it was not shut down, the others see a failure.
  void close() { end(std::move(session_->runtime)); }

 private:
  void end(std::shared_ptr<Runtime> runtime) {
    if (session_
            ->forked) {  // its threads are not in this process, its connections belong to the parent: leave it alone
      static_cast<void>(
          new std::shared_ptr<Runtime>(std::move(runtime)));  // its descriptors are closed already
      static_cast<void>(server_.release());
      return;
    }
    const py::gil_scoped_release release;
    runtime.reset();
    server_.reset();
  }

  Status start(const Options& options, RuntimeOptions native, std::unique_ptr<Runtime>* runtime) {
    const Deadline deadline = Deadline::after(native.timeout_s);
    if (options.host_store) PC_TRY(host_store(*options.host_store, native.job));
    if (!options.store_addresses.empty()) {
      PC_ASSIGN_OR_RETURN(
          native.store, connect_tcp_store(options.store_addresses, native.job, deadline, native.interrupted));
    }
    PC_ASSIGN_OR_RETURN(*runtime, Runtime::create(std::move(native), deadline));
    // When everybody is past this barrier nobody needs the store any more, and a later init() can open it afresh.
    PC_TRY((*runtime)->world().run(Request{}, std::max(deadline.remaining_s(), 0.0)));
    server_.reset();
    return Status::ok();
  }

  // Opens the store at the first of the addresses that is free.
  Status host_store(const std::vector<std::string>& addresses, const JobId& job) {
    Status first;
    for (const std::string& address : addresses) {
      Result<std::unique_ptr<TcpStoreServer>> server = TcpStoreServer::open(address, job);
      if (server.is_ok()) {
        server_ = std::move(server).value();
        return Status::ok();
      }
      if (first.is_ok()) first = server.status();
    }
    return first;
  }

  State* state_;
  std::shared_ptr<Session> session_ = std::make_shared<Session>();
  std::unique_ptr<TcpStoreServer> server_;
  py::object world_;
  double timeout_s_ = 0;
};

}  // namespace

void bind_runtime(py::module_& module, State* state) {
  py::class_<PyStoreServer>(
      module, "StoreServer",
      "The key-value store through which the ranks of one job find each other. Port 0: any free one.")
      .def(py::init([state](const std::string& address, int port, const py::bytes& job) {
             return std::make_unique<PyStoreServer>(*state, address, port, job);
           }),
           py::arg("address"), py::arg("port"), py::arg("job"))
      .def_property_readonly("address", &PyStoreServer::address, "Where it listens, as \"127.0.0.1:4711\".")
      .def("close", &PyStoreServer::close, "Stops serving; a second call does nothing.")
      .def("__enter__", [](const py::object& self) { return self; })
      .def("__exit__", [](PyStoreServer& self, const py::args&) { self.close(); });

  py::class_<PyRuntime>(module, "Runtime",
                        "One rank's connections to all others. pycollective.init() makes it.")
      .def(py::init([state](Rank rank, Rank size, std::vector<std::string> store_addresses,
                            std::optional<std::vector<std::string>> host_store, const py::bytes& job,
                            uint32_t epoch, std::string address, Rank local_rank, Rank local_size,
                            std::optional<double> timeout_s, std::optional<std::string> transport,
                            std::optional<std::string> tune) {
             return std::make_unique<PyRuntime>(
                 state, Options{rank, size, std::move(store_addresses), std::move(host_store), job, epoch,
                                std::move(address), local_rank, local_size, timeout_s, std::move(transport),
                                std::move(tune)});
           }),
           py::arg("rank"), py::arg("size"), py::kw_only(),
           py::arg("store_addresses") = std::vector<std::string>(), py::arg("host_store") = py::none(),
           py::arg("job"), py::arg("epoch") = 0, py::arg("address") = "", py::arg("local_rank") = 0,
           py::arg("local_size") = 0, py::arg("timeout_s") = py::none(), py::arg("transport") = py::none(),
           py::arg("tune") = py::none())
      .def_property_readonly("world", &PyRuntime::world, "The group of all ranks.")
      .def("shutdown", &PyRuntime::shutdown, py::kw_only(), py::arg("timeout_s") = py::none(),
           "Waits until every rank is here, at most `timeout_s` seconds, says goodbye and closes.")
      .def("close", &PyRuntime::close, "Closes at once; ranks that still communicate see a failure.");
}

}  // namespace pc
