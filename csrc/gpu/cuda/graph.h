// A CUDA graph of what was queued on a stream while it was captured. It can be launched any number
// of times.
#pragma once

#include <functional>
#include <utility>

#include "gpu/cuda/context.h"
#include "gpu/cuda/driver.h"

namespace pc::cuda {

// Thread-safety: one owner. The destructor calls the driver, so the graph must be destroyed before
// the process ends and must not be static. Launched graphs continue without it.
class Graph {
 public:
  // Captures what `queue` queues on `stream` in this thread. The stream's context must be current.
  // Returns kUnsupported if the driver does not support graphs, or if something was queued that
  // cannot be part of a graph.
  static Result<Graph> capture(const Context& context, CUstream stream, const std::function<Status()>& queue);
  Graph(Graph&& other) noexcept
      : context_(std::move(other.context_)),
        graph_(std::exchange(other.graph_, nullptr)) {}
  Graph& operator=(Graph&&) = delete;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();

  Status launch(CUstream stream) const;

 private:
  Graph(Context context, CUgraphExec graph) : context_(std::move(context)), graph_(graph) {}
  Context context_;
  CUgraphExec graph_;
};

}  // namespace pc::cuda
