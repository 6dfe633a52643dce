// Keeps driver calls of this library from ending a graph capture of another thread. A capture begun
// in the global mode, which torch uses, is invalidated by a query or an allocation of any thread
// that has not set a capture mode of its own.
#pragma once

#include "gpu/cuda/driver.h"

namespace pc::cuda {

// While this object lives, calls of this thread affect only captures that this thread began. With
// CU_STREAM_CAPTURE_MODE_RELAXED they affect no capture at all; use that mode for calls that are
// harmless while this thread captures. Thread-safety: belongs to the thread that made it. The
// driver must outlive it.
class OwnCaptureMode {
 public:
  explicit OwnCaptureMode(const Driver& driver, int mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
      : driver_(driver),
        mode_(mode) {
    // This fails only before cuInit(), and then no graph is being captured.
    (void)driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  OwnCaptureMode(const OwnCaptureMode&) = delete;
  OwnCaptureMode& operator=(const OwnCaptureMode&) = delete;
  ~OwnCaptureMode() { (void)driver_.cuThreadExchangeStreamCaptureMode(&mode_); }

 private:
  const Driver& driver_;
  int mode_;  // after construction: the previous mode
};

}  // namespace pc::cuda
