// Checks of a Status's text, and the Status by which a rank's body reports an error.
#pragma once

#include <string>

#include "base/status.h"

namespace pc::testing {

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
inline bool has(const Status& status, const std::string& part) { return has(status.to_string(), part); }

inline Status wrong(const std::string& what) { return Status(Code::kInternal, what); }
inline Status unexpected(const Status& status, const std::string& what) {
  return wrong(what + ": " + (status.is_ok() ? "no error" : status.to_string()));
}

}  // namespace pc::testing
