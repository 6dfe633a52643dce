// What is done without the GIL, so that other threads of Python go on.
#pragma once

#include <Python.h>

#include <memory>

#include "comm/runtime.h"

namespace pc {

// Gives the GIL away for the time of its life.
class WithoutGil {
 public:
  WithoutGil() : thread_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(thread_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const thread_;
};

// Lets a runtime go that may have been shut down meanwhile: this may be the last reference, and letting it go may wait.
void let_go(std::shared_ptr<Runtime> runtime);

}  // namespace pc
