// Formats the contents of the flight recorder as text for users and as JSON for programs. `now_ns`
// is a time of the steady clock.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/export.h"
#include "engine/flight_recorder.h"

namespace pc {

// Returns one line: "#12 allreduce float32[1000] sum (ring), group 0, train.py:42 in step, done
// after 0.123 ms"
std::string line_of(const CallRecord& call, int64_t now_ns);

// Returns an array with one object per call. The field names are those of CallRecord, except that
// times are in seconds: began_s is relative to now (negative: in the past), elapsed_s lasts until
// the call ended or until now. A digest has 16 hexadecimal digits. Fields that a call does not have
// are null.
PC_EXPORT std::string json_of(std::span<const CallRecord> calls, int64_t now_ns);

}  // namespace pc
