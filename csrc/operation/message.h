// The two ends of a message between two ranks, and one that is there before anybody receives it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/deadline.h"
#include "base/types.h"
#include "operation/offered_message.h"

namespace pc {

// What is sent. Without a shape it is one-dimensional for a receiver that does not know it.
struct OutgoingMessage {
  ConstBuffer data;
  Rank peer = 0;
  uint32_t tag = 0;
  const char* site = nullptr;
  std::optional<std::span<const int64_t>> shape = {};
  uint64_t bundle = 0;  // Request::bundle
  MessagePlace place = {};
  std::optional<void*> stream = {};  // likewise
};
struct IncomingMessage {
  Buffer data;
  Rank peer = 0;
  uint32_t tag = 0;
  const char* site = nullptr;
  uint64_t bundle = 0;
  MessagePlace place = {};
  std::optional<void*> stream = {};
};

// A message that is here and that nobody else can receive. Either it is received or it is put back.
struct FoundMessage {
  Rank peer;
  uint32_t tag;
  uint64_t number;  // of the peer's messages with this tag
  uint64_t nbytes;
  uint64_t digest;
  std::string description;  // see described_array()
  const char* site;
  Deadline deadline;      // of the call that found it, and receives it
  bool is_offer = false;  // offered_message.h; `nbytes` and `description` are of what is offered
};

}  // namespace pc
