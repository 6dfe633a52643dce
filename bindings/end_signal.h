// Whether this process has been asked to end: when SIGINT (Ctrl-C) or SIGTERM came last, whatever the program does about them.
#pragma once

#include <optional>

namespace pc {

// Once in the life of a process: from now on these signals are noted before the program's handlers, which stay as they are, run.
// A signal without a handler ends the process, or is ignored, as before.
void watch_end_signals();

// A call was ended by a handler that the program has set later.
void note_end_signal();
// Seconds since the last of them; nullopt: none has come.
std::optional<double> seconds_since_end_signal();

}  // namespace pc
