#include "bindings/module/bind_runtime.h"

#include <pthread.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <optional>
#include <string_view>

#include "base/env.h"
#include "bindings/calls/gpu_call.h"
#include "bindings/module/print_request.h"
#include "bindings/python/end_signal.h"
#include "bindings/state/errors.h"
#include "bindings/state/group_object.h"
#include "bootstrap/rendezvous.h"
#include "comm/runtime.h"
#include "failure/ended_ranks.h"
#include "gpu/cuda/device_nodes.h"
#include "net/interfaces.h"
#include "store/memory.h"
#include "store/prefix.h"
#include "store/tcp_client.h"
#include "store/tcp_server.h"

namespace py = pybind11;

namespace pc {
namespace {

// The timeout of a user's call limits the wait at the store; the round trip to the store gets this
// much in addition.
constexpr double kOneWayS = 5;
constexpr double kForgettingS = 0.5;  // for the deletion of unused values
constexpr double kReportingS = 1;     // for reports that shorten the wait of other ranks

template <std::size_t N>
std::array<std::byte, N> exactly(const State& state, const char* what, const std::string& bytes) {
  std::array<std::byte, N> all{};
  if (bytes.size() != N)
    refuse_and_throw(state, std::string(what) + " has " + std::to_string(N) + " bytes, not " +
                                std::to_string(bytes.size()));
  std::memcpy(all.data(), bytes.data(), N);
  return all;
}

Credentials make_credentials(const State& state, const std::string& key, const std::string& key_source,
                             const std::string& job, bool encrypts) {
  return {exactly<std::tuple_size_v<JobId>>(state, "a job id", job),
          JobKey(exactly<JobKey::kBytes>(state, "a job key", key)), key_source, encrypts};
}

// Runs Python's signal handlers if this is the main thread. Returns true if one of them raised
// (Ctrl-C does); that exception is then pending in this thread. Other threads do not take the GIL
// for this.
std::function<bool()> interrupt_probe() {
  const pthread_t main = static_cast<pthread_t>(
      py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>());
  return [main] {
    if (pthread_equal(main, pthread_self()) == 0) return false;
    const PyGILState_STATE gil = PyGILState_Ensure();
    watch_end_signals_again();
    const bool raised = PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
    const auto ends = [](PyObject* kind) {
      return PyErr_ExceptionMatches(kind) != 0;
    };  // handlers of other signals raise other exceptions
    if (raised && (ends(PyExc_KeyboardInterrupt) || ends(PyExc_SystemExit))) note_end_signal();
    PyGILState_Release(gil);
    return raised;
  };
}

// Returns a probe that calls the probe of `options`, and warns once if no store has been reached
// for long.
std::function<bool()> warns_of_silence(const RuntimeOptions& options, const std::string& address,
                                       std::shared_ptr<std::atomic<bool>> connected) {
  return [probe = options.interrupted, log = options.log.with_rank(options.rank), address, connected,
          at = Deadline::after(options.warn_after_s)] {
    if (at.expired() && !connected->exchange(true))
      log.warning("init waits for long: there is no store at " + address +
                  " yet. Does rank 0 run, with this address?");
    return probe();
  };
}

class PyStoreServer {
 public:
  PyStoreServer(const State& state, const std::vector<std::string>& addresses, const Credentials& credentials)
      : server_(
            value_or_throw(state, TcpStoreServer::open(addresses, credentials, {},
                                                       value_or_throw(state, Logger::from_environment())))),
        credentials_(credentials) {}
  // Reports that `ranks` have ended and will not join. The report reaches ranks that wait for one
  // of them in init(), now or later.
  void report_absent(const std::vector<Rank>& ranks, const std::string& why) {
    const py::gil_scoped_release release;
    const Deadline deadline = Deadline::after(kReportingS);
    Result<StoreConnection> connected = connect_tcp_store(addresses_, credentials_, deadline);
    if (connected.is_ok()) report_ended(*connected.value().store, credentials_, ranks, why, deadline);
  }
  const std::vector<std::string>& addresses() const { return addresses_; }
  void close() {
    const py::gil_scoped_release release;
    server_.reset();
  }
  void close_in_child() {
    if (server_ != nullptr) server_->close_in_child();
    static_cast<void>(server_.release());  // its thread exists only in the parent
  }

