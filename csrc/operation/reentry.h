// Refuses calls into a group from inside its own waits. The interrupt probe of a wait runs the
// user's signal handlers in the waiting thread, and a handler may call anything. A collective or
// message of the handler would wait for the interrupted call, which cannot continue before the
// handler has returned.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/waiter.h"

namespace pc {

// Thread-safety: all methods.
class Reentry {
 public:
  // Returns kInvalidArgument, with the name of the waiting operation, if this thread is inside a
  // probe. Otherwise returns OK.
  Status check() const {
    // relaxed, because only this thread's own store matters
    return probes_.load(std::memory_order_relaxed) == 0 ? Status::ok() : refuse();
  }

  // The scope of a wait of this group. `text()` describes what waits.
  template <class Text>
  class Scope final : public ProbeScope {
   public:
    Scope(Reentry& reentry, WaitContext& context, const Text& text)
        : ProbeScope(context),
          reentry_(reentry),
          text_(text) {}
    void enter() override { reentry_.enter(text_()); }
    void leave() override { reentry_.leave(); }

   private:
    Reentry& reentry_;
    const Text& text_;
  };

 private:
  struct Entry {
    std::thread::id thread;
    std::string operation;
  };
  void enter(std::string operation);
  void leave();
  Status refuse() const;

  std::atomic<uint32_t> probes_{0};  // size of inside_, readable without its lock
  mutable std::mutex mutex_;         // guards inside_
  std::vector<Entry> inside_;
};

}  // namespace pc
