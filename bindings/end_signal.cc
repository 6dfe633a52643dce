#include "end_signal.h"

#include <signal.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/clock.h"

namespace pc {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

// What the handler may touch.
std::array<struct sigaction, kSignals.size()> program{};  // set before the handler is
std::array<std::atomic<bool>, kSignals.size()> running{};
std::atomic<int64_t> came_ns{0}, sigint_came_ns{0};
std::atomic<int64_t> watched_ns{0};  // when the handlers were last looked at by watch_end_signals_again()

void note(int signal, siginfo_t* info, void* context) {
  const int before = errno;
  came_ns.store(now_ns(), std::memory_order_relaxed);
  if (signal == SIGINT) sigint_came_ns.store(now_ns(), std::memory_order_relaxed);
  std::size_t i = 0;
  while (kSignals[i] != signal) ++i;  // it is there for no other
  const struct sigaction& next = program[i];
  if (!running[i].exchange(true)) {  // else the program's handler calls this one, which stood there before it
    if ((next.sa_flags & SA_SIGINFO) != 0) {
      next.sa_sigaction(signal, info, context);
    } else {
      next.sa_handler(signal);
    }
    running[i].store(false);
  }
  errno = before;
}

}  // namespace

void watch_end_signals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction now {};
    if (::sigaction(kSignals[i], nullptr, &now) != 0) continue;
    const bool has_info = (now.sa_flags & SA_SIGINFO) != 0;
    if (has_info && now.sa_sigaction == note) continue;
    if (!has_info && (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)) continue;
    program[i] = now;
    struct sigaction ours = now;
    ours.sa_sigaction = note;
    ours.sa_flags |= SA_SIGINFO;
    (void)::sigaction(kSignals[i], &ours, nullptr);
  }
}

void watch_end_signals_again() {
  constexpr int64_t kPauseNs = 100'000'000;
  const int64_t at = now_ns();
  if (at - watched_ns.load(std::memory_order_relaxed) < kPauseNs) return;
  watched_ns.store(at, std::memory_order_relaxed);
  watch_end_signals();
}

void note_end_signal() { came_ns.store(now_ns(), std::memory_order_relaxed); }

int64_t interrupt_came_ns() { return sigint_came_ns.load(std::memory_order_relaxed); }

std::optional<double> seconds_since_end_signal() {
  const int64_t came = came_ns.load(std::memory_order_relaxed);
  if (came == 0) return std::nullopt;
  return static_cast<double>(now_ns() - came) / 1e9;
}

}  // namespace pc
