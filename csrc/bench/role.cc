#include "bench/role.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "base/env.h"
#include "bench/gpu_session.h"
#include "bench/numbers.h"
#include "store/tcp_client.h"

namespace pc::bench {
namespace {

// Used only between bench_binary.py and this file: the job's id in hexadecimal, and a text about
// the source of its key.
constexpr const char* kJob = "PYCOLLECTIVE_BENCH_JOB";
constexpr const char* kKeySource = "PYCOLLECTIVE_BENCH_KEY_SOURCE";

std::string variable(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): there are no threads yet
  return value == nullptr ? "" : value;
}

Result<JobId> job_from(const std::string& digits) {
  JobId job;
  bool right = digits.size() == 2 * job.size();
  for (std::size_t i = 0; right && i < job.size(); ++i) {
    unsigned value = 0;
    const char* const begin = digits.data() + 2 * i;
    right = std::from_chars(begin, begin + 2, value, 16).ptr == begin + 2;
    job[i] = static_cast<std::byte>(value);
  }
  if (right) return job;
  return Status(Code::kInvalidArgument, std::string(kJob) + " is not 32 hexadecimal digits");
}

Result<JobKey> key_from_descriptor() {
  PC_ASSIGN_OR_RETURN(const int64_t fd, env_integer(Env::kKeyFd));
  JobKey::Bytes bytes;
  const ssize_t length = ::pread(static_cast<int>(fd), bytes.data(), bytes.size(), 0);
  if (length == static_cast<ssize_t>(bytes.size())) return JobKey(bytes);
  return system_error("reading the job's key from descriptor " + std::to_string(fd),
                      length < 0 ? errno : EIO);
}

std::vector<std::string> listed(const std::string& text) {
  return text.empty() ? std::vector<std::string>() : split(text);
}

Result<Check> check_from_environment() {
  PC_ASSIGN_OR_RETURN(const std::string check, env_text(Env::kCheck));
  return check == "off" ? Check::kOff : check == "strict" ? Check::kStrict : Check::kOn;
}

Result<RuntimeOptions> runtime_options(const Options& options, const Role& role) {
  RuntimeOptions native;
  native.rank = role.rank;
  native.size = role.size;
  native.credentials = role.credentials;
  native.bind_ips = role.listen;
  PC_ASSIGN_OR_RETURN(native.timeout_s, options.timeout_s ? *options.timeout_s : env_seconds(Env::kTimeoutS));
  PC_ASSIGN_OR_RETURN(native.transport,
                      options.transport.empty() ? env_text(Env::kTransport) : options.transport);
  PC_ASSIGN_OR_RETURN(const std::string single_copy, env_text(Env::kSingleCopy));
  native.single_copy = single_copy == "auto";
  PC_ASSIGN_OR_RETURN(const int64_t tcp_sockets, env_integer(Env::kTcpSockets));
  native.tcp_sockets = static_cast<int>(tcp_sockets);
  PC_ASSIGN_OR_RETURN(native.tune, options.tune.empty() ? env_text(Env::kTune) : options.tune);
  PC_ASSIGN_OR_RETURN(native.profile, env_text(Env::kProfile));
  PC_ASSIGN_OR_RETURN(native.check, check_from_environment());
  PC_ASSIGN_OR_RETURN(native.log, Logger::from_environment());
  PC_ASSIGN_OR_RETURN(const std::string backend, env_text(Env::kGpu));
  native.joins_gpus = options.on_gpus() && options.backend != GpuBackend::kStaged &&
                      (options.backend == GpuBackend::kNccl || backend == "auto");
  if (options.on_gpus()) native.make_devices = make_devices;
  return native;
}

}  // namespace

Result<std::optional<Role>> role_from_environment() {
  const std::string job = variable(kJob);
  if (job.empty() && env_is_set(Env::kRank)) {
    return Status(
        Code::kInvalidArgument,
        "PYCOLLECTIVE_RANK is set, so a launcher has started this program as one of several ranks, but it "
        "cannot join them by itself: start the command `pycollective-bench`, which pip installs");
  }
  if (job.empty()) return std::optional<Role>();
  Role role;
  PC_ASSIGN_OR_RETURN(const int64_t rank, env_integer(Env::kRank));
  PC_ASSIGN_OR_RETURN(const int64_t size, env_integer(Env::kWorldSize));
  role.rank = static_cast<Rank>(rank);
  role.size = static_cast<Rank>(size);
  if (size == 1) return std::optional<Role>(std::move(role));
  PC_ASSIGN_OR_RETURN(const std::string stores, env_text(Env::kStore));
  PC_ASSIGN_OR_RETURN(const std::string listen, env_text(Env::kInterface));
  PC_ASSIGN_OR_RETURN(const std::string security, env_text(Env::kSecurity));
  PC_ASSIGN_OR_RETURN(role.credentials.job, job_from(job));
  PC_ASSIGN_OR_RETURN(role.credentials.key, key_from_descriptor());
  role.stores = listed(stores);
  role.listen = listed(listen);
  role.credentials.key_source = variable(kKeySource);
  role.credentials.encrypts = security == "encrypt";
  return std::optional<Role>(std::move(role));
}

Result<std::unique_ptr<Runtime>> join(const Options& options, const Role& role) {
  PC_ASSIGN_OR_RETURN(RuntimeOptions native, runtime_options(options, role));
  const Deadline deadline = Deadline::after(native.timeout_s);
  if (role.size > 1) {
    PC_ASSIGN_OR_RETURN(StoreConnection to_store,
                        connect_tcp_store(role.stores, native.credentials, deadline));
    native.store = std::move(to_store.store);
    if (native.bind_ips.empty()) native.bind_ips = {to_store.local_ip};
  }
  return Runtime::create(std::move(native), deadline);
}

}  // namespace pc::bench
