#include "bindings/state/without_gil.h"

namespace pc {

void let_go(std::shared_ptr<Runtime> runtime) {
  PyThreadState* thread = PyEval_SaveThread();
  runtime.reset();
  PyEval_RestoreThread(thread);
}

}  // namespace pc
