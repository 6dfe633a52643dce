// A CUDA graph of what was queued on a stream while it was captured, to be run as often as one likes.
#pragma once

#include <functional>
#include <utility>

#include "gpu/cuda/context.h"
#include "gpu/cuda/driver.h"

namespace pc::cuda {

// Thread-safety: one owner. The destructor calls the driver, so it must go before the process ends: no static. What was launched
// goes on without it.
class Graph {
 public:
  // Of what `queue` puts on `stream` in this thread. The stream's context must be current. kUnsupported: the driver has no graphs,
  // or something was queued that cannot go into one.
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
