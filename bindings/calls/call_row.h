// What the binding of one call says of itself: its name, its parameters, the forms in which it is made, and what users read.
#pragma once

#include <cstdint>

#include "bindings/calls/arguments.h"
#include "bindings/calls/prepared_call.h"

namespace pc {

// What the form `_async` does with arguments that the core cannot take as they lie.
enum class Background : uint8_t {
  kNever,  // there is no such form
  kPlain,  // refuses them
  kLists,  // hands lists and immutable arrays to pycollective.calls.packing
  kParts,  // refuses them, and says that parts must be equal
};

// Makes the request of a call from what it was given, without sending anything. `call.function` and the call's site are set.
// False: a Python error is set, or the arguments are for pycollective.calls.packing (PreparedCall::is_staged, View::stageable()).
using Prepare = bool (*)(GroupObject& group, const Given& given, Form form, PreparedCall& call);

struct CallRow {
  Signature signature;
  const char* async_name = nullptr;
  const char* planned_name = nullptr;
  Background background = Background::kNever;
  int blocking_only = 0;    // so many of the last parameters are of the blocking form alone
  bool is_message = false;  // it may also wait in a world of one rank
  Prepare prepare = nullptr;
  const char* doc = nullptr;  // what comes behind the signature
  const char* planned_doc = nullptr;
  const char* async_note = "";     // what its parameters must be in the background
  const char* async_example = "";  // lines behind init() and before shutdown()

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
