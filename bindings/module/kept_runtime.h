// A runtime whose memory somebody uses, also beyond shutdown().
#pragma once

#include <unistd.h>

#include <memory>
#include <utility>

#include "bindings/state/without_gil.h"
#include "comm/runtime.h"
#include "shm/heap.h"

namespace pc {

// A forked child has none of its threads, and somebody may have held a lock of its heap: there it is left where it is.
// Thread-safety: created and destroyed with the GIL.
class KeptRuntime {
 public:
  // `runtime` has a heap.
  explicit KeptRuntime(std::shared_ptr<Runtime> runtime)
      : runtime_(std::make_unique<std::shared_ptr<Runtime>>(std::move(runtime))) {}
  KeptRuntime(const KeptRuntime&) = delete;
  KeptRuntime& operator=(const KeptRuntime&) = delete;
  ~KeptRuntime() {
    if (in_child())
      static_cast<void>(runtime_.release());
    else
      let_go(std::move(*runtime_));
  }

  bool in_child() const { return ::getpid() != made_in_; }
  shm::Heap& heap() const { return *(*runtime_)->heap(); }  // not in a child

 private:
  std::unique_ptr<std::shared_ptr<Runtime>> runtime_;  // can be left without taking memory
  const pid_t made_in_ = ::getpid();
};

}  // namespace pc
