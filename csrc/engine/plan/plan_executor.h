// Runs plans over channels: binds chunks to memory, posts sends and receives, reduces segments as they arrive.
#pragma once

#include <memory>

#include "engine/executor.h"
#include "transport/reactor.h"

namespace pc {

class PlanExecutor final : public Executor {
 public:
  PlanExecutor(Transport& transport, Reactor& reactor);  // neither is owned; both outlive this
  ~PlanExecutor() override;
  PlanExecutor(const PlanExecutor&) = delete;
  PlanExecutor& operator=(const PlanExecutor&) = delete;
  std::string_view name() const override;
  bool supports(const Request& request, Rank size) const override;
  Result<std::unique_ptr<Work>> launch(const Request& request, const Launch& launch) override;
  void cancel(uint32_t group, uint64_t sequence, const Status& why) override;
  void abort(uint32_t group, const Status& why) override;
  void close(uint32_t group) override;
  void abort(const Status& why) noexcept override;

 private:
  struct State;  // shared with the Work it launched, which may outlive it
  std::shared_ptr<State> state_;
};

}  // namespace pc
