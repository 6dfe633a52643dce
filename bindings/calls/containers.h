// What the lists, tuples and dicts of an argument hold, and whether they still do.
#pragma once

#include <memory>
#include <vector>

#include "bindings/python/ref.h"
#include "bindings/state/state.h"

namespace pc {

// Keeps all of it. Thread-safety: with the GIL.
class Containers {
 public:
  // False: a Python error is set. Of what is no list, tuple or dict there is nothing to keep.
  bool take(PyObject* x);
  // True if every one of them holds the same objects at the same places; else the error is set.
  bool are_the_same(const State& state, const char* function) const;
  // All of it, for the garbage collector: a list whose first member is `x`. Null before take().
  PyObject* kept() const { return kept_ == nullptr ? nullptr : kept_->get(); }

 private:
  struct Item {
    PyObject* key;  // of a dict; else null
    PyObject* value;
  };
  struct Container {
    PyObject* self;
    std::vector<Item> items;
  };
  bool add(PyObject* x);
  bool add_container(PyObject* x);
  bool keep(PyObject* object) const { return PyList_Append(kept(), object) == 0; }

  std::unique_ptr<Ref> kept_;  // what follows is borrowed from it
  std::vector<Container> containers_;
};

}  // namespace pc
