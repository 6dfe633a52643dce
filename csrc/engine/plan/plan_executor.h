// Runs plans over a transport: binds chunks to memory, posts sends and receives, and reduces
// segments as they arrive.
#pragma once

#include <memory>

#include "engine/cpu_executor.h"
#include "transport/reactor.h"

namespace pc {

class PlanExecutor final : public CpuExecutor {
 public:
  PlanExecutor(Transport& transport, Reactor& reactor);  // neither is owned; both outlive this
  std::string_view name() const override { return "plan"; }
  Result<WorkPtr> launch(const Request& request, const Launch& launch) override;

 private:
  struct State;
  explicit PlanExecutor(const std::shared_ptr<State>& state);

  State& state_;
};

}  // namespace pc
