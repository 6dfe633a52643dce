// Code that runs without the GIL, so that other Python threads can run.
#pragma once

#include <Python.h>

#include <memory>

#include "comm/runtime.h"

namespace pc {

// Releases the GIL for its lifetime.
class WithoutGil {
 public:
  WithoutGil() : thread_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(thread_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const thread_;
};

// Releases a reference to a runtime that may have been shut down meanwhile. It may be the last
// reference, and then the release may wait, so the GIL is released first.
void let_go(std::shared_ptr<Runtime> runtime);

}  // namespace pc
