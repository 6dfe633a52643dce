#include "base/start_thread.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

namespace pc {

Status start_thread(std::thread& thread, const char* name, std::string_view what, std::function<void()> run) {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // a new thread inherits its creator's mask
  Status started;
  try {
    thread = std::thread(std::move(run));
    ::pthread_setname_np(thread.native_handle(), name);
  } catch (const std::system_error& error) {
    started = system_error(what, error.code().value());
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

}  // namespace pc
