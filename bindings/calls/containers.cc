#include "bindings/calls/containers.h"

#include <string>

#include "bindings/state/errors.h"

namespace pc {
namespace {

const char* kind_of(PyObject* container) {
  return PyDict_Check(container) ? "dict" : PyList_Check(container) ? "list" : "tuple";
}

Py_ssize_t length_of(PyObject* container) {
  if (PyDict_Check(container)) return PyDict_Size(container);
  return PyList_Check(container) ? PyList_GET_SIZE(container) : PyTuple_GET_SIZE(container);
}

// Returns a borrowed reference. Returns null if a dict has no such key; then a Python error may be
// set.
PyObject* at(PyObject* container, PyObject* key, Py_ssize_t place) {
  if (PyDict_Check(container)) return PyDict_GetItemWithError(container, key);
  return PyList_Check(container) ? PyList_GET_ITEM(container, place) : PyTuple_GET_ITEM(container, place);
}

std::string text_of_key(PyObject* key, Py_ssize_t place) {
  if (key == nullptr) return std::to_string(place);
  const Ref text(PyObject_Repr(key));
  const char* const utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (utf8 != nullptr) return utf8;
  PyErr_Clear();
  return "one of its keys";
}

constexpr const char* kAgain = " when the call was planned: plan it again";

}  // namespace

bool Containers::take(PyObject* x) {
  kept_ = std::make_unique<Ref>(PyList_New(0));
  return *kept_ && keep(x) && add(x);
}

// The recursion limit applies because a container may contain itself.
bool Containers::add(PyObject* x) {
  if (!PyList_Check(x) && !PyTuple_Check(x) && !PyDict_Check(x)) return true;
  if (Py_EnterRecursiveCall(" while a call was planned") != 0) return false;
  const bool added = add_container(x);
  Py_LeaveRecursiveCall();
  return added;
}

bool Containers::add_container(PyObject* x) {
  Container container = {x, {}};
  if (PyDict_Check(x)) {
    Item item = {};
    Py_ssize_t next = 0;
    while (PyDict_Next(x, &next, &item.key, &item.value) != 0) {
      if (!keep(item.key)) return false;
      container.items.push_back(item);
    }
  } else {
    for (Py_ssize_t i = 0; i < length_of(x); ++i) container.items.push_back({nullptr, at(x, nullptr, i)});
  }
  for (const Item& item : container.items) {
    if (!keep(item.value)) return false;
  }
  const std::vector<Item> items = container.items;
  containers_.push_back(std::move(container));
  for (const Item& item : items) {
    if (!add(item.value)) return false;
  }
  return true;
}

bool Containers::are_the_same(const State& state, const char* function) const {
  for (const Container& container : containers_) {
    const Py_ssize_t now = length_of(container.self),
                     planned = static_cast<Py_ssize_t>(container.items.size());
    if (now != planned) {
      return refuse(state, std::string(function) + ": a " + kind_of(container.self) + " in x has " +
                               std::to_string(now) + " members now, but had " + std::to_string(planned) +
                               kAgain);
    }
    for (Py_ssize_t i = 0; i < planned; ++i) {
      const Item& item = container.items[static_cast<std::size_t>(i)];
      if (at(container.self, item.key, i) == item.value) continue;
      if (PyErr_Occurred() != nullptr) return false;  // a key lookup may run Python code
      return refuse(state, std::string(function) + ": a " + kind_of(container.self) +
                               " in x has another object at " + text_of_key(item.key, i) + " now than" +
                               kAgain);
    }
  }
  return true;
}

}  // namespace pc
