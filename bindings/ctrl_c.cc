#include "ctrl_c.h"

#include <Python.h>
#include <signal.h>

#include <optional>

#include "end_signal.h"
#include "ref.h"

namespace pc {
namespace {

// Null: a Python error is set.
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

}  // namespace

std::function<bool(pthread_t thread, TimePoint since)> hears_ctrl_c() {
  const std::optional<pthread_t> main = main_thread();
  if (!main) return {};
  watch_end_signals();
  return [main = *main](pthread_t thread, TimePoint since) {
    return ::pthread_equal(main, thread) != 0 && interrupt_has_come_since(since) && ctrl_c_raises();
  };
}

}  // namespace pc
