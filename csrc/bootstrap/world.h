// A world before rendezvous: the options of each rank, and what the ranks exchange.
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
  kOff,     // not at all
  kOn,      // by a fingerprint in every message
  kStrict,  // and every call waits until all ranks have made it
};

struct RuntimeOptions {
  Rank rank = 0;
  Rank size = 1;
  std::shared_ptr<Store> store;  // may be null if size is 1; released as soon as all ranks are connected
  Credentials credentials = {};
  uint32_t epoch = 0;
  double timeout_s = 600;  // default deadline of every call
  // "auto"; "tcp": never shared memory; "shm": only shared memory. Rank 0's setting counts, and an
  // unknown transport is refused.
  std::string transport = "auto";
  int tcp_sockets = 1;                // data connections between two ranks; the same on all ranks
  bool single_copy = true;            // local peers may read each other's private memory
  std::vector<std::string> bind_ips;  // where the data listener binds; empty: loopback
  std::string tune;                   // selection overrides of rank 0
  std::string profile = "off";        // rank 0's setting: see load_profile()
  std::string tuning;                 // replaces the profile; rank 0's setting: see Tuning::parse()
  std::function<bool()> interrupted;  // Ctrl-C probe; called only by the waiting thread, in slices
  Logger log = Logger();              // rank() adds this rank's number
  Check check = Check::kOn;           // rank 0's setting counts
  bool joins_gpus = false;            // this rank may have a GPU, and its use is not disabled
  // Creates the object that runs calls with arrays on GPUs, in the thread of the first such call
  // and without a lock; gpu/device_groups.h provides one. If it is empty, such calls are refused.
  std::function<Result<std::shared_ptr<class Devices>>(class Runtime&)> make_devices;
  // called by shutdown() before it waits for the other ranks; may be empty
  std::function<void()> before_leaving;
  double warn_after_s = 30;  // seconds of waiting in one call before a warning names the late ranks
  // Finds the current position of this process's program, in another thread: "train.py:42 in step".
  // May be empty.
  std::function<void(std::function<void(std::string)>)> find_position;
  int print_request =
      -1;  // an eventfd, not owned: when it becomes readable, the last calls are printed to stderr
  std::function<std::unique_ptr<class Transport>(Rank)>
      make_transport;  // tests only: worlds inside one process
  // Tests only: the memory that all ranks of such a world share. If it is empty, the ranks of such
  // a world share none.
  std::function<std::unique_ptr<class LocalPeers>(Rank)> make_local_peers;
};

// What the ranks exchanged at init.
struct HostMap {
  struct Entry {
    std::string host_name;  // for messages to users
    std::string host_key;   // equal: same kernel and network namespace, as far as names can tell
    int64_t pid = 0;
    std::string pid_key;      // equal: pids refer to the same processes
    int32_t domain = 0;       // the lowest rank with which it shares memory; its own rank if it is alone
    std::string why_alone;    // in one line; empty if it is not alone
    bool joins_gpus = false;  // see RuntimeOptions
  };
  std::vector<Entry> ranks;
  Rank local_rank = 0, local_size = 1;
  Rank count(std::span<const Rank> of) const;  // number of different hosts
};

}  // namespace pc