 private:
  std::unique_ptr<TcpStoreServer> server_;
  const std::vector<std::string> addresses_ = server_->addresses();
  const Credentials credentials_;
};

struct Options {
  Rank rank, size;
  std::vector<std::string> store_addresses;
  std::optional<std::vector<std::string>> host_store;
  Credentials credentials;
  uint32_t epoch;
  std::vector<std::string> listen;
  Rank local_rank, local_size;
  std::optional<double> timeout_s, init_timeout_s;
  std::optional<std::string> transport, tune, tuning;
};

// The world's store in Python: bytes under names, until the world ends.
class PyStore {
 public:
  PyStore(State* state, std::shared_ptr<Session> session, double timeout_s)
      : state_(state),
        session_(std::move(session)),
        timeout_s_(timeout_s) {}
  void set(const std::string& key, const py::bytes& value, std::optional<double> timeout_s) const {
    const std::string bytes = value;
    throw_unless_ok(
        *state_, call([&](Store& store, StoreDeadline deadline) { return store.set(key, bytes, deadline); },
                      timeout_s));
  }
  py::bytes get(const std::string& key, std::optional<double> timeout_s) const {
    return value_or_throw(
        *state_,
        call([&](Store& store, StoreDeadline deadline) { return store.get(key, deadline); }, timeout_s));
  }
  py::bytes pop(const std::string& key, std::optional<double> timeout_s) const {
    return value_or_throw(
        *state_,
        call([&](Store& store, StoreDeadline deadline) { return store.pop(key, deadline); }, timeout_s));
  }
  int64_t add(const std::string& key, int64_t delta, std::optional<double> timeout_s) const {
    return value_or_throw(
        *state_, call([&](Store& store, StoreDeadline deadline) { return store.add(key, delta, deadline); },
                      timeout_s));
  }
  void wait(const std::string& key, std::optional<double> timeout_s) const {
    throw_unless_ok(
        *state_,
        call([&](Store& store, StoreDeadline deadline) { return store.wait(key, deadline); }, timeout_s));
  }
  std::optional<py::bytes> try_get(const std::string& key, std::optional<double> timeout_s) const {
    const std::optional<std::string> value = value_or_throw(
        *state_,
        call([&](Store& store, StoreDeadline deadline) { return store.try_get(key, deadline); }, timeout_s));
    if (!value) return std::nullopt;
    return py::bytes(*value);
  }
  bool check(const std::string& key, std::optional<double> timeout_s) const {
    return value_or_throw(
        *state_,
        call([&](Store& store, StoreDeadline deadline) { return store.check(key, deadline); }, timeout_s));
  }
  bool erase(const std::string& key, std::optional<double> timeout_s) const {
    return value_or_throw(
        *state_,
        call([&](Store& store, StoreDeadline deadline) { return store.erase(key, deadline); }, timeout_s));
  }
  std::vector<std::string> keys(const std::string& prefix, std::optional<double> timeout_s) const {
    return value_or_throw(
        *state_,
        call([&](Store& store, StoreDeadline deadline) { return store.keys(prefix, deadline); }, timeout_s));
  }
  py::bytes compare_set(const std::string& key, const py::bytes& expected, const py::bytes& desired,
                        std::optional<double> timeout_s) const {
    const std::string old_value = expected, new_value = desired;
    return value_or_throw(*state_, call(
                                       [&](Store& store, StoreDeadline deadline) {
                                         return store.compare_set(key, old_value, new_value, deadline);
                                       },
                                       timeout_s));
  }
  void append(const std::string& key, const py::bytes& value, std::optional<double> timeout_s) const {
    const std::string bytes = value;
    throw_unless_ok(*state_, call([&](Store& store,
                                      StoreDeadline deadline) { return store.append(key, bytes, deadline); },
                                  timeout_s));
  }

 private:
  template <class Body>
  auto call(Body&& body, std::optional<double> timeout_s) const
      -> decltype(body(std::declval<Store&>(), std::declval<StoreDeadline>())) {
    const std::shared_ptr<Store> store = session_->store;  // shutdown() in another thread releases it
    if (session_->forked || store == nullptr)
      return Status(Code::kNotInitialized,
                    session_->forked ? "the store belongs to the process that this one was forked from"
                                     : "the store's world has been shut down");
    const py::gil_scoped_release release;
    return body(*store, {Deadline::after(timeout_s.value_or(timeout_s_)), kOneWayS});
  }

