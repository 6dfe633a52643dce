// A world of ranks that send messages between arrays on their GPUs. FAKES of the driver and NCCL.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device_world.h"
#include "fake_kernels.h"
#include "gpu/device_groups.h"
#include "gpu/direct_messages.h"

namespace pc::testing {

inline constexpr std::size_t kLarge = 40'000;  // in floats: more than 64 KiB
inline constexpr double kSoon = 0.2;
using Kind = UserCall::Kind;
using Started = std::shared_ptr<GpuWork>;

class MessageWorld : public DeviceWorld {
 protected:
  // Its runtimes have devices: rank r uses GPU r.
  Outcomes run(Rank size, const Body& body, bool shut_down = true, Check check = Check::kOn) {
    return run_world({.over = GetParam(),
                      .size = size,
                      .timeout_s = kLong,
                      .check = check,
                      .shut_down = shut_down,
                      .log_fd = -1,
                      .joins_gpus = true,
                      .make_devices = [this](Runtime& runtime) -> Result<std::shared_ptr<Devices>> {
                        return std::shared_ptr<Devices>(gpus(runtime, runtime.world().rank()));
                      }},
                     body);
  }
  // This rank's calls on its GPU. When they are released the GPU is drained, so that nothing is
  // leaked.
  std::shared_ptr<DeviceGroups> gpus(Runtime& runtime, int device) {
    DeviceGroups::Options options;
    options.driver.path = FAKE_CUDA;
    options.nccl = nccl::testing::named(has_nccl_ ? FAKE_NCCL_22809 : "/nowhere/libnccl.so.2");
    options.log = Logger(LogLevel::kError, -1, -1);
    options.peers.kernels = fake_kernels(fake_);
    auto made = std::make_unique<DeviceGroups>(runtime, options);
    DeviceGroups* const gpus = made.get();
    return std::shared_ptr<DeviceGroups>(gpus, [this, device, kept = std::move(made)](DeviceGroups*) mutable {
      kept->abort(Status(Code::kAborted, "the test is over"));
      fake_.drain_device(device);
      kept.reset();
    });
  }
  struct Rig {  // of one rank
    std::shared_ptr<DeviceGroups> gpus;
    std::shared_ptr<DirectMessages> messages;
    Communicator& group;
    Status run(const UserCall& call, double timeout_s = -1) const { return messages->run(call, timeout_s); }
    Result<Started> begin(const UserCall& call, double timeout_s = -1) const {
      return messages->begin(call, timeout_s);
    }
    Status close() const { return gpus->close(kLong); }
  };
  Result<Rig> rig(Runtime& runtime, Communicator& group, std::optional<int> device = std::nullopt) {
    Rig made{gpus(runtime, device.value_or(group.rank())), nullptr, group};
    PC_ASSIGN_OR_RETURN(made.messages, made.gpus->messages_of(group, device.value_or(group.rank())));
    return made;
  }
  static UserCall message(const Array& x, Kind kind, Rank peer, uint32_t tag = 0) {
    UserCall made;
    made.request = x.sum().request;
    made.kind = kind;
    made.request.root = peer;
    made.tag = tag;
    if (kind == Kind::kSend) made.request.out = {};
    if (kind == Kind::kRecv) made.request.in = {};
    return made;
  }
  Result<Array> filled(int device, float value, std::size_t count = kLarge) {
    PC_ASSIGN_OR_RETURN(Array made, array_of(device, std::max(count, std::size_t{1})));
    made.count = count;
    std::fill(made.begin(), made.begin() + count, value);
    return made;
  }
  bool has_nccl_ = true;
  static Status expect_code(const Status& status, Code code, const std::string& words) {
    return status.code() == code && has(status, words) ? Status::ok()
                                                       : wrong("it says: " + status.to_string());
  }
};

}  // namespace pc::testing
