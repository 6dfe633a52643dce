// Keeps a runtime alive while its memory is in use, also after shutdown().
#pragma once

#include <unistd.h>

#include <memory>
#include <utility>

#include "bindings/state/without_gil.h"
#include "comm/runtime.h"
#include "shm/heap.h"

namespace pc {

// A forked child has none of the runtime's threads, and one of them may have held a lock of the
// heap at the fork. A child therefore never destroys the runtime. Thread-safety: created and
// destroyed with the GIL.
class KeptRuntime {
 public:
  // `runtime` must have a heap.
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
  shm::Heap& heap() const { return *(*runtime_)->heap(); }  // must not be called in a child

 private:
  // Allocated separately, so that a child can leak it without an allocation.
  std::unique_ptr<std::shared_ptr<Runtime>> runtime_;
  const pid_t made_in_ = ::getpid();
};

}  // namespace pc