  State* state_;
  std::shared_ptr<Session> session_;
  double timeout_s_;
};

// The runtime of one rank, and the server of the store on the rank that hosts it.
class PyRuntime {
 public:
  PyRuntime(State* state, const Options& options) : state_(state) {
    RuntimeOptions native;
    native.rank = options.rank;
    native.size = options.size;
    native.credentials = options.credentials;
    native.timeout_s =
        options.timeout_s ? *options.timeout_s : value_or_throw(*state, env_seconds(Env::kTimeoutS));
    native.transport =
        options.transport ? *options.transport : value_or_throw(*state, env_text(Env::kTransport));
    native.single_copy = value_or_throw(*state, env_text(Env::kSingleCopy)) == "auto";
    native.tcp_sockets = static_cast<int>(value_or_throw(*state, env_integer(Env::kTcpSockets)));
    if (options.tune) native.tune = *options.tune;
    if (!options.tune && env_is_set(Env::kTune)) native.tune = value_or_throw(*state, env_text(Env::kTune));
    native.profile = options.tuning ? "off" : value_or_throw(*state, env_text(Env::kProfile));
    native.tuning = options.tuning.value_or("");
    const std::string check_name = value_or_throw(*state, env_text(Env::kCheck));
    native.check = check_name == "off" ? Check::kOff : check_name == "strict" ? Check::kStrict : Check::kOn;
    native.find_position = [position = state->position](ProgramPosition::Found found) {
      position->find(std::move(found));
    };
    if (options.size > 1) print_request_ = PrintRequest::install();
    if (options.size > 1) watch_end_signals();
    if (print_request_) native.print_request = print_request_->event();
    // Checks the setting here: the first call on a GPU would report an error too late.
    (void)value_or_throw(*state, env_text(Env::kStreamCheck));
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");  // NOLINT(concurrency-mt-unsafe)
    native.joins_gpus =
        value_or_throw(*state, env_text(Env::kGpu)) == "auto" &&
        cuda::may_have_gpu(value_or_throw(*state, env_text(Env::kCudaLib)),
                           visible == nullptr ? std::nullopt : std::optional<std::string_view>(visible));
    native.make_devices = [state, session = std::weak_ptr<Session>(session_)](Runtime& runtime) {
      return make_devices(*state, session.lock(), runtime);
    };
    native.epoch = options.epoch;
    native.bind_ips = options.listen;
    native.interrupted = session_->interrupted = interrupt_probe();
    native.log = value_or_throw(*state, Logger::from_environment());
    timeout_s_ = native.timeout_s;
    rank_ = native.rank;
    Status status;
    std::unique_ptr<Runtime> runtime;
    {
      const py::gil_scoped_release release;
      status = start(options, std::move(native), &runtime);
    }
    throw_unless_ok(*state, status);
    session_->runtime = std::move(runtime);
    session_->alive = session_->runtime;
    std::erase_if(state->sessions, [](const std::weak_ptr<Session>& each) { return each.expired(); });
    state->sessions.push_back(session_);
    std::erase_if(state->runtimes, [](const std::weak_ptr<Runtime>& each) { return each.expired(); });
    state->runtimes.push_back(session_->runtime);
    world_ =
        py::reinterpret_steal<py::object>(make_group_object(state, session_, session_->runtime->world()));
    if (!world_) throw py::error_already_set();
    if (options.local_size > 0) {  // the launcher's numbers replace those of the host map
      GroupObject& world = *reinterpret_cast<GroupObject*>(world_.ptr());
      world.local_rank = options.local_rank;
      world.local_size = options.local_size;
    }
  }

  ~PyRuntime() { close(); }
  PyRuntime(const PyRuntime&) = delete;
  PyRuntime& operator=(const PyRuntime&) = delete;

  py::object world() const { return world_; }
  PyStore store() const { return PyStore(state_, session_, timeout_s_); }

  // Waits for the other ranks, unless the world has failed already: then there is no rank to wait
  // for.
  void shutdown(std::optional<double> timeout_s) {
    std::shared_ptr<Runtime> runtime =
        std::move(session_->runtime);  // from here on every call reports that the world was shut down
    Status status;
    if (runtime != nullptr && !session_->forked) {
      const py::gil_scoped_release release;
      Status on_devices;
      status = runtime->shutdown(Deadline::after(timeout_s.value_or(timeout_s_)), &on_devices);
      // Every rank has left, so no rank uses these values; the store may belong to a launcher and
      // outlive this world.
      if (status.is_ok() && rank_ == 0) (void)session_->store->erase_all("", Deadline::after(kForgettingS));
      if (status.is_ok()) status = on_devices;
    }
    end(std::move(runtime));
    throw_unless_ok(*state_, status);
  }

  // Closes at once, without waiting, and ends calls in other threads. The other ranks see a
  // failure, unless the world was shut down before.
  void close() {
    std::shared_ptr<Runtime> runtime = std::move(session_->runtime);
    if (runtime != nullptr && !session_->forked) {
      const py::gil_scoped_release release;
      runtime->abort(
          Status(Code::kNotInitialized, "this process left the world while the call was under way"));
    }
    end(std::move(runtime));
  }

