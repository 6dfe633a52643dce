// The interface through which the groups of a runtime make calls with arrays on GPUs. The
// implementation is in a higher layer. It is created for the first such call, so a runtime without
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
// every Work that it returns.
class Devices {
 public:
  virtual ~Devices() = default;  // the owner has called close() or abort()

  // Returns when the call is queued on the stream of its arrays, or, if it runs through the host
  // without a stream, when it has ended.
  virtual Status run(Communicator& group, UserCall call, double timeout_s) = 0;
  // `how.on_end` is called once, in another thread, when the call has ended; it must not block. It
  // is not called if begin() fails, nor for calls that are captured in a CUDA graph.
  virtual Result<std::shared_ptr<AsyncWork>> begin(Communicator& group, UserCall call, AsyncOptions how) = 0;
  // Connects the ranks of `group` through their GPUs, as the first call with arrays on GPUs would.
  // `device` is the CUDA driver's number of this rank's GPU. If `insists` is true, the ranks must
  // use NCCL: on a rank without NCCL, join() returns an error with the reason.
  virtual Status join(Communicator& group, int device, void* stream, double timeout_s, bool insists) = 0;
  // The path of a call, once the ranks have joined: "nccl", "peers" (from array to array) or
  // "staged" (through the host).
  struct Route {
    std::string_view backend = {};
    Status by_nccl = {};  // OK if NCCL executes this call, else the reason why not
  };
  virtual Route route_of(const Communicator& group, const UserCall& call) = 0;
  // Describes the routes of a collective, or those of messages if `collective` is empty.
  virtual std::string explain(const Communicator& group, std::optional<Collective> collective) = 0;
  static std::string not_known_yet() {
    return "not known yet: the ranks find out which way they can go in the group's first such call";
  }
  // Returns true if, as far as this rank knows, split() can create new groups from `group` without
  // a join. split() may be called only if this is true on all ranks.
  virtual bool can_split(const Communicator& group) = 0;
  // Connects the new groups into which `group` was split. All members of `group` call it, after
  // they have informed each other that can_split() is true. `child` is this rank's new group, which
  // has had no call yet, or null if this rank is in no new group. The new group uses the same GPU
  // as `group`.
  virtual Status split(const Communicator& group, Communicator* child, double timeout_s) = 0;
  // Returns true if this object refers to `group`. Once it does, it refers to `group` until the end
  // of the devices.
  virtual bool knows(const Communicator& group) = 0;
  // Waits until every call made so far has ended and is no longer polled. For measurements.
  virtual Status settle(double timeout_s) = 0;
  // Closes all joined groups in the order in which they joined. This order is the same on all
  // ranks.
  virtual Status close(double timeout_s) = 0;
  virtual void abort(const Status& why) = 0;
};

// The devices of one runtime. They are created by the first call with arrays on a GPU and destroyed
// at the end of the runtime. Thread-safety: all methods.
class LazyDevices {
 public:
  using Make = std::function<Result<std::shared_ptr<Devices>>()>;
  explicit LazyDevices(Make make) : make_(std::move(make)) {}  // null: no devices can be created

  bool can_make() const { return make_ != nullptr; }
  // Returns the devices, and creates them if necessary. No lock is held during `make`, so `make`
  // may call any code. If two threads create devices at once, both get the same devices. Returns
  // kNotInitialized if the runtime has ended.
  Result<std::shared_ptr<Devices>> get();
  std::shared_ptr<Devices> made() const;  // null: not created yet, or ended
  // Returns true if `group` must be kept, because the devices refer to it or are about to end.
  bool keep(const Communicator& group) const;
  Status run(Communicator& group, UserCall call, double timeout_s);
  Result<std::shared_ptr<AsyncWork>> begin(Communicator& group, UserCall call, AsyncOptions how);
  // close() and abort() end the devices: no more are created, and existing ones are destroyed when
  // the last call releases them.
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
