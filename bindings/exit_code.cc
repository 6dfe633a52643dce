#include "exit_code.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace pc {

// Python calls exit() at its end, which runs this handler first and has not written what stdio holds.
void fail_at_exit() {
  static std::atomic<bool> is_registered{false};
  if (is_registered.exchange(true)) return;
  (void)std::atexit([] {
    (void)std::fflush(nullptr);
    ::_exit(1);
  });
}

}  // namespace pc
