// Calls of ours must not end a graph that another thread captures. A capture begun in the global mode, which is torch's, is
// invalidated by any query or allocation of any thread, unless that thread has said that it answers for itself.
#pragma once

#include "gpu/cuda/driver.h"

namespace pc::cuda {

// For as long as it lives this thread's calls concern this thread's captures alone; with CU_STREAM_CAPTURE_MODE_RELAXED none at
// all, for what is harmless while this thread captures.
// Thread-safety: belongs to the thread that made it. The driver must outlive it.
class OwnCaptureMode {
 public:
  explicit OwnCaptureMode(const Driver& driver, int mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
      : driver_(driver),
        mode_(mode) {
    // It fails only before cuInit(), and then no graph is captured.
    (void)driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  OwnCaptureMode(const OwnCaptureMode&) = delete;
  OwnCaptureMode& operator=(const OwnCaptureMode&) = delete;
  ~OwnCaptureMode() { (void)driver_.cuThreadExchangeStreamCaptureMode(&mode_); }

 private:
  const Driver& driver_;
  int mode_;  // then what was there before
};

}  // namespace pc::cuda
