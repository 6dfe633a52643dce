// SIGUSR2 asks a rank to print its last calls, wherever it hangs.
#pragma once

#include <memory>

namespace pc {

// While it lives, SIGUSR2 makes an eventfd readable, for the control thread.
class PrintRequest {
 public:
  // Null: the program handles that signal itself, a world has it already, or there is no descriptor to be had.
  static std::unique_ptr<PrintRequest> install();
  ~PrintRequest();
  PrintRequest(const PrintRequest&) = delete;
  PrintRequest& operator=(const PrintRequest&) = delete;
  int event() const { return event_; }

 private:
  explicit PrintRequest(int event) : event_(event) {}
  const int event_;
};

}  // namespace pc
