// The true history of every call of a simulated world. The model of the data plane writes and reads
// it; the results of control planes are checked against it.
#pragma once

#include <map>
#include <vector>

#include "simulation/scenario.h"
#include "wire/control_message.h"

namespace pc::simulation {

struct Entry {  // the part of one rank in one call
  CallReport::State state = CallReport::State::kNotMade;
  uint64_t digest = 0;
  Kind kind = Kind::kAll;
  Rank root = 0;
  TimePoint made_at;
};

struct Record {
  std::map<Rank, Entry> ranks;
  // true reasons: of ranks that abandoned the call, or found a disagreement in a report
  std::vector<CallEnd> ends;
  bool differs() const {
    uint64_t first = 0;
    for (const auto& [rank, entry] : ranks) {
      if (first != 0 && entry.digest != 0 && entry.digest != first) return true;
      if (entry.digest != 0) first = entry.digest;
    }
    return false;
  }
};

using CallBook = std::map<CallId, Record>;

}  // namespace pc::simulation
