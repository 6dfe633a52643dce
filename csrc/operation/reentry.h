// Refuses calls into a group from inside its own waits. The interrupt probe of a wait runs the user's signal handlers in
// the waiting thread, and a handler may call anything. A collective or a message from there would wait for the call below
// it, which cannot go on before the handler has returned.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/executor.h"

namespace pc {

// Thread-safety: all methods.
class Reentry {
 public:
  // OK unless this thread is inside a probe; else kInvalidArgument that names the operation which waits.
  Status check() const {
    return probes_.load(std::memory_order_relaxed) == 0 ? Status::ok()
                                                        : refuse();  // our own store is always seen
  }

  // Work::wait() that knows when the probe runs. `text()` says what it is.
  template <class Text>
  Status wait(Work& work, const WaitContext& context, const Text& text) {
    return with_probe(context, text, [&](const WaitContext& told) { return work.wait(told); });
  }
  // Work::drive(), likewise.
  template <class Text>
  WaitEnd drive(Work& work, const WaitContext& context, const Text& text) {
    return with_probe(context, text, [&](const WaitContext& told) { return work.drive(told); });
  }

 private:
  template <class Text, class Wait>
  auto with_probe(WaitContext context, const Text& text, Wait&& wait) {
    if (context.interrupted == nullptr || !*context.interrupted) return wait(context);
    const auto probe = [this, asked = context.interrupted, &text] {
      const Inside inside(*this, text());
      return (*asked)();
    };
    const std::function<bool()> by_reference = std::cref(probe);  // a function of this size allocates nothing
    context.interrupted = &by_reference;
    return wait(context);
  }

  struct Entry {
    std::thread::id thread;
    std::string operation;
  };
  class Inside {
   public:
    Inside(Reentry& reentry, std::string operation);
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    Reentry& reentry_;
  };
  Status refuse() const;

  std::atomic<uint32_t> probes_{0};  // size of inside_, readable without its lock
  mutable std::mutex mutex_;         // guards inside_
  std::vector<Entry> inside_;
};

}  // namespace pc
