// A message whose data something else may move, a GPU say: it is offered before it is sent.
//
//   the sender                                              the receiver
//   offer, in the place of the message: what it is  ----->  finds it, and compares
//                               <-----  answer: ready, or through the host, or refused and what is expected
//   go, or that it has given up  ----->
//   something else moves the data now                       | if it was ready
//   the data, as a message of the host                      | if it said through the host
//
// The sender says "go" when nothing is in the way any more: the data that the host moves have been copied to it. Whoever has said
// "go", or has heard it, is waited for.
//
// Offer, answer, go and data are messages of the same peer, tag and number, in places of their own (MessagePart), so what has been
// offered keeps its turn among the messages. A receiver whose memory is the host's needs to know nothing of all this: it takes the
// offer for a message, finds that it is one, and asks for the data.
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

// Which part of which message, and until when its caller waits.
struct MessagePlace {
  MessagePart part = MessagePart::kWhole;
  uint64_t number = 0;  // 0, of an offer that is sent and of a whole message: the group numbers it
  const std::function<bool()>* stop = nullptr;  // true: nobody waits any more. Null: Ctrl-C does it
  const ConstBuffer* array = nullptr;           // kAnswer, kGo: what the message is, for errors
  bool* used = nullptr;  // gets true when `number` is posted: nobody else may have it then
};

// Plain data, as bytes, between ranks of one version of this library.
struct MessageAnswer {
  enum class Word : uint8_t { kReady, kThroughHost, kRefused };
  Word word = Word::kReady;
  std::array<char, 111> expected = {};  // kRefused: "float32[10]"
  static MessageAnswer refused(std::string_view expected);
  std::string expects() const;  // it came from another rank, and need not end
};
static_assert(sizeof(MessageAnswer) == 112);

// Likewise.
struct MessageGo {
  uint64_t launch_number = 0;  // of whatever moves it; 0: the sender has given it up
  Code code = Code::kOk;
  std::array<char, 103> why = {};
  static MessageGo given_up(const Status& why);
  // Not OK: the sender has given it up.
  Status status(Rank sender) const;
};
static_assert(sizeof(MessageGo) == 112);
// So long at least they wait for what must come at once now, whatever their deadlines are.
inline constexpr double kOfferGraceS = 5;

// In the number of the group, of which few are used: where the parts of a message are.
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

// Of an offer: behind the size, what describe_array() says.
std::string describe_offer(uint64_t nbytes, std::string_view array);
// False: it is none. Else they get what was offered.
bool read_offer(std::string_view description, uint64_t* nbytes, std::string* array);

}  // namespace pc
