// A message between two ranks: its two ends as callers describe them, a message that has arrived
// but is not yet received, and a group's description of a send or receive.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/deadline.h"
#include "base/types.h"
#include "operation/offered_message.h"
#include "wire/frame.h"

namespace pc {

// What is sent. Without a shape it is one-dimensional for a receiver that does not know it.
struct OutgoingMessage {
  ConstBuffer data;
  Rank peer = 0;
  uint32_t tag = 0;
  const char* site = nullptr;
  MessagePlace place = {};
  std::optional<std::span<const int64_t>> shape = {};
  uint64_t bundle = 0;               // see Request::bundle
  std::optional<void*> stream = {};  // see Request::stream
};
struct IncomingMessage {
  Buffer data;
  Rank peer = 0;
  uint32_t tag = 0;
  const char* site = nullptr;
  MessagePlace place = {};
  uint64_t bundle = 0;
  std::optional<void*> stream = {};
};

// A message that has arrived and that no other receive can take. The caller must receive it or put
// it back.
struct FoundMessage {
  Rank peer;
  uint32_t tag;
  uint64_t number;  // among the peer's messages with this tag
  uint64_t nbytes;
  uint64_t digest;
  std::string description;  // see described_array()
  const char* site;
  Deadline deadline;      // of the call that found it, and of its receive
  bool is_offer = false;  // see offered_message.h; then `nbytes` and `description` describe what is offered
};

// One send or receive of a group, or a part of one.
struct GroupMessage {
  Buffer data;  // only read if it is sent
  Rank peer = 0;
  uint32_t tag = 0;
  bool sends = false;
  const char* site = nullptr;
  MessagePlace place = {};
  uint64_t number = 0;                  // 0: the next number
  uint64_t bundle = 0;                  // 0: not a list of arrays
  std::optional<uint64_t> digest = {};  // replaces the digest computed from the fields above
  std::string description = {};         // describes what is sent, for a receiver that does not know it
  MessageId id = {};                    // set once it has its number

  bool is_whole() const { return place.part == MessagePart::kWhole; }
  bool is_offer() const { return place.part == MessagePart::kOffer; }
  // The sender of a message receives the answer.
  bool is_sent() const { return sends != (place.part == MessagePart::kAnswer); }
  std::string_view verb() const { return is_sent() ? "send to" : "recv from"; }
  // Returns true if the message belongs to a call that was admitted already: it has its number, or
  // an earlier part was exchanged.
  bool goes_on() const { return place.number != 0 || (!is_whole() && !(is_offer() && sends)); }
  // An offer carries no data, though `data` describes what is offered.
  Buffer payload() const { return is_offer() ? Buffer{} : data; }
  // The array of the message, for errors.
  ConstBuffer array() const { return place.array != nullptr ? *place.array : ConstBuffer(data); }
};

class MessageOperation;

// Answers the sender of an offer that a receive cannot take. Thread-safety: all methods.
class OfferAnswers {
 public:
  virtual void refuse(const MessageOperation& offered) = 0;

 protected:
  ~OfferAnswers() = default;
};

}  // namespace pc
