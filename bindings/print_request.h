// SIGUSR2 asks a rank to print its last calls, wherever it hangs.
#pragma once

namespace pc {

// An eventfd that becomes readable at SIGUSR2, for the control thread. -1: the program handles that signal itself, or there
// is no descriptor to be had. The handler is installed at the first call and stays.
int print_request();

}  // namespace pc