 private:
  void end(std::shared_ptr<Runtime> runtime) {
    // In a forked child everything is leaked: the threads do not exist in this process, and the
    // connections belong to the parent.
    if (session_->forked) {
      static_cast<void>(
          new std::shared_ptr<Runtime>(std::move(runtime)));  // its descriptors are already closed
      static_cast<void>(new std::shared_ptr<Store>(std::move(session_->store)));
      static_cast<void>(session_->server.release());
      static_cast<void>(print_request_.release());
      return;
    }
    // These members are moved out with the GIL, because other threads read the session with it.
    std::shared_ptr<Store> store = std::move(session_->store);
    std::unique_ptr<TcpStoreServer> server = std::move(session_->server);
    const py::gil_scoped_release release;
    runtime.reset();
    store.reset();
    server.reset();
    print_request_.reset();
  }

  Status start(const Options& options, RuntimeOptions native, std::unique_ptr<Runtime>* runtime) {
    const Deadline deadline = Deadline::after(options.init_timeout_s.value_or(native.timeout_s));
    if (options.host_store) PC_TRY(host_store(*options.host_store, native));
    if (!options.store_addresses.empty()) {
      const auto connected = std::make_shared<std::atomic<bool>>(false);
      native.interrupted = warns_of_silence(native, options.store_addresses.front(), connected);
      PC_ASSIGN_OR_RETURN(StoreConnection to_store,
                          connect_tcp_store(options.store_addresses, native.credentials, deadline,
                                            native.interrupted, native.epoch));
      *connected = true;
      native.store = std::move(to_store.store);
      native.before_leaving = [shared = native.store, rank = native.rank, epoch = native.epoch,
                               credentials = native.credentials] {
        RuntimeOptions identity;
        identity.rank = rank;
        identity.epoch = epoch;
        identity.credentials = credentials;
        leave_rendezvous(*shared, identity);
      };
      // The ranks connect over the network that leads to the store, so this rank listens on its
      // local address there.
      if (native.bind_ips.empty()) native.bind_ips = {to_store.local_ip};
    }
    std::shared_ptr<Store> store =
        native.store ? native.store : std::make_shared<MemoryStore>(native.interrupted);
    PC_ASSIGN_OR_RETURN(*runtime, Runtime::create(std::move(native), deadline));
    // The store may outlive this world, so a prefix separates the values of this world from those
    // of the next.
    session_->store = std::make_shared<PrefixStore>("values/" + (*runtime)->name() + "/", std::move(store));
    // After this barrier no rank uses the launcher's store for the rendezvous any more.
    return (*runtime)->world().run(Request{}, std::max(deadline.remaining_s(), 0.0));
  }

  // Opens the store at the first port in `addresses` that is free, on every address with that port.
  Status host_store(const std::vector<std::string>& addresses, const RuntimeOptions& native) {
    const auto port = [](const std::string& address) { return address.substr(address.rfind(':') + 1); };
    Status first;
    std::vector<std::string> tried;
    for (const std::string& address : addresses) {
      if (std::find(tried.begin(), tried.end(), port(address)) != tried.end()) continue;
      tried.push_back(port(address));
      std::vector<std::string> same_port;
      std::copy_if(addresses.begin(), addresses.end(), std::back_inserter(same_port),
                   [&](const std::string& each) { return port(each) == port(address); });
      Result<std::unique_ptr<TcpStoreServer>> server = TcpStoreServer::open(
          same_port, native.credentials, {}, native.log.with_rank(native.rank), native.epoch);
      if (server.is_ok()) {
        session_->server = std::move(server).value();
        return Status::ok();
      }
      if (first.is_ok()) first = server.status();
    }
    return first;
  }

