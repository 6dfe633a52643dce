// A FAKE of NCCL: its communicators, what tests have scripted, and which calls are forbidden.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// Hidden: several versions of this library are in one process, and each has its own state.
namespace fake_nccl {

struct UniqueId {
  char bytes[128];
};
struct Comm;

constexpr int kSuccess = 0, kInternal = 3, kInvalidArgument = 4, kInvalidUsage = 5, kInProgress = 7;
constexpr int kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4, kFirstOwn = 5;
constexpr std::array<std::size_t, 12> kSizes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

struct World;

struct Operation;

struct Call {
  std::string kind;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = 0;
  int dtype = 0, op = 0, root = 0;  // root: the root or the peer
  std::array<std::byte, 8> factor = {};
  void* stream = nullptr;
  // Compares what must be equal on all ranks. A user-defined operation has a different number on
  // each rank.
  bool operator==(const Call& other) const {
    const auto plain = [](int each) { return std::min(each, kFirstOwn); };
    return kind == other.kind && count == other.count && dtype == other.dtype &&
           plain(op) == plain(other.op) && root == other.root;
  }
};

// The part of a communicator that its queued operations use after its end.
struct Life {
  bool dead = false, busy = false;  // busy: one of its operations is running
  int64_t issued = 0, next = 0;     // counts of operations that are in no graph
};

struct Comm {
  std::shared_ptr<World> world;
  std::shared_ptr<Life> life = std::make_shared<Life>();
  int rank = 0;
  const char* name = nullptr;  // kept, not copied, as NCCL does
  bool blocking = false;       // its calls return when they have completed
  int queries = 0;             // number of queries until its current call has settled
  bool hangs = false, dead = false, aborted = false, initialized = false;
  int async = kSuccess;
  int splits = 0;
  std::string calls;
  std::vector<Call> group;                                      // issued, and the group is still open
  std::size_t collectives = 0;                                  // number of collectives that have arrived
  std::map<int, std::pair<int, std::array<std::byte, 8>>> ops;  // dtype and factor
  int next_op = kFirstOwn;
  std::vector<std::pair<int, Comm**>> child_slots;  // written when this communicator settles, as NCCL does
  std::vector<Comm*> children;
  std::atomic<int> inside{0};
  int stuck = 0;  // number of threads in stay() for it
};

// The requested configuration of a communicator.
struct Settings {
  const char* name = nullptr;
  bool blocking = false;
};

// A rank's part in a split.
struct Share {
  Comm* parent;
  int color, key;
  Settings settings;
};

// A call of one rank that has arrived: it waits for the calls of the other ranks.
struct Arrival {
  int rank;
  Call call;
  Operation* operation;  // null if it belongs to none
};

struct World {
  int size = 1, joined = 0;
  bool spoiled = false;  // FAKE_NCCL_SPOILS="world 2": the second id's collectives give rank 0 a wrong result
  std::vector<Comm*> members;
  std::map<std::size_t, std::vector<Arrival>> pending;              // by sequence number
  std::map<std::pair<int, int>, std::deque<Arrival>> sends, recvs;  // by (from, to)
  std::map<int, std::vector<Share>> splits;                         // by sequence number
};

// A group that a thread has begun with ncclGroupStart.
struct Group {
  int depth = 0;
  std::vector<Comm*> comms = {};
};

// The whole state, guarded by one mutex. A call that blocks releases it.
struct Fake {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::unique_ptr<Comm>> comms;
  std::vector<std::unique_ptr<Comm>> forgotten;  // ended by no caller; NCCL would still refer to their names
  std::map<std::string, std::shared_ptr<World>> worlds;
  std::map<std::thread::id, Group> groups;
  int ids = 0, queries = 0;
  bool init_waits = false, init_hangs = false, calls_hang = false;
  bool never_blocks = false;  // NCCL_COMM_BLOCKING=0
  struct Failure {
    std::string call;
    int code;
    bool sticky;
  };
  std::vector<Failure> failures;
  std::vector<std::string> blocks;
  int blocked = 0, generation = 0;
  std::string violations, answer;
  void (*on_abort)(void*) = nullptr;
  void* on_abort_data = nullptr;
  // fake_cuda_enqueue; null if calls complete immediately.
  int (*enqueue)(void*, int (*)(void*), void (*)(void*), void (*)(void*), void*) = nullptr;
};
inline Fake& fake() {
  static Fake* const one = new Fake;  // outlives threads that hang
  return *one;
}
// Call with the mutex held. Not thread_local, for the reason in fakes/cuda/world.h.
inline Group& group() { return fake().groups[std::this_thread::get_id()]; }

inline void violation(const std::string& text) { fake().violations += text + "; "; }

// Blocks a thread in a call until `done()`, until its communicator is aborted, or until the test
// releases all threads.
template <class Done>
void stay(std::unique_lock<std::mutex>& lock, Comm* comm, Done&& done) {
  Fake& all = fake();
  ++all.blocked;
  if (comm != nullptr) ++comm->stuck;
  const int generation = all.generation;
  all.changed.wait(
      lock, [&] { return done() || all.generation != generation || (comm != nullptr && comm->aborted); });
  --all.blocked;
  if (comm != nullptr) --comm->stuck;
}
// Blocks if a test has requested that this call blocks.
inline void block_if_requested(std::unique_lock<std::mutex>& lock, const std::string& call, Comm* comm) {
  Fake& all = fake();
  const auto found = std::find(all.blocks.begin(), all.blocks.end(), call);
  if (found == all.blocks.end()) return;
  all.blocks.erase(found);
  stay(lock, comm, [] { return false; });
}
inline int scripted_failure(const std::string& call, Comm* comm) {
  Fake& all = fake();
  const auto found = std::find_if(all.failures.begin(), all.failures.end(),
                                  [&](const Fake::Failure& each) { return each.call == call; });
  if (found == all.failures.end()) return kSuccess;
  const int code = found->code;
  if (found->sticky && comm != nullptr) comm->async = code;
  all.failures.erase(found);
  return code;
}

// Returns true if no call is in progress. An init may wait for the other ranks.
inline bool settled(Comm& comm) {
  if (comm.hangs) return false;
  if (comm.queries > 0) return false;
  return comm.initialized || !fake().init_waits || comm.world->joined == comm.world->size;
}

inline void leave(Comm& comm) {
  if (comm.inside.fetch_sub(1) == 1) fake().changed.notify_all();
}

// One call of one thread on a communicator. Not used for queries and aborts.
class Entry {
 public:
  Entry(Comm* comm, std::string call) : lock_(fake().mutex), comm_(comm), call_(std::move(call)) {
    if (comm_ == nullptr) {
      code_ = kInvalidArgument;
      return;
    }
    if (comm_->inside.fetch_add(1) != 0) violation(call_ + " while another thread is inside");
    if (comm_->dead) {
      violation(call_ + " on a communicator that has ended");
      code_ = kInvalidArgument;
    } else if (!settled(*comm_)) {
      violation(call_ + " before the call before has settled");
      code_ = kInvalidUsage;
    } else {
      block_if_requested(lock_, call_, comm_);
      code_ = comm_->aborted ? kInternal : scripted_failure(call_, comm_);
    }
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  ~Entry() {
    if (comm_ != nullptr) leave(*comm_);
  }
  // A call on a blocking communicator waits for other ranks. Returns false if the communicator was
  // aborted.
  template <class Done>
  bool wait(Done&& done) {
    if (!done()) stay(lock_, comm_, done);
    return !comm_->aborted;
  }
  int code() const { return code_; }
  void note(const std::string& text) {
    if (!comm_->calls.empty()) comm_->calls += ' ';
    comm_->calls += text;
  }
  // Returns the code of a call that continues in the background.
  int begun() {
    comm_->queries = comm_->blocking ? 0 : fake().queries;
    return comm_->queries > 0 || comm_->hangs ? kInProgress : kSuccess;
  }

 private:
  std::unique_lock<std::mutex> lock_;
  Comm* comm_;
  std::string call_;
  int code_ = kSuccess;
};

}  // namespace fake_nccl
