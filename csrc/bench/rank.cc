#include "bench/rank.h"

#include <memory>
#include <optional>
#include <utility>

#include "base/env.h"
#include "bench/output.h"
#include "bench/seat.h"
#include "comm/runtime.h"
#include "store/tcp_client.h"

namespace pc::bench {
namespace {

Result<Check> check_from_environment() {
  PC_ASSIGN_OR_RETURN(const std::string check, env_text(Env::kCheck));
  return check == "off" ? Check::kOff : check == "strict" ? Check::kStrict : Check::kOn;
}

// What a flag does not say, the environment does.
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
  return native;
}

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

}  // namespace

Status run_rank(const Options& options, const Place& place) {
  PC_ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime, join(options, place));
  PC_ASSIGN_OR_RETURN(const Seat seat, take_seat(*runtime, options.group));
  const bool one_clock = runtime->hosts().local_size == place.size;
  Output output(options, seat.prints);
  if (seat.group != nullptr) output.open(runtime->hosts(), {*seat.group, one_clock});
  for (const Case& what : options.cases) {
    PC_TRY(output.begin(what));
    const std::size_t rows = what.operation->moves_data ? options.sizes.size() : 1;
    for (std::size_t i = 0; i < rows; ++i) {
      const uint64_t nbytes = what.operation->moves_data ? options.sizes[i] : 0;
      std::optional<Row> row;
      if (seat.group != nullptr) {
        PC_ASSIGN_OR_RETURN(row, measure({*seat.group, one_clock}, what, nbytes, effort(options, nbytes)));
      }
      if (!options.group.empty()) PC_TRY(meet(runtime->world(), seat, row));
      if (row) PC_TRY(output.add(*row));
    }
  }
  PC_TRY(output.close());
  PC_TRY(runtime->shutdown(Deadline::after(runtime->world().timeout_s())));
  if (output.wrong() == 0 || !seat.prints) return Status::ok();
  return Status(Code::kInternal, std::to_string(output.wrong()) + " elements of the results are wrong");
}

}  // namespace pc::bench
