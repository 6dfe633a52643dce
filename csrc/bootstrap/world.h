// A world before its ranks have met: what each is asked to be, and what they tell each other.
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

// Whether ranks are compared before their data is used. All take rank 0's word.
enum class Check : uint8_t {
  kOff,     // not at all
  kOn,      // by a fingerprint in every message
  kStrict,  // and every call waits until all ranks have made it
};

struct RuntimeOptions {
  Rank rank = 0;
  Rank size = 1;
  std::shared_ptr<Store> store;  // may be null if size is 1; let go as soon as all are connected
  Credentials credentials = {};
  uint32_t epoch = 0;
  double timeout_s = 600;  // default deadline of every call
  // "auto"; "tcp": never shared memory; "shm": nothing but shared memory. Rank 0's word counts, a word of no transport is refused.
  std::string transport = "auto";
  int tcp_sockets = 1;                // for data, between two ranks; the same on all
  bool single_copy = true;            // local peers may read each other's private memory
  std::vector<std::string> bind_ips;  // where the data listener binds; empty: loopback
  std::string tune;                   // selection overrides of rank 0
  std::string profile = "off";        // rank 0's word: see load_profile()
  std::string tuning;                 // instead of a profile, rank 0's: see Tuning::parse()
  std::function<bool()> interrupted;  // Ctrl-C probe; asked only by the thread that waits, in slices
  Logger log = Logger();              // gets this rank's number
  Check check = Check::kOn;           // rank 0's counts
  bool joins_gpus = false;  // this rank may have a GPU, and nobody has said that it shall not be asked
  // Makes what runs calls of arrays on GPUs, in the first such call, in its thread and without a lock: gpu/device_groups.h has
  // one. Empty: such calls are refused.
  std::function<Result<std::shared_ptr<class Devices>>(class Runtime&)> make_devices;
  std::function<void()> before_leaving;  // called by shutdown() before it waits for the others; may be empty
  double warn_after_s = 30;              // of waiting in one call: a warning names the late ranks
  // Finds out, in another thread, where this process's program stands: "train.py:42 in step". May be empty.
  std::function<void(std::function<void(std::string)>)> find_position;
  int print_request =
      -1;  // an eventfd, not owned: when it becomes readable, the last calls are printed to stderr
  std::function<std::unique_ptr<class Transport>(Rank)>
      make_transport;  // tests only: worlds inside one process
  // Tests only: the memory that all ranks of such a world share. Without it ranks of such a world share none.
  std::function<std::unique_ptr<class LocalPeers>(Rank)> make_local_peers;
};

// What the ranks told each other at init.
struct HostMap {
  struct Entry {
    std::string host_name;  // for people
    std::string host_key;   // equal: same kernel and network namespace, as far as names can tell
    int64_t pid = 0;
    std::string pid_key;      // equal: pids mean the same processes
    int32_t domain = 0;       // the lowest rank that it shares memory with; its own if it is alone
    std::string why_alone;    // in one line; empty if it is not
    bool joins_gpus = false;  // RuntimeOptions
  };
  std::vector<Entry> ranks;
  Rank local_rank = 0, local_size = 1;
  Rank count(std::span<const Rank> of) const;  // of different hosts
};

}  // namespace pc
