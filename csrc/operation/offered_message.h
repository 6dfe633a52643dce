// The protocol for a message that may be moved without the transport, for example between GPUs. The
// sender offers the message before it sends the data.
//
//   the sender                                              the receiver
//   offer: a description of the message      ----->         finds it, and compares
//                        <-----  answer: ready, through the host, or refused and what is expected
//   go, or a notice that it gives up         ----->
//   other means move the data now                           | if the receiver is ready
//   the data, as a message of the host                      | if the answer is "through the host"
//
// The sender sends "go" when nothing blocks the transfer any more. Data that the host moves has
// been copied to the host by then. After "go" both ranks wait for each other.
//
// The offer takes the position of the message in the order of messages. The answer, "go" and the
// data have the same peer, tag and number, but streams of their own (MessagePart). An ordinary
// receive into memory on the host detects that the message is an offer, and requests the data.
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

// Identifies a part of a message, and has the condition that ends a wait for this part.
struct MessagePlace {
  MessagePart part = MessagePart::kWhole;
  uint64_t number = 0;  // 0 for a sent offer and for a whole message: the group assigns the number
  // Returns true if the wait must stop. If null, Ctrl-C stops the wait.
  const std::function<bool()>* stop = nullptr;
  const ConstBuffer* array = nullptr;  // kAnswer, kGo: the array of the message, for errors
  bool* used = nullptr;  // set to true when `number` is posted; then no other message may use that number
};

// Plain data, sent as bytes between ranks of one version of this library.
struct MessageAnswer {
  enum class Word : uint8_t { kReady, kThroughHost, kRefused };
  Word word = Word::kReady;
  std::array<char, 111> expected = {};  // kRefused: the expected array, for example "float32[10]"
  static MessageAnswer refused(std::string_view expected);
  // `expected` as text. It comes from another rank, so the terminating zero may be missing.
  std::string expects() const;
};
static_assert(sizeof(MessageAnswer) == 112);

// Plain data, like MessageAnswer.
struct MessageGo {
  // number of the launch that moves the data; 0: the sender has given up the message
  uint64_t launch_number = 0;
  Code code = Code::kOk;
  std::array<char, 103> why = {};
  static MessageGo given_up(const Status& why);
  // Returns an error if the sender has given up the message.
  Status status(Rank sender) const;
};
static_assert(sizeof(MessageGo) == 112);
// Minimum wait for a part that the peer must send at once; deadlines do not shorten it.
inline constexpr double kOfferGraceS = 5;

// Bits of the group number that give each part of a message its own stream. The numbers of groups
// do not use these bits.
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

// Returns the description of an offer: the size, followed by `array`, a text of describe_array().
std::string describe_offer(uint64_t nbytes, std::string_view array);
// Returns false if `description` is not that of an offer. Otherwise sets `nbytes` and `array` to
// what was offered.
bool read_offer(std::string_view description, uint64_t* nbytes, std::string* array);

}  // namespace pc
