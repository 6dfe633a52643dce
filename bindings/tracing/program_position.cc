#include "bindings/tracing/program_position.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

#include "bindings/python/ref.h"

namespace pc {
namespace {

// Starts a thread that blocks all signals, because a signal must interrupt the main thread.
template <class Body>
std::jthread start(const char* name, Body body) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  struct Restore {
    const sigset_t& mask;
    ~Restore() { ::pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  } const restore{before};
  return std::jthread([name, body] {
    ::pthread_setname_np(::pthread_self(), name);
    body();
  });
}

// Returns the line that the main thread executes. Returns an empty string, possibly with a Python
// error set, if the main thread runs no Python code. Called with the GIL.
std::string main_position(const CallSites& sites) {
  const Ref name(PyUnicode_FromString("threading"));
  // an import could wait, so none is made
  const Ref threading(name ? PyImport_GetModule(name.get()) : nullptr);
  if (!threading) return {};
  const Ref main(PyObject_CallMethod(threading.get(), "main_thread", nullptr));
  const Ref ident(main ? PyObject_GetAttrString(main.get(), "ident") : nullptr);
  PyObject* current_frames = PySys_GetObject("_current_frames");  // borrowed
  const Ref frames(ident && current_frames != nullptr ? PyObject_CallNoArgs(current_frames) : nullptr);
  PyObject* frame = frames ? PyDict_GetItemWithError(frames.get(), ident.get()) : nullptr;  // borrowed
  return frame != nullptr ? sites.path_of(reinterpret_cast<PyFrameObject*>(frame)) : std::string();
}

}  // namespace

void ProgramPosition::find(Found found) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return;
  waiting_.push_back(std::move(found));
  wanted_ = true;
  try {
    if (!answering_) answerer_ = start("pc-answer", [this] { answer(); });
    answering_ = true;
    if (!seeking_) seeker_ = start("pc-position", [this] { seek(); });
    seeking_ = true;
  } catch (const std::system_error&) {  // the system has no more threads
    if (!answering_) waiting_.clear();
  }
}

void ProgramPosition::close() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    waiting_.clear();
  }
  changed_.notify_all();
  PyThreadState* thread = holds_gil() ? PyEval_SaveThread() : nullptr;
  for (std::jthread* each : {&seeker_, &answerer_}) {
    if (each->joinable()) each->join();
  }
  if (thread != nullptr) PyEval_RestoreThread(thread);
}

void ProgramPosition::seek() {
  std::string position = look();
  const std::lock_guard<std::mutex> lock(mutex_);
  position_ = std::move(position);
  wanted_ = seeking_ = false;
  changed_.notify_all();
}

void ProgramPosition::answer() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!waiting_.empty()) {
    const bool known = changed_.wait_for(lock, kWaitLimit, [&] { return closed_ || !wanted_; });
    const std::string text = known ? position_ : excuse();
    const std::vector<Found> waiting = std::exchange(waiting_, {});
    lock.unlock();
    for (const Found& found : waiting) found(text);
    lock.lock();
  }
  answering_ = false;
}

std::string ProgramPosition::look() const {
  const PyGILState_STATE gil = PyGILState_Ensure();
  std::string text = main_position(sites_);
  PyErr_Clear();
  PyGILState_Release(gil);
  return text.empty() ? "outside of Python code" : text;
}

std::string ProgramPosition::excuse() const {
  const char* site = sites_.last();
  const std::string last = site != nullptr ? std::string("; last call to pycollective at ") + site : "";
  return "inside C code that keeps the GIL, for 0.2 s at least" + last;
}

}  // namespace pc
