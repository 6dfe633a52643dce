#include "bench/join.h"

#include <string>
#include <utility>

#include "base/env.h"
#include "store/tcp_client.h"

namespace pc::bench {
namespace {

Result<Check> check_from_environment() {
  PC_ASSIGN_OR_RETURN(const std::string check, env_text(Env::kCheck));
  return check == "off" ? Check::kOff : check == "strict" ? Check::kStrict : Check::kOn;
}

Result<RuntimeOptions> runtime_options(const Options& options, const Place& place) {
  RuntimeOptions native;
  native.rank = place.rank;
  native.size = place.size;
  native.credentials = place.credentials;
  native.bind_ips = place.listen;
  PC_ASSIGN_OR_RETURN(native.timeout_s, options.timeout_s ? *options.timeout_s : env_seconds(Env::kTimeoutS));
  PC_ASSIGN_OR_RETURN(native.transport,
                      options.transport.empty() ? env_text(Env::kTransport) : options.transport);
  const Result<std::string> single_copy = env_text(Env::kSingleCopy);
  PC_TRY(single_copy.status());
  native.single_copy = single_copy.value() == "auto";
  PC_ASSIGN_OR_RETURN(const int64_t tcp_sockets, env_integer(Env::kTcpSockets));
  native.tcp_sockets = static_cast<int>(tcp_sockets);
  PC_ASSIGN_OR_RETURN(native.tune, options.tune.empty() ? env_text(Env::kTune) : options.tune);
  PC_ASSIGN_OR_RETURN(native.profile, env_text(Env::kProfile));
  PC_ASSIGN_OR_RETURN(native.check, check_from_environment());
  PC_ASSIGN_OR_RETURN(native.log, Logger::from_environment());
  PC_ASSIGN_OR_RETURN(const std::string way, env_text(Env::kGpu));
  native.joins_gpus = options.gpu.asked && options.gpu.way != GpuWay::kStaged &&
                      (options.gpu.way == GpuWay::kNccl || way == "auto");
  return native;
}

}  // namespace

Result<std::unique_ptr<Runtime>> join(const Options& options, const Place& place) {
  PC_ASSIGN_OR_RETURN(RuntimeOptions native, runtime_options(options, place));
  const Deadline deadline = Deadline::after(native.timeout_s);
  if (place.size > 1) {
    PC_ASSIGN_OR_RETURN(StoreConnection to_store,
                        connect_tcp_store(place.stores, native.credentials, deadline));
    native.store = std::move(to_store.store);
    if (native.bind_ips.empty()) native.bind_ips = {to_store.local_ip};
  }
  return Runtime::create(std::move(native), deadline);
}

}  // namespace pc::bench
