// The options with which each rank starts, and what the ranks exchange in rendezvous.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/types.h"
#include "store/store.h"
#include "wire/credentials.h"

namespace pc {

// Whether calls are compared between ranks before their data is used. All ranks use rank 0's
// setting.
enum class Check : uint8_t {
  kOff,     // no comparison
  kOn,      // by a fingerprint in every message
  kStrict,  // as kOn; in addition, every call waits until all ranks have made it
};

struct RuntimeOptions {
  Rank rank = 0;
  Rank size = 1;
  std::shared_ptr<Store> store;  // may be null if size is 1; released as soon as all ranks are connected
  Credentials credentials = {};
  uint32_t epoch = 0;
  double timeout_s = 600;  // default deadline of every call
  // "auto", "tcp" (never shared memory) or "shm" (only shared memory). Any other value is refused.
  // Rank 0's setting counts.
  std::string transport = "auto";
  int tcp_sockets = 1;                // data connections between two ranks; must be the same on all ranks
  bool single_copy = true;            // local peers may read each other's private memory
  std::vector<std::string> bind_ips;  // addresses to which the data listener binds; empty: loopback
  std::string tune;                   // selection overrides of rank 0
  std::string profile = "off";        // rank 0's setting: see load_profile()
  std::string tuning;                 // replaces the profile; rank 0's setting: see Tuning::parse()
  // returns true if Ctrl-C is pending; called periodically, only in the waiting thread
  std::function<bool()> interrupted;
  Logger log = Logger();     // the runtime adds this rank's number
  Check check = Check::kOn;  // rank 0's setting counts
  bool joins_gpus = false;   // this rank may have a GPU, and the use of GPUs is not disabled
  // Creates the object that runs calls with arrays on GPUs; see gpu/device_groups.h. Invoked by the
  // first such call, in the thread that makes the call, while no lock is held. If it is empty, such
  // calls are refused.
  std::function<Result<std::shared_ptr<class Devices>>(class Runtime&)> make_devices;
  // called by shutdown() before it waits for the other ranks; may be empty
  std::function<void()> before_leaving;
  double warn_after_s = 30;  // seconds of waiting in one call before a warning names the late ranks
  // Determines, in another thread, where this process's program currently executes, and passes the
  // text ("train.py:42 in step") to the given callback. May be empty.
  std::function<void(std::function<void(std::string)>)> find_position;
  int print_request =
      -1;  // an eventfd, not owned: when it becomes readable, the last calls are printed to stderr
  std::function<std::unique_ptr<class Transport>(Rank)>
      make_transport;  // tests only: worlds inside one process
  // Tests only: returns the memory that this rank shares with other ranks of the same process. If
  // it is empty, ranks of one process share no memory.
  std::function<std::unique_ptr<class LocalPeers>(Rank)> make_local_peers;
};

// What every rank knows about the processes of all ranks after init.
struct HostMap {
  struct Entry {
    std::string host_name;  // for messages to users
    std::string host_key;   // equal if two ranks appear to have the same kernel and network namespace
    int64_t pid = 0;
    std::string pid_key;      // equal if the pids of two ranks refer to the same processes; empty if unknown
    int32_t domain = 0;       // the lowest rank in its shared-memory domain; its own rank if it is alone
    std::string why_alone;    // why it shares memory with no other rank, in one line; otherwise empty
    bool joins_gpus = false;  // see RuntimeOptions
  };
  std::vector<Entry> ranks;
  Rank local_rank = 0, local_size = 1;
  Rank count(std::span<const Rank> of) const;  // returns the number of different hosts of these ranks
};

}  // namespace pc
