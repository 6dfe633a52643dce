// The interface for calls with arrays on GPUs, as the groups of a runtime need them. The
// implementation is in a higher layer and is created for the first such call: a runtime without
// such calls opens no device.
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

// The devices of one runtime. Thread-safety: all methods. The runtime must outlive this object and
// what it returns.
class Devices {
 public:
  virtual ~Devices() = default;  // close() or abort() must be called before

  // Returns when the call is queued on the stream of its arrays, or, if it runs through the host
  // without a stream, when it has ended.
  virtual Status run(Communicator& group, UserCall call, double timeout_s) = 0;
  // `how.on_end` is called once, when the call has ended, in another thread; it must not wait. It
  // is not called if begin() fails, nor for calls that are captured in a CUDA graph.
  virtual Result<std::shared_ptr<AsyncWork>> begin(Communicator& group, UserCall call, AsyncOptions how) = 0;
  // Joins the ranks of `group` on their GPUs, as their first call there would. `device` is this
  // rank's, in the driver's numbers. `insists` requires NCCL: a rank that cannot use it reports
  // why.
  virtual Status join(Communicator& group, int device, void* stream, double timeout_s, bool insists) = 0;
  // The path of a call, once the ranks have joined: "nccl", "peers" (from array to array) or
  // "staged" (through the host).
  struct Route {
    std::string_view backend = {};
    Status by_nccl = {};  // an error if NCCL does not take this call, with the reason
  };
  virtual Route route_of(const Communicator& group, const UserCall& call) = 0;
  // The same as text, for a collective or for messages.
  virtual std::string explain(const Communicator& group, std::optional<Collective> collective) = 0;
  static std::string not_known_yet() {
    return "not known yet: the ranks find out which way they can go in the group's first such call";
  }
  // For groups into which `group` is split. Returns true if, as far as this rank knows, split()
  // could join them at once; this must be true on all ranks.
  virtual bool can_split(const Communicator& group) = 0;
  // All members of `group` call it, after they have informed each other that they can. `child` is
  // this rank's new group, which has had no call yet, or null. It joins on the GPU of `group`.
  virtual Status split(const Communicator& group, Communicator* child, double timeout_s) = 0;
  // Returns true if something here refers to that group; then this remains so until the end.
  virtual bool knows(const Communicator& group) = 0;
  // Waits until every call so far has ended and is no longer monitored. For measurements.
  virtual Status settle(double timeout_s) = 0;
  // Closes all groups that have joined, in the order in which they joined, which is the same on all
  // ranks.
  virtual Status close(double timeout_s) = 0;
  virtual void abort(const Status& why) = 0;
};

// The devices of one runtime: none until the first call with arrays on a GPU, and none after its
// end. Thread-safety: all methods.
class LazyDevices {
 public:
  using Make = std::function<Result<std::shared_ptr<Devices>>()>;
  explicit LazyDevices(Make make) : make_(std::move(make)) {}  // null: there are never any

  bool can_make() const { return make_ != nullptr; }
  // Creates the devices in this thread, without a lock, so that `make` may run anything. If two
  // threads create them at once, both get the same devices. Returns kNotInitialized if the runtime
  // has ended.
  Result<std::shared_ptr<Devices>> get();
  std::shared_ptr<Devices> made() const;  // null: there are none
  // Returns true if the devices may still refer to that group: they know it, or all of them are
  // about to end.
  bool keep(const Communicator& group) const;
  Status run(Communicator& group, UserCall call, double timeout_s);
  Result<std::shared_ptr<AsyncWork>> begin(Communicator& group, UserCall call, AsyncOptions how);
  // Both end the devices: no more are created, and existing ones are destroyed when the last call
  // releases them.
  Status close(double timeout_s);
  void abort(const Status& why);

 private:
  std::shared_ptr<Devices> end();
  void let_go();

  const Make make_;
  mutable std::mutex mutex_;  // guards the members below
  std::shared_ptr<Devices> devices_;
  bool ended_ = false;
};

}  // namespace pc
