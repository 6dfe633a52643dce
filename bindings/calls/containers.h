// A snapshot of the lists, tuples and dicts in an argument, to check that they still hold the same
// objects.
#pragma once

#include <memory>
#include <vector>

#include "bindings/python/ref.h"
#include "bindings/state/state.h"

namespace pc {

// Keeps a reference to every object in the snapshot. Thread-safety: with the GIL.
class Containers {
 public:
  // Returns false with a Python error set. For an object that is no list, tuple or dict it records
  // only the object.
  bool take(PyObject* x);
  // Returns true if every container holds the same objects at the same places. Otherwise sets the
  // error.
  bool are_the_same(const State& state, const char* function) const;
  // A list of all objects, for the garbage collector. Its first item is `x`. Null before take().
  PyObject* kept() const { return kept_ == nullptr ? nullptr : kept_->get(); }

 private:
  struct Item {
    PyObject* key;  // the key in a dict, else null
    PyObject* value;
  };
  struct Container {
    PyObject* self;
    std::vector<Item> items;
  };
  bool add(PyObject* x);
  bool add_container(PyObject* x);
  bool keep(PyObject* object) const { return PyList_Append(kept(), object) == 0; }

  std::unique_ptr<Ref> kept_;  // owns every object that the members below borrow
  std::vector<Container> containers_;
};

}  // namespace pc
