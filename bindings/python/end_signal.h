// Whether this process has been asked to end: when SIGINT (Ctrl-C), SIGTERM, SIGHUP, SIGUSR1 or SIGUSR2 came last, whatever the
// program does about them. Schedulers send the last two before they end a job.
#pragma once

#include <cstdint>
#include <optional>

namespace pc {

// From now on these signals are noted before the handlers that the program has now run; they stay as they are. To be called for
// each world, since the program may have set others. A signal without a handler ends the process, or is ignored, as before.
void watch_end_signals();
// The same for handlers that the program has set since, where calls come by often: it looks at most ten times a second. With the
// GIL, so that no other thread of Python's changes them meanwhile.
void watch_end_signals_again();

// A call was ended by a handler that the program has set later, with an exception by which programs end.
void note_end_signal();
// When SIGINT came last, by the steady clock; 0: it has not come.
int64_t interrupt_came_ns();
// Seconds since the last of them; nullopt: none has come.
std::optional<double> seconds_since_end_signal();

}  // namespace pc
