#include "gpu/cuda/graph.h"

#include <array>
#include <string_view>

namespace pc::cuda {
namespace {

// Returns an error if a function for graphs is missing. Older drivers, and test doubles, may have
// only some of the functions.
Status has_graphs(const Driver& driver) {
  struct Needed {
    bool there;
    std::string_view name;
  };
  const std::array all = {
      Needed{driver.cuStreamBeginCapture != nullptr, "cuStreamBeginCapture"},
      Needed{driver.cuStreamEndCapture != nullptr, "cuStreamEndCapture"},
      Needed{driver.cuGraphInstantiateWithFlags != nullptr, "cuGraphInstantiateWithFlags"},
      Needed{driver.cuGraphLaunch != nullptr, "cuGraphLaunch"},
      Needed{driver.cuGraphExecDestroy != nullptr, "cuGraphExecDestroy"},
      Needed{driver.cuGraphDestroy != nullptr, "cuGraphDestroy"},
  };
  for (const Needed& each : all) {
    if (!each.there) return lacks_function(driver, each.name);
  }
  return Status::ok();
}

}  // namespace

Result<Graph> Graph::capture(const Context& context, CUstream stream, const std::function<Status()>& queue) {
  const Driver& driver = context.driver();
  PC_TRY(has_graphs(driver));
  // Thread-local, because a capture must not forbid other threads to allocate memory (NCCL) or to
  // query events (this library).
  PC_TRY(driver.check(driver.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                      "cuStreamBeginCapture"));
  const Status queued = queue();
  CUgraph captured = nullptr;
  const Status ended = driver.check(driver.cuStreamEndCapture(stream, &captured), "cuStreamEndCapture");
  CUgraphExec made = nullptr;
  Status status = queued.is_ok() ? ended : queued;
  if (status.is_ok())
    status = driver.check(driver.cuGraphInstantiateWithFlags(&made, captured, 0), "cuGraphInstantiate");
  if (captured != nullptr) (void)driver.cuGraphDestroy(captured);
  if (!status.is_ok()) return status;
  return Graph(context, made);
}

Graph::~Graph() {
  if (graph_ == nullptr || !context_.driver().is_usable()) return;
  const Result<ContextGuard> current = context_.enter();
  if (current.is_ok()) (void)context_.driver().cuGraphExecDestroy(graph_);
}

Status Graph::launch(CUstream stream) const {
  return context_.driver().check(context_.driver().cuGraphLaunch(graph_, stream), "cuGraphLaunch");
}

}  // namespace pc::cuda
