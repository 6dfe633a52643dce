#include "bindings/python/end_signal.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/clock.h"

namespace pc {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

constexpr std::size_t kMostHandlers = 8;

// The state that signal handlers may access. Each handler of the program gets a place (an index)
// when it is first found, and keeps it. note<place> therefore calls the right handler even if other
// code has saved note<place> and restores or calls it later.
struct Watched {
  // An entry is written before note<place> is installed for it.
  std::array<struct sigaction, kMostHandlers> handlers{};
  std::size_t count = 0;  // guarded by the GIL
};
std::array<Watched, kSignals.size()> watched{};
std::atomic<int64_t> came_ns{0}, sigint_came_ns{0};
std::atomic<int64_t> looked_ns{0};

template <std::size_t Place>
void note(int signal, siginfo_t* info, void* context) {
  const int before = errno;
  came_ns.store(now_ns(), std::memory_order_relaxed);
  if (signal == SIGINT) sigint_came_ns.store(now_ns(), std::memory_order_relaxed);
  std::size_t i = 0;
  while (kSignals[i] != signal) ++i;  // note() is installed for no other signal
  const struct sigaction& next = watched[i].handlers[Place];
  if ((next.sa_flags & SA_SIGINFO) != 0) {
    next.sa_sigaction(signal, info, context);
  } else {
    next.sa_handler(signal);
  }
  errno = before;
}

using Note = void (*)(int, siginfo_t*, void*);
template <std::size_t... Places>
constexpr std::array<Note, kMostHandlers> notes_of(std::index_sequence<Places...> /*all*/) {
  return {note<Places>...};
}
constexpr std::array<Note, kMostHandlers> kNotes = notes_of(std::make_index_sequence<kMostHandlers>());

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 &&
         std::find(kNotes.begin(), kNotes.end(), action.sa_sigaction) != kNotes.end();
}

bool is_same(const struct sigaction& one, const struct sigaction& other) {
  if (((one.sa_flags ^ other.sa_flags) & SA_SIGINFO) != 0) return false;
  return (one.sa_flags & SA_SIGINFO) != 0 ? one.sa_sigaction == other.sa_sigaction
                                          : one.sa_handler == other.sa_handler;
}

// Returns the place of the handler `action`, which is added if it was not found before. Returns
// kMostHandlers if no place is left.
std::size_t place_of(const struct sigaction& action, Watched& all) {
  std::size_t place = 0;
  while (place < all.count && !is_same(all.handlers[place], action)) ++place;
  if (place == all.count && place < kMostHandlers) all.handlers[all.count++] = action;
  return place;
}

}  // namespace

void watch_end_signals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction now {};
    if (::sigaction(kSignals[i], nullptr, &now) != 0) continue;
    const bool has_info = (now.sa_flags & SA_SIGINFO) != 0;
    if (is_ours(now) || (!has_info && (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN))) continue;
    const std::size_t place = place_of(now, watched[i]);
    // The program has set too many different handlers: this one is not watched.
    if (place == kMostHandlers) continue;
    struct sigaction ours = now;
    ours.sa_sigaction = kNotes[place];
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
