// SIGUSR2 makes a rank print its last calls, even if it hangs.
#pragma once

#include <memory>

namespace pc {

// During its lifetime SIGUSR2 makes an eventfd readable, for the control thread.
class PrintRequest {
 public:
  // Returns null if the program or another world handles SIGUSR2, or if no descriptor is available.
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
