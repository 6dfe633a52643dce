// What the flight recorder holds, in words for people and as JSON for programs. `now_ns` is of the steady clock.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/export.h"
#include "engine/flight_recorder.h"

namespace pc {

// "#12 allreduce float32[1000] sum (ring), group 0, train.py:42 in step, done after 0.123 ms"
std::string line_of(const CallRecord& call, int64_t now_ns);

// An array with one object per call. Field names are the struct's, but times are seconds: began_s from now on (negative: it
// has begun), elapsed_s until it ended or until now. A digest is 16 hexadecimal digits. What a call does not have is null.
PC_EXPORT std::string json_of(std::span<const CallRecord> calls, int64_t now_ns);

}  // namespace pc
