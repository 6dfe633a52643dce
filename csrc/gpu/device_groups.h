// The calls of arrays on GPUs of one runtime's groups. Driver and NCCL are opened, and the ranks of a group joined, in the first
// such call of each: whoever has none pays nothing.
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
    std::string host_id = {};  // DeviceCalls::Resources
    Logger log = Logger();
    bool strict = false;                                                   // DeviceCalls::Resources
    IpcResources peers = {};                                               // DeviceCalls::Resources
    std::shared_ptr<Abandoned> abandoned = std::make_shared<Abandoned>();  // DeviceCalls::Resources
    DeviceCalls::Interrupted interrupted = {};
    // DeviceCalls::Resources; null: streams do not wait. Its memory is never given back, so that one for the
    // whole process is best.
    std::shared_ptr<cuda::SemaphorePool> semaphores = {};
    // What the environment says of them. `of_process` becomes `semaphores` if streams are to wait.
    static Result<Options> from_environment(std::vector<std::string> wheel_folders,
                                            std::shared_ptr<cuda::SemaphorePool> of_process);
  };
  // The runtime of the groups.
  DeviceGroups(Runtime& runtime, Options options);
  DeviceGroups(const DeviceGroups&) = delete;
  DeviceGroups& operator=(const DeviceGroups&) = delete;

  Status run(Communicator& group, UserCall call, double timeout_s) override;
  Result<std::shared_ptr<AsyncWork>> begin(Communicator& group, UserCall call, AsyncOptions how) override;
  // How those of `group` go. The first call of all its members joins them by NCCL, as a collective does, where they may. `stream`:
  // the call's. While it is captured into a CUDA graph no ranks can be joined: kInvalidArgument.
  Result<std::shared_ptr<GroupOnGpus>> of(Communicator& group, int device, void* stream, double timeout_s,
                                          bool insists = false);
  // The messages of `group`. They join nobody but the two ranks of a message, when there is one.
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
    FifoLock joining{"joins on its GPUs"};  // guards what follows; held while the ranks join
    std::shared_ptr<GroupOnGpus> backend;
  };
  Result<std::shared_ptr<const cuda::Driver>> driver();
  std::shared_ptr<GroupOnGpus> joined(const Communicator& group);
  template <class Outcome, class Make>
  Outcome by_backend(Communicator& group, UserCall& call, double timeout_s, Make&& make);
  // On which GPU an array lies whose library does not say. kInvalidArgument: on none.
  Result<int> device_of(const void* array);
  Result<int> device_of(const ConstBuffer& buffer);
  Result<int> current_device();         // the GPU that this thread uses, or the first
  Result<int> place(Request& request);  // says of each array, and returns, on which GPU it lies
  // The same bytes in pieces that lie in one allocation each, since the driver copies nothing from one allocation into the next.
  // Null: the pieces of `list` do already.
  Result<std::unique_ptr<const IoVec>> within_allocations(const IoVec& list);
  // The request gets what it has of a list in such pieces, which have to outlive it.
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
  Options options_;  // not changed
  nccl::SteadyClock clock_;

  std::mutex mutex_;  // guards what follows
  std::shared_ptr<const cuda::Driver> driver_;
  std::shared_ptr<const nccl::Api> api_;
  std::map<const Communicator*, std::shared_ptr<Group>> groups_;
  std::vector<std::shared_ptr<GroupOnGpus>> joined_;
  std::set<const Communicator*> channels_;  // of them, or yet to join
  Status ended_;
  P2pChannels p2p_channels_;                                                                 // not guarded
  std::map<std::pair<const Communicator*, int>, std::shared_ptr<DirectMessages>> messages_;  // by GPU
};

}  // namespace pc
