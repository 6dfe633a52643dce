// Copies into memory that another core reads.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "kernels/copy.h"
#include "shm/store_choice.h"

namespace pc {

// Thread-safety: none; used only by the writing rank.
class SharedCopy {
 public:
  SharedCopy() = default;
  explicit SharedCopy(const StoreChoice& choice) : choice_(choice) {}
  void operator()(std::byte* to, const std::byte* from, std::size_t nbytes) {
    (*this)(to, from, nbytes, nbytes, [](std::size_t) {});
  }
  // Calls `say` with the number of bytes copied so far, after every `step` bytes or more.
  template <class Say>
  void operator()(std::byte* to, const std::byte* from, std::size_t nbytes, std::size_t step, Say&& say) {
    using Clock = std::chrono::steady_clock;
    for (std::size_t done = 0; done < nbytes;) {
      const StoreChoice::Next next = choice_.next(nbytes - done);
      const Clock::time_point began = next.is_timed ? Clock::now() : Clock::time_point();
      // Each copy past the caches ends with a wait until its stores are visible, so such a piece is
      // stored in one step.
      const std::size_t most = next.stores == Stores::kPastCaches ? next.nbytes : step;
      for (const std::size_t end = done + next.nbytes; done < end;) {
        const std::size_t some = std::min(most, end - done);
        store(next.stores, to + done, from + done, some);
        say(done += some);
      }
      if (next.is_timed) choice_.took(next.stores, next.nbytes, Clock::now() - began);
    }
  }
  // Returns the kind of stores that is fastest at present.
  Stores stores() const { return choice_.usual(); }

 private:
  static void store(Stores stores, std::byte* to, const std::byte* from, std::size_t nbytes) {
    switch (stores) {
      case Stores::kVector: return copy(to, from, nbytes);
      case Stores::kPastCaches: return copy_past_caches(to, from, nbytes);
      case Stores::kString: break;
    }
    std::memcpy(to, from, nbytes);
  }

  StoreChoice choice_;
};

}  // namespace pc
