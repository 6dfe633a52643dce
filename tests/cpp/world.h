// Runs a body on every rank of a world of threads, over any transport, and reports each rank's
// outcome. Every world has a deadline: a call that hangs fails with every rank's error and does not
// block the test.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "comm/runtime.h"
#include "shm/local_peers_thread.h"
#include "statuses.h"
#include "store/memory.h"
#include "transport/inproc/inproc.h"

namespace pc::testing {

inline constexpr double kShort = 0.3;  // a timeout that must expire
inline constexpr double kLong = 20;    // a timeout that must not expire

// kShared: the ranks share memory, and messages use inproc. kDomains: the ranks form several
// shared-memory domains, as on several hosts.
enum class Over : uint8_t { kInproc, kTcp, kShared, kDomains };
inline std::string name_of(Over over) {
  switch (over) {
    case Over::kInproc: return "inproc";
    case Over::kTcp: return "tcp";
    case Over::kShared: return "shared";
    case Over::kDomains: break;
  }
  return "domains";
}

struct WorldOptions {
  Over over = Over::kInproc;
  Rank size = 2;
  std::vector<Rank> domains = {};  // sizes of the domains of kDomains; empty for two halves
  double timeout_s = 20;           // of init and of every call, in seconds
  std::string tune = "";
  std::string tuning = "", others_tuning = "";  // profiles of rank 0 and of the other ranks
  Check check = Check::kOn;
  bool shut_down = true;  // with the closing barrier; otherwise the runtimes are only destroyed
  int log_fd = 2;         // where warnings are written
  bool joins_gpus = false;
  decltype(RuntimeOptions::make_devices) make_devices = {};
  std::function<bool()> interrupted = {};  // for rank 0: reports that Ctrl-C is pending
};

// The outcome of each rank: the first Status that is not OK, of create, body and shutdown in this
// order.
using Outcomes = std::vector<Status>;
using Body = std::function<Status(Runtime&, Communicator&)>;

inline Status run_rank(RuntimeOptions options, const WorldOptions& world, const Body& body) {
  PC_ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime,
                      Runtime::create(std::move(options), Deadline::after(world.timeout_s)));
  PC_TRY(body(*runtime, runtime->world()));
  return world.shut_down ? runtime->shutdown(Deadline::after(world.timeout_s)) : Status::ok();
}

inline Outcomes run_world(const WorldOptions& world, const Body& body) {
  const auto store = std::make_shared<MemoryStore>();
  const std::shared_ptr<InprocHub> hub = world.over == Over::kTcp ? nullptr : InprocHub::create(world.size);
  std::shared_ptr<ThreadHost> host;
  if (world.over == Over::kShared || world.over == Over::kDomains) {
    std::vector<Rank> domains = world.domains;
    if (world.over == Over::kDomains && domains.empty())
      domains = {world.size - world.size / 2, world.size / 2};
    Result<std::shared_ptr<ThreadHost>> made = ThreadHost::create(world.size, domains);
    if (!made.is_ok()) return {made.status()};
    host = std::move(made).value();
  }
  Outcomes outcomes(static_cast<std::size_t>(world.size));
  std::vector<std::thread> ranks;
  for (Rank rank = 0; rank < world.size; ++rank) {
    RuntimeOptions options;
    options.rank = rank;
    options.size = world.size;
    options.store = store;
    options.timeout_s = world.timeout_s;
    options.transport = "tcp";
    options.check = world.check;
    options.joins_gpus = world.joins_gpus;
    options.make_devices = world.make_devices;
    if (rank == 0) options.interrupted = world.interrupted;
    options.tune = rank == 0 ? world.tune : "";
    options.tuning = rank == 0 ? world.tuning : world.others_tuning;
    options.log = Logger(LogLevel::kWarning, -1, world.log_fd);
    if (hub) options.make_transport = [hub](Rank r) { return hub->make_transport(r); };
    if (host) options.make_local_peers = [host](Rank r) { return host->local_peers_of(r); };
    ranks.emplace_back(
        [&, rank, options] { outcomes[static_cast<std::size_t>(rank)] = run_rank(options, world, body); });
  }
  for (std::thread& rank : ranks) rank.join();
  return outcomes;
}

inline bool all_ok(const Outcomes& outcomes) {
  for (const Status& s : outcomes) {
    if (!s.is_ok()) return false;
  }
  return true;
}
inline std::string text_of(const Outcomes& outcomes) {
  std::string text;
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    text += "rank " + std::to_string(r) + ": [" + std::string(pc::name_of(outcomes[r].code())) + "] " +
            outcomes[r].to_string() + "\n";
  }
  return text;
}

}  // namespace pc::testing
