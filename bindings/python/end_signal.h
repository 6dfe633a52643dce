// Records whether this process was requested to end: the time of the last SIGINT (Ctrl-C), SIGTERM,
// SIGHUP, SIGUSR1 or SIGUSR2, however the program handles them. Schedulers send the last two before
// they end a job.
#pragma once

#include <cstdint>
#include <optional>

namespace pc {

// From now on these signals are recorded before the program's current handlers run; the handlers
// stay in effect. Call this for each world, since the program may have set other handlers. A signal
// without a handler still ends the process or is ignored, as before.
void watch_end_signals();
// Does the same for handlers that the program has set since then. It may be called on frequently
// used paths, because it checks at most ten times a second. Call it with the GIL, so that no other
// Python thread changes the handlers meanwhile.
void watch_end_signals_again();

// Records that KeyboardInterrupt or SystemExit has ended a call. Needed for a signal handler that
// the program set after the last watch_end_signals().
void note_end_signal();
// Returns the time of the last SIGINT by the steady clock, or 0 if there was none.
int64_t interrupt_came_ns();
// Returns the seconds since the last recorded signal, or nullopt if there was none.
std::optional<double> seconds_since_end_signal();

}  // namespace pc
