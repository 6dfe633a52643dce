#include "bindings/arrays/planned_arrays.h"

#include <algorithm>

#include "bindings/arrays/view_builder.h"
#include "bindings/state/errors.h"

namespace pc {
namespace {

std::string text_of(const Buffer& buffer, const int64_t* shape, int ndim) {
  return text_of(buffer.dtype, buffer.layout) + " of shape " + shape_text(shape, ndim);
}

}  // namespace

// Takes a new view of the array. The shape that the view of `buffer` pointed to may have been freed
// since then.
bool PlannedArrays::add(State& state, PyObject* array, const Buffer& buffer, const Use& use) {
  View now;
  if (!now.take(state, array, use)) return false;
  arrays_.push_back({array, use, buffer, {now.shape(), now.shape() + now.ndim()}});
  return true;
}

bool PlannedArrays::are_the_same(State& state) const {
  return std::all_of(arrays_.begin(), arrays_.end(),
                     [&](const Planned& planned) { return is_the_same(state, planned); });
}

bool PlannedArrays::is_the_same(State& state, const Planned& planned) {
  View now;
  if (!now.take(state, planned.array, planned.use)) return false;
  const Buffer &buffer = now.buffer(), &before = planned.buffer;
  const int ndim = static_cast<int>(planned.shape.size());
  if (buffer.dtype != before.dtype || buffer.layout != before.layout || buffer.count != before.count ||
      now.ndim() != ndim || !std::equal(planned.shape.begin(), planned.shape.end(), now.shape())) {
    return refuse(state, std::string(planned.use.function) + ": " + planned.use.argument + " is " +
                             text_of(buffer, now.shape(), now.ndim()) + " now, but was " +
                             text_of(before, planned.shape.data(), ndim) +
                             " when the call was planned: plan it again");
  }
  if (before.count == 0 || buffer.data == before.data) return true;
  return refuse(state, std::string(planned.use.function) + ": the memory of " + planned.use.argument +
                           " lies elsewhere now than when the call was planned: plan it again");
}

}  // namespace pc
