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

constexpr std::size_t kMostHandlers = 8;

// What the handler may touch.
struct Watched {
  // Of the program, in the order in which they were found. One is written before its number is.
  std::array<struct sigaction, kMostHandlers> handlers{};
  std::atomic<std::size_t> count{0};
  std::atomic<std::size_t> running{0};  // how many of them call one another now
};
std::array<Watched, kSignals.size()> watched{};
std::atomic<int64_t> came_ns{0}, sigint_came_ns{0};
std::atomic<int64_t> looked_ns{0};

void note(int signal, siginfo_t* info, void* context) {
  const int before = errno;
  came_ns.store(now_ns(), std::memory_order_relaxed);
  if (signal == SIGINT) sigint_came_ns.store(now_ns(), std::memory_order_relaxed);
  std::size_t i = 0;
  while (kSignals[i] != signal) ++i;  // it is there for no other
  Watched& all = watched[i];
  const std::size_t count = all.count.load();
  // The program's newest handler may call the one that stood there before it, which is this function.
  if (const std::size_t depth = all.running.fetch_add(1); depth < count) {
    const struct sigaction& next = all.handlers[count - 1 - depth];
    if ((next.sa_flags & SA_SIGINFO) != 0) {
      next.sa_sigaction(signal, info, context);
    } else {
      next.sa_handler(signal);
    }
  }
  all.running.fetch_sub(1);
  errno = before;
}

bool is_same(const struct sigaction& one, const struct sigaction& other) {
  if (one.sa_flags != other.sa_flags) return false;
  return (one.sa_flags & SA_SIGINFO) != 0 ? one.sa_sigaction == other.sa_sigaction
                                          : one.sa_handler == other.sa_handler;
}

}  // namespace

void watch_end_signals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction now {};
    if (::sigaction(kSignals[i], nullptr, &now) != 0) continue;
    const bool has_info = (now.sa_flags & SA_SIGINFO) != 0;
    if (has_info && now.sa_sigaction == note) continue;
    if (!has_info && (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)) continue;
    Watched& all = watched[i];
    const std::size_t count = all.count.load();
    if (count == 0 || !is_same(all.handlers[count - 1], now)) {
      if (count == kMostHandlers) continue;  // the program changes them all the time: this one runs alone
      all.handlers[count] = now;
      all.count.store(count + 1);
    }
    struct sigaction ours = now;
    ours.sa_sigaction = note;
    ours.sa_flags |= SA_SIGINFO;
    (void)::sigaction(kSignals[i], &ours, nullptr);
  }
}

void watch_end_signals_again() {
  constexpr int64_t kPauseNs = 100'000'000;
  const int64_t at = now_ns();
  if (at - looked_ns.load(std::memory_order_relaxed) < kPauseNs) return;
  looked_ns.store(at, std::memory_order_relaxed);
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
