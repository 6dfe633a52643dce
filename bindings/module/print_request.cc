#include "bindings/module/print_request.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace pc {
namespace {

// The state that the handler may access. A forked child shares the descriptor with its parent, so
// the handler compares `owner` with the process's pid before it writes.
std::atomic<int> current{-1};
std::atomic<pid_t> owner{0};

void handle(int) {
  const int before = errno;
  const int event = current.load(std::memory_order_relaxed);
  if (event >= 0 && ::getpid() == owner.load(std::memory_order_relaxed)) ::eventfd_write(event, 1);
  errno = before;
}

bool set_handler(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  return ::sigaction(SIGUSR2, &action, nullptr) == 0;
}

}  // namespace

std::unique_ptr<PrintRequest> PrintRequest::install() {
  struct sigaction now {};
  if (::sigaction(SIGUSR2, nullptr, &now) != 0) return nullptr;
  const bool inherited = now.sa_handler == handle && owner.load() != ::getpid();  // installed before a fork
  if (now.sa_handler != SIG_DFL && !inherited) return nullptr;
  const int event = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event < 0) return nullptr;
  current.store(event);
  owner.store(::getpid());
  if (set_handler(handle)) return std::unique_ptr<PrintRequest>(new PrintRequest(event));
  current.store(-1);
  ::close(event);
  return nullptr;
}

PrintRequest::~PrintRequest() {
  struct sigaction now {};
  if (::sigaction(SIGUSR2, nullptr, &now) == 0 && now.sa_handler == handle) (void)set_handler(SIG_DFL);
  current.store(-1);
  ::close(event_);
}

}  // namespace pc
