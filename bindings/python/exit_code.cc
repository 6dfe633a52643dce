#include "bindings/python/exit_code.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace pc {
namespace {

// Python calls exit() at its end. exit() runs this function first, before it has flushed stdio.
void exit_with_failure(int status) {
  (void)std::fflush(nullptr);
  ::_exit(status != 0 ? status : 1);
}

}  // namespace

void fail_at_exit() {
  static std::atomic<bool> is_registered{false};
  if (is_registered.exchange(true)) return;
#ifdef __GLIBC__
  (void)::on_exit([](int status, void*) { exit_with_failure(status); }, nullptr);
#else  // other C libraries have no exit function that receives the status
  (void)std::atexit([] { exit_with_failure(0); });
#endif
}

}  // namespace pc
