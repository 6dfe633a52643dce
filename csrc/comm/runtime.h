// Everything one rank owns: store, transport, reactor, and the world communicator. Explicit: a process may hold many, which
// is how worlds of threads are tested. world() as a global exists in Python only.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/log.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "engine/flight_recorder.h"
#include "store/store.h"
#include "wire/credentials.h"

namespace pc {

namespace shm {
class Heap;
}

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
  bool single_copy = true;            // neighbours may read each other's private memory
  std::vector<std::string> bind_ips;  // where the data listener binds; empty: loopback
  std::string tune;                   // selection overrides of rank 0
  std::string profile = "off";        // rank 0's word: see load_profile()
  std::string tuning;                 // instead of a profile, rank 0's: see Tuning::parse()
  std::function<bool()> interrupted;  // Ctrl-C probe; asked only by the thread that waits, in slices
  Logger log = Logger();              // gets this rank's number
  Check check = Check::kOn;           // rank 0's counts
  bool joins_gpus = false;  // this rank may have a GPU, and nobody has said that it shall not be asked
  std::function<void()> before_leaving;  // called by shutdown() before it waits for the others; may be empty
  double warn_after_s = 30;              // of waiting in one call: a warning names the late ranks
  // Finds out, in another thread, where this process's program stands: "train.py:42 in step". May be empty.
  std::function<void(std::function<void(std::string)>)> find_position;
  int print_request =
      -1;  // an eventfd, not owned: when it becomes readable, the last calls are printed to stderr
  std::function<std::unique_ptr<class Transport>(Rank)>
      make_transport;  // tests only: worlds inside one process
  // Tests only: the memory that all ranks of such a world share. Without it ranks of such a world share none.
  std::function<std::unique_ptr<class Neighbours>(Rank)> make_neighbours;
};

// What the ranks told each other at init.
struct HostMap {
  struct Entry {
    std::string host_name;  // for people
    std::string host_key;   // equal: same kernel and network namespace, as far as names can tell
    int64_t pid = 0;
    std::string pid_key;      // equal: pids mean the same processes
    int32_t island = 0;       // the lowest rank that it shares memory with; its own if it is alone
    std::string why_alone;    // in one line; empty if it is not
    bool joins_gpus = false;  // RuntimeOptions
  };
  std::vector<Entry> ranks;
  Rank local_rank = 0, local_size = 1;
  Rank count(std::span<const Rank> of) const;  // of different hosts
};

// Thread-safety: all methods but close_in_child().
class Runtime {
 public:
  static Result<std::unique_ptr<Runtime>> create(RuntimeOptions options, Deadline deadline);
  ~Runtime();  // without shutdown: closes at once, peers see a failure
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  Communicator& world();
  // A group of these ranks of the world, in this order; this rank must be one. It lives until close_group(), or as long as the
  // runtime. All members make it with one `id`, which one of them has reserved for it and told the others.
  Result<Communicator*> make_group(uint32_t id, const std::vector<Rank>& world_ranks);
  // The first of `count` ids, one after the other, that no rank of the world gets a second time, in whatever thread. Groups
  // without a common member may have the same id. kUnsupported: this rank has none left.
  Result<uint32_t> reserve_group_ids(uint32_t count);
  // Gives back what a group of make_group() has taken here, and what is beside it; the other members close theirs by themselves.
  // What still runs in it ends. No call on it is under way, and none may follow.
  void close_group(const Communicator& group);
  // A group of the same ranks, for what is done beside its calls without a word to the others about its number. One for each group.
  Result<Communicator*> make_group_beside(const Communicator& group);
  // One of two ranks of the world, of which this is one, in this order: for messages that something else moves, one way. Both make
  // it, without a word to each other. kUnsupported: its ranks have numbers above 16383, or it is there already.
  Result<Communicator*> make_line(Rank from, Rank to);
  std::size_t group_count() const;                    // that are open, besides the world
  const std::vector<std::string>& addresses() const;  // where each rank listens; empty for one rank
  const HostMap& hosts() const;
  shm::Heap*
  heap();  // null: no rank shares memory with this one. Lives as long as the runtime, also when it is shut down
  const std::string& name()
      const;  // of this world, the same on every rank and unlike any other's; empty for one rank
  std::vector<CallRecord> last_calls() const;  // oldest first: at most 1024 collectives and 1024 messages
  // Waits until every rank is here (bounded by `deadline`), says goodbye, closes.
  Status shutdown(Deadline deadline);
  // Ends everything that runs in other threads, now and later, with `why`, and closes at once: peers see a failure.
  void abort(const Status& why);
  // In a forked child: closes every descriptor, so that the parent's end is seen by its peers. Nothing may follow.
  void close_in_child() noexcept;

 private:
  Runtime();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pc
