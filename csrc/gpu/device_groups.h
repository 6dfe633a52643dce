// Runs the calls with arrays on GPUs for all groups of one runtime. The first such call opens the
// driver and NCCL, and the first such call of each group joins its ranks. So programs without such
// calls pay nothing.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/io_vec.h"
#include "comm/devices.h"
#include "comm/runtime.h"
#include "gpu/cuda/driver.h"
#include "gpu/direct_messages.h"
#include "gpu/fifo_lock.h"
#include "gpu/group_on_gpus.h"
#include "gpu/nccl/clock.h"
#include "gpu/nccl/search.h"
#include "gpu/p2p_channel.h"

namespace pc {

// Thread-safety: all methods.
class DeviceGroups final : public Devices {
 public:
  struct Options {
    cuda::DriverSearch driver;
    nccl::SearchEnvironment nccl;
    std::string host_id = {};  // see DeviceCalls::Resources
    Logger log = Logger();
    bool strict = false;                                                   // see DeviceCalls::Resources
    IpcResources peers = {};                                               // see DeviceCalls::Resources
    std::shared_ptr<Abandoned> abandoned = std::make_shared<Abandoned>();  // see DeviceCalls::Resources
    DeviceCalls::Interrupted interrupted = {};
    // See DeviceCalls::Resources. The pool's memory is never freed, so one pool should serve the
    // whole process. If it is null, streams do not wait.
    std::shared_ptr<cuda::SemaphorePool> semaphores = {};
    // Reads the options from the environment. `of_process` becomes `semaphores` if the environment
    // requests that streams wait.
    static Result<Options> from_environment(std::vector<std::string> wheel_folders,
                                            std::shared_ptr<cuda::SemaphorePool> of_process);
  };
  // All groups passed to the methods belong to `runtime`.
  DeviceGroups(Runtime& runtime, Options options);
  DeviceGroups(const DeviceGroups&) = delete;
  DeviceGroups& operator=(const DeviceGroups&) = delete;

  Status run(Communicator& group, UserCall call, double timeout_s) override;
  Result<std::shared_ptr<AsyncWork>> begin(Communicator& group, UserCall call, AsyncOptions how) override;
  // Returns the backend of `group`. The first call joins the ranks, by NCCL if possible, so all
  // members must make it like a collective. `stream` is the stream of the user's call. Ranks cannot
  // join while this stream is being captured into a CUDA graph; then it returns kInvalidArgument.
  // If `insists` is true, it returns an error unless the ranks have joined by NCCL.
  Result<std::shared_ptr<GroupOnGpus>> of(Communicator& group, int device, void* stream, double timeout_s,
                                          bool insists = false);
  // Returns the object that transfers messages of `group`. The ranks of the group need not join:
  // the two ranks of a message join at their first message.
  Result<std::shared_ptr<DirectMessages>> messages_of(Communicator& group, int device);
  Status join(Communicator& group, int device, void* stream, double timeout_s, bool insists) override {
    return of(group, device, stream, timeout_s, insists).status();
  }
  Route route_of(const Communicator& group, const UserCall& call) override;
  std::string explain(const Communicator& group, std::optional<Collective> collective) override;
  bool can_split(const Communicator& group) override;
  Status split(const Communicator& group, Communicator* child, double timeout_s) override;
  bool knows(const Communicator& group) override;
  Status settle(double timeout_s) override;
  Status close(double timeout_s) override;
  void abort(const Status& why) override;

 private:
  struct Group {
    FifoLock joining{"joins on its GPUs"};  // guards the members below; held while the ranks join
    std::shared_ptr<GroupOnGpus> backend;
  };
  Result<std::shared_ptr<const cuda::Driver>> driver();
  std::shared_ptr<GroupOnGpus> joined(const Communicator& group);
  template <class Outcome, class Make>
  Outcome by_backend(Communicator& group, UserCall& call, double timeout_s, Make&& make);
  // Returns the GPU of an array, for libraries that do not report it. Returns kInvalidArgument if
  // the array is on no GPU.
  Result<int> device_of(const void* array);
  Result<int> device_of(const ConstBuffer& buffer);
  Result<int> current_device();  // returns the GPU of this thread's current context, or GPU 0
  // sets the GPU of each array that has none, and returns the call's GPU
  Result<int> place(Request& request);
  // Returns `list` cut into pieces that are each within one allocation, since the driver copies
  // nothing across allocations. Returns null if no piece has to be cut.
  Result<std::unique_ptr<const IoVec>> within_allocations(const IoVec& list);
  // If a list of the request has a piece that crosses allocations, replaces the list in the request
  // by within_allocations() of it, and returns the new list, which must outlive the request.
  // Otherwise returns null.
  Result<std::unique_ptr<const IoVec>> cut_at_allocations(UserCall& call);
  DeviceCalls::Resources resources(int device);
  Status may_join(int device, void* stream);
  Result<std::shared_ptr<GroupOnGpus>> make_backend(Communicator& group, int device, void* stream,
                                                    Deadline deadline, bool insists);
  Result<std::shared_ptr<GroupOnGpus>> join_channel(Communicator& channel, int device, void* stream,
                                                    double timeout_s);
  std::vector<std::shared_ptr<GroupOnGpus>> in_common_order();
  std::string explain_messages(const Communicator& group);
  std::vector<std::shared_ptr<DirectMessages>> messages();

  Runtime& runtime_;
  Options options_;  // not changed after construction
  nccl::SteadyClock clock_;

  std::mutex mutex_;  // guards the members below, except p2p_channels_
  std::shared_ptr<const cuda::Driver> driver_;
  std::shared_ptr<const nccl::Api> api_;
  std::map<const Communicator*, std::shared_ptr<Group>> groups_;
  std::vector<std::shared_ptr<GroupOnGpus>> joined_;
  std::set<const Communicator*> channels_;  // groups of channels; their ranks may not have joined yet
  Status ended_;
  P2pChannels p2p_channels_;  // thread-safe without mutex_
  // by group and GPU
  std::map<std::pair<const Communicator*, int>, std::shared_ptr<DirectMessages>> messages_;
};

}  // namespace pc
