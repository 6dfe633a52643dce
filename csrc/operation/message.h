// A message between two ranks: its two ends as callers describe them, one that is here before it is received,
// and what a group makes of each of these.
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
  uint64_t bundle = 0;               // Request::bundle
  std::optional<void*> stream = {};  // Request::stream
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

// One send or receive of a group, or a part of one.
struct GroupMessage {
  Buffer data;  // of a send: it is only read
  Rank peer = 0;
  uint32_t tag = 0;
  bool sends = false;
  const char* site = nullptr;
  MessagePlace place = {};
  uint64_t number = 0;                  // 0: the next
  uint64_t bundle = 0;                  // 0: it is no list of arrays
  std::optional<uint64_t> digest = {};  // instead of that of what is said here
  std::string description = {};         // of what is sent, for a receiver that does not know
  MessageId id = {};                    // once it has its number

  bool is_whole() const { return place.part == MessagePart::kWhole; }
  bool is_offer() const { return place.part == MessagePart::kOffer; }
  // Whoever sends a message receives the answer.
  bool is_sent() const { return sends != (place.part == MessagePart::kAnswer); }
  std::string_view verb() const { return is_sent() ? "send to" : "recv from"; }
  // Of a call that was let in: it has its number, or another part came before.
  bool goes_on() const { return place.number != 0 || (!is_whole() && !(is_offer() && sends)); }
  // An offer has no data, though it says what that is.
  Buffer payload() const { return is_offer() ? Buffer{} : data; }
  // What the message is, for errors.
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
