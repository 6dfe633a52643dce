// The description of one call in the bindings: its name, its parameters, its forms, and its
// docstrings.
#pragma once

#include <cstdint>

#include "bindings/calls/arguments.h"
#include "bindings/calls/prepared_call.h"

namespace pc {

// How the `_async` form handles arguments that the core cannot take without packing.
enum class Background : uint8_t {
  kNever,  // the call has no `_async` form
  kPlain,  // refuses them
  kLists,  // passes lists and immutable arrays to pycollective.calls.packing
  kParts,  // refuses these arguments with a message that parts must be equal
};

// Builds the request of a call from its arguments and sends nothing. `call.function` and the call's
// site are already set. Returns false with a Python error set. Also returns false if
// pycollective.calls.packing must make the call (PreparedCall::is_staged, View::stageable()).
using Prepare = bool (*)(GroupObject& group, const Given& given, Form form, PreparedCall& call);

struct CallRow {
  Signature signature;
  const char* async_name = nullptr;
  const char* planned_name = nullptr;
  Background background = Background::kNever;
  int blocking_only = 0;    // how many trailing parameters only the blocking form has
  bool is_message = false;  // the call is a message, which may wait even in a world of one rank
  Prepare prepare = nullptr;
  const char* doc = nullptr;  // the docstring after the signature
  const char* planned_doc = nullptr;
  const char* async_note = "";     // additional requirements of the `_async` form on its parameters
  const char* async_example = "";  // the lines between init() and shutdown()

  constexpr Signature signature_of(Form form) const {
    Signature own = signature;
    if (form == Form::kAsync) {
      own.function = async_name;
      own.count -= blocking_only;
    } else if (form == Form::kPlanned) {
      own.function = planned_name;
    }
    return own;
  }
};

}  // namespace pc