  State* state_;
  std::shared_ptr<Session> session_ = std::make_shared<Session>();
  std::unique_ptr<PrintRequest> print_request_;
  py::object world_;
  Rank rank_ = 0;
  double timeout_s_ = 0;
};

}  // namespace

void bind_runtime(py::module_& module, State* state) {
  py::class_<PyStoreServer>(
      module, "StoreServer",
      "The key-value store through which the ranks of one job find each other. It listens on every one of "
      "`addresses`, \"ip:port\" each; port 0: any free one.")
      .def(py::init([state](const std::vector<std::string>& addresses, const py::bytes& key,
                            const py::bytes& job, const std::string& key_source, bool encrypts) {
             return std::make_unique<PyStoreServer>(*state, addresses,
                                                    make_credentials(*state, key, key_source, job, encrypts));
           }),
           py::arg("addresses"), py::kw_only(), py::arg("key"), py::arg("job"), py::arg("key_source") = "",
           py::arg("encrypts") = false)
      .def_property_readonly("addresses", &PyStoreServer::addresses,
                             "Where it listens, as \"127.0.0.1:4711\", in the requested order.")
      .def("_close_in_child", &PyStoreServer::close_in_child)
      .def("_report_absent", &PyStoreServer::report_absent, py::arg("ranks"), py::arg("why"))
      .def("close", &PyStoreServer::close, "Stops serving; a second call does nothing.")
      .def("__enter__", [](const py::object& self) { return self; })
      .def("__exit__", [](PyStoreServer& self, const py::args&) { self.close(); });

  py::class_<PyStore>(module, "Store", "Bytes under names, shared by the ranks of one world.")
      .def("set", &PyStore::set, py::arg("key"), py::arg("value"), py::arg("timeout_s"))
      .def("get", &PyStore::get, py::arg("key"), py::arg("timeout_s"))
      .def("pop", &PyStore::pop, py::arg("key"), py::arg("timeout_s"))
      .def("add", &PyStore::add, py::arg("key"), py::arg("delta"), py::arg("timeout_s"))
      .def("wait", &PyStore::wait, py::arg("key"), py::arg("timeout_s"))
      .def("try_get", &PyStore::try_get, py::arg("key"), py::arg("timeout_s"))
      .def("check", &PyStore::check, py::arg("key"), py::arg("timeout_s"))
      .def("erase", &PyStore::erase, py::arg("key"), py::arg("timeout_s"))
      .def("keys", &PyStore::keys, py::arg("prefix"), py::arg("timeout_s"))
      .def("compare_set", &PyStore::compare_set, py::arg("key"), py::arg("expected"), py::arg("desired"),
           py::arg("timeout_s"))
      .def("append", &PyStore::append, py::arg("key"), py::arg("value"), py::arg("timeout_s"));

  module.def(
      "interfaces",
      [state] {
        std::vector<std::tuple<std::string, std::string, unsigned>> all;
        for (Interface& each : value_or_throw(*state, interfaces()))
          all.emplace_back(std::move(each.name), std::move(each.ip), each.flags);
        return all;
      },
      "This host's addresses: (interface, ip, flags of netdevice(7)) each.");

  py::class_<PyRuntime>(module, "Runtime",
                        "One rank's connections to all other ranks. pycollective.init() makes it.")
      .def(py::init([state](Rank rank, Rank size, std::vector<std::string> store_addresses,
                            std::optional<std::vector<std::string>> host_store, const py::bytes& key,
                            const py::bytes& job, const std::string& key_source, bool encrypts,
                            uint32_t epoch, std::vector<std::string> listen, Rank local_rank, Rank local_size,
                            std::optional<double> timeout_s, std::optional<double> init_timeout_s,
                            std::optional<std::string> transport, std::optional<std::string> tune,
                            std::optional<std::string> tuning) {
             return std::make_unique<PyRuntime>(
                 state, Options{rank, size, std::move(store_addresses), std::move(host_store),
                                make_credentials(*state, key, key_source, job, encrypts), epoch,
                                std::move(listen), local_rank, local_size, timeout_s, init_timeout_s,
                                std::move(transport), std::move(tune), std::move(tuning)});
           }),
           py::arg("rank"), py::arg("size"), py::kw_only(),
           py::arg("store_addresses") = std::vector<std::string>(), py::arg("host_store") = py::none(),
           py::arg("key"), py::arg("job"), py::arg("key_source") = "", py::arg("encrypts") = false,
           py::arg("epoch") = 0, py::arg("listen") = std::vector<std::string>(), py::arg("local_rank") = 0,
           py::arg("local_size") = 0, py::arg("timeout_s") = py::none(),
           py::arg("init_timeout_s") = py::none(), py::arg("transport") = py::none(),
           py::arg("tune") = py::none(), py::arg("tuning") = py::none())
      .def_property_readonly("world", &PyRuntime::world, "The group of all ranks.")
      .def("store", &PyRuntime::store, "The key-value store of this world.")
      .def("shutdown", &PyRuntime::shutdown, py::kw_only(), py::arg("timeout_s") = py::none(),
           "Waits until every rank calls it, at most `timeout_s` seconds, then disconnects and closes.")
      .def("close", &PyRuntime::close, "Closes at once; ranks that still communicate see a failure.");
}

}  // namespace pc
