// Calls of arrays on GPUs, as the groups of a runtime need them. What makes such calls lies above this layer, and is made for the
// first of them: a runtime without one opens nothing.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "comm/user_call.h"
#include "operation/async_work.h"

namespace pc {

class Communicator;

// Of one runtime. Thread-safety: all methods. The runtime must outlive it and what it has given.
class Devices {
 public:
  virtual ~Devices() = default;  // close() or abort() comes first

  // Returns when the call is queued on the stream of its arrays, or, through the host and without a stream, has ended.
  virtual Status run(Communicator& group, UserCall call, double timeout_s) = 0;
  // `how.on_end`: once, when it has ended, in another thread; shall not wait. Not if this fails, nor for what goes into a CUDA graph.
  virtual Result<std::shared_ptr<AsyncWork>> begin(Communicator& group, UserCall call, AsyncOptions how) = 0;
  // Joins the ranks of `group` on their GPUs, as their first call there would. `device`: this rank's, in the driver's numbers.
  // `insists`: on NCCL, and a rank that cannot says why.
  virtual Status join(Communicator& group, int device, void* stream, double timeout_s, bool insists) = 0;
  // Which way a call goes, once the ranks have joined: "nccl", "peers" (from array to array) or "staged" (through the host).
  struct Route {
    std::string_view backend = {};
    Status by_nccl = {};  // not OK: NCCL does not take this call, and why
  };
  virtual Route route_of(const Communicator& group, const UserCall& call) = 0;
  // The same for people, of a collective or of messages.
  virtual std::string explain(const Communicator& group, std::optional<Collective> collective) = 0;
  static std::string not_known_yet() {
    return "not known yet: the ranks find out which way they can go in the group's first such call";
  }
  // For groups that `group` is cut into. Whether split() could join them at once, as far as this rank knows: all must.
  virtual bool can_split(const Communicator& group) = 0;
  // All members of `group` call it, after they have told each other that they can; `child`: the new group of this rank, which
  // has had no call yet, or null. It joins on the GPU of `group`.
  virtual Status split(const Communicator& group, Communicator* child, double timeout_s) = 0;
  // Whether something here refers to that group, which is so until the end.
  virtual bool knows(const Communicator& group) = 0;
  // Until every call so far has ended and nothing looks after it any more. For measurements.
  virtual Status settle(double timeout_s) = 0;
  // Of all groups that have joined, in the order in which they did, which is that of all ranks.
  virtual Status close(double timeout_s) = 0;
  virtual void abort(const Status& why) = 0;
};

// The devices of one runtime: none until the first call of arrays on a GPU, and none after its end. Thread-safety: all methods.
class LazyDevices {
 public:
  using Make = std::function<Result<std::shared_ptr<Devices>>()>;
  explicit LazyDevices(Make make) : make_(std::move(make)) {}  // null: there are never any

  bool can_make() const { return make_ != nullptr; }
  // Makes them in this thread, without a lock, so that `make` may run whatever it likes. Of two threads that do so at once one
  // gets those of the other. kNotInitialized: the runtime has ended.
  Result<std::shared_ptr<Devices>> get();
  std::shared_ptr<Devices> made() const;  // null: there are none
  // Whether something there may still refer to that group: it is known, or all of it is about to go.
  bool keep(const Communicator& group) const;
  Status run(Communicator& group, UserCall call, double timeout_s);
  Result<std::shared_ptr<AsyncWork>> begin(Communicator& group, UserCall call, AsyncOptions how);
  // The end: none are made any more, and those that are there go when the last call lets them go.
  Status close(double timeout_s);
  void abort(const Status& why);

 private:
  std::shared_ptr<Devices> end();
  void let_go();

  const Make make_;
  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<Devices> devices_;
  bool ended_ = false;
};

}  // namespace pc
