#include "bindings/python/ctrl_c.h"

#include <Python.h>
#include <signal.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>

#include "bindings/python/end_signal.h"
#include "bindings/python/ref.h"

namespace pc {
namespace {

// Returns nullopt with a Python error set.
std::optional<pthread_t> main_thread() {
  const Ref threading(PyImport_ImportModule("threading"));
  const Ref main(threading ? PyObject_CallMethod(threading.get(), "main_thread", nullptr) : nullptr);
  const Ref ident(main ? PyObject_GetAttrString(main.get(), "ident") : nullptr);
  if (!ident) return std::nullopt;
  const unsigned long number = PyLong_AsUnsignedLong(ident.get());
  if (PyErr_Occurred() != nullptr) return std::nullopt;
  return static_cast<pthread_t>(number);
}

bool ctrl_c_raises() {
  const PyGILState_STATE gil = PyGILState_Ensure();
  bool raises = false;
  if (const Ref signals(PyImport_ImportModule("signal")); signals) {
    const Ref handler(PyObject_CallMethod(signals.get(), "getsignal", "i", SIGINT));
    const Ref usual(PyObject_GetAttrString(signals.get(), "default_int_handler"));
    raises = handler && handler.get() == usual.get();
  }
  PyErr_Clear();
  PyGILState_Release(gil);
  return raises;
}

// Python's answers to whether a press of Ctrl-C raises KeyboardInterrupt. A press is identified by
// its time.
struct Question {
  std::atomic<int64_t> asked_ns{0};   // the last press about which Python was asked
  std::atomic<int64_t> raises_ns{0};  // the last press that raises KeyboardInterrupt
};

// Asks Python whether the press raises, on a separate thread because it may wait long for the GIL.
void ask(const std::shared_ptr<Question>& question, int64_t press_ns) {
  try {
    std::thread([question, press_ns] {
      if (!ctrl_c_raises()) return;
      int64_t before = question->raises_ns.load();
      while (before < press_ns && !question->raises_ns.compare_exchange_weak(before, press_ns)) {
      }
    }).detach();
  } catch (const std::system_error&) {
    question->asked_ns.store(0);  // no thread available: the next call tries again
  }
}

}  // namespace

std::function<bool(pthread_t thread, TimePoint since)> ctrl_c_probe() {
  const std::optional<pthread_t> main = main_thread();
  if (!main) return {};
  watch_end_signals();
  return [main = *main, question = std::make_shared<Question>()](pthread_t thread, TimePoint since) {
    if (::pthread_equal(main, thread) == 0) return false;
    const int64_t press_ns = interrupt_came_ns();
    if (press_ns <= to_ns(since)) return false;
    if (question->asked_ns.exchange(press_ns) != press_ns) ask(question, press_ns);
    return question->raises_ns.load() > to_ns(since);
  };
}

}  // namespace pc
