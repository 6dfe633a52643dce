// A message with data that may move by other means, for example a GPU: it is offered before it is
// sent.
//
//   the sender                                              the receiver
//   offer, in the place of the message: what it is  ----->  finds it, and compares
//                       <-----  answer: ready, through the host, or refused and what is expected
//   go, or that it has given up  ----->
//   other means move the data now                           | if it was ready
//   the data, as a message of the host                      | if it answered "through the host"
//
// The sender sends "go" when nothing blocks the transfer any more: data that the host moves have
// been copied to it. After "go" both ranks wait for each other.
//
// Offer, answer, go and data are messages with the same peer, tag and number, in places of their
// own (MessagePart), so an offered message keeps its position among the messages. A receiver with
// memory on the host needs no knowledge of this protocol: it takes the offer for a message, detects
// that it is an offer, and requests the data.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/types.h"

namespace pc {

enum class MessagePart : uint8_t { kWhole, kOffer, kAnswer, kGo, kData };

// Which part of which message it is, and until when its caller waits.
struct MessagePlace {
  MessagePart part = MessagePart::kWhole;
  uint64_t number = 0;  // 0 for a sent offer and for a whole message: the group assigns the number
  // returns true if no caller waits any more. Null: Ctrl-C stops the wait
  const std::function<bool()>* stop = nullptr;
  const ConstBuffer* array = nullptr;  // kAnswer, kGo: the array of the message, for errors
  bool* used = nullptr;  // set to true when `number` is posted; then no other message may use it
};

// Plain data, sent as bytes between ranks of one version of this library.
struct MessageAnswer {
  enum class Word : uint8_t { kReady, kThroughHost, kRefused };
  Word word = Word::kReady;
  std::array<char, 111> expected = {};  // kRefused: "float32[10]"
  static MessageAnswer refused(std::string_view expected);
  std::string expects() const;  // it comes from another rank, so it may lack the terminating zero
};
static_assert(sizeof(MessageAnswer) == 112);

// Plain data, as MessageAnswer.
struct MessageGo {
  uint64_t launch_number = 0;  // of whatever moves the data; 0: the sender has given up the message
  Code code = Code::kOk;
  std::array<char, 103> why = {};
  static MessageGo given_up(const Status& why);
  // Returns an error if the sender has given up the message.
  Status status(Rank sender) const;
};
static_assert(sizeof(MessageGo) == 112);
// Minimum wait for a part that must arrive immediately, regardless of the deadlines.
inline constexpr double kOfferGraceS = 5;

// Bits in the group number, of which few are in use, that give each part of a message its own
// stream.
constexpr uint32_t place_of(MessagePart part) {
  switch (part) {
    case MessagePart::kWhole:
    case MessagePart::kOffer: return 0;
    case MessagePart::kAnswer: return 1U << 28;
    case MessagePart::kGo: return 1U << 29;
    case MessagePart::kData: return 3U << 28;
  }
  return 0;
}

// The description of an offer: the size, followed by the text of describe_array().
std::string describe_offer(uint64_t nbytes, std::string_view array);
// Returns false if it is not an offer; otherwise sets `nbytes` and `array` to what was offered.
bool read_offer(std::string_view description, uint64_t* nbytes, std::string* array);

}  // namespace pc
