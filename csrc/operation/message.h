// Descriptions of a message between two ranks: as the caller's send or receive, as an arrived
// message that is not yet received, and as a send or receive that the group runs.
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

// A send. If `shape` is not given, a receiver that does not know the shape gets a one-dimensional
// array.
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
  uint64_t number;  // number of the message among all from this peer with this tag
  uint64_t nbytes;
  uint64_t digest;
  std::string description;  // see described_array()
  const char* site;
  Deadline deadline;      // deadline of the search, and of the receive that follows it
  bool is_offer = false;  // see offered_message.h; then `nbytes` and `description` describe what is offered
};

// One send or receive of a group, or one part of an offered message.
struct GroupMessage {
  Buffer data;  // a send only reads it
  Rank peer = 0;
  uint32_t tag = 0;
  bool sends = false;
  const char* site = nullptr;
  MessagePlace place = {};
  uint64_t number = 0;                  // 0: the next number
  uint64_t bundle = 0;                  // 0: not a list of arrays
  std::optional<uint64_t> digest = {};  // replaces the digest computed from the fields above
  std::string description = {};         // describes the sent array to a receiver that does not know it
  MessageId id = {};                    // set when the message gets its number

  bool is_whole() const { return place.part == MessagePart::kWhole; }
  bool is_offer() const { return place.part == MessagePart::kOffer; }
  // Returns true on the rank that sends the message. That rank receives the message's answer, so
  // `sends` is false in an answer.
  bool is_sent() const { return sends != (place.part == MessagePart::kAnswer); }
  std::string_view verb() const { return is_sent() ? "send to" : "recv from"; }
  // Returns true if the message belongs to a call that was already admitted: it has its number, or
  // an earlier part of it was exchanged.
  bool goes_on() const { return place.number != 0 || (!is_whole() && !(is_offer() && sends)); }
  // Returns what the transport moves. An offer carries no data, though `data` describes the offered
  // array.
  Buffer payload() const { return is_offer() ? Buffer{} : data; }
  // Returns the array of the whole message, for errors.
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
