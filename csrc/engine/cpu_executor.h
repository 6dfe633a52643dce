// Common base of the executors for arrays in host memory. The calls of a group run one after the
// other.
#pragma once

#include <memory>

#include "engine/executor.h"
#include "engine/open_groups.h"

namespace pc {

class CpuExecutor : public Executor {
 public:
  ~CpuExecutor() override;
  CpuExecutor(const CpuExecutor&) = delete;
  CpuExecutor& operator=(const CpuExecutor&) = delete;
  bool supports(const Request& request, Rank size) const final;
  void cancel(uint32_t group, uint64_t sequence, const Status& why) final;
  void peer_left(Rank world) final;
  void abort(uint32_t group, const Status& why) final;
  void close(uint32_t group) final;
  void abort(const Status& why) noexcept final;

 protected:
  explicit CpuExecutor(std::shared_ptr<OpenGroups> groups) : groups_(std::move(groups)) {}

  // shared with the Work that was launched, which may outlive the executor
  const std::shared_ptr<OpenGroups> groups_;
};

}  // namespace pc
