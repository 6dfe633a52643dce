// The messages by which ranks of one host exchange their descriptors (fd_exchange.h). Every kind of
// message has one size. Decoding returns kMismatch if a message does not have the right format.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/types.h"

namespace pc {

struct FdEndpoint {
  std::array<std::byte, 16> name = {};  // of the socket; visible to every process of the host
  std::array<std::byte, 16> token = {};
};
std::string to_text(const FdEndpoint& endpoint);  // in the format that the store publishes
Result<FdEndpoint> endpoint_from(std::string_view text);

// Sent by a rank to the leader, with two descriptors: its memory and its notifier.
struct JoinMessage {
  uint32_t epoch = 0;
  Rank rank = -1;
  std::array<std::byte, 16> token = {};
};
inline constexpr std::size_t kJoinBytes = 32;
using JoinBytes = std::array<std::byte, kJoinBytes>;
JoinBytes encode(const JoinMessage& word);
Result<JoinMessage> decode_join(const JoinBytes& bytes);

// Sent by the leader, with two descriptors for each of `ranks`, which are some of the `total` ranks
// other than the receiver.
inline constexpr std::size_t kRanksAtOnce = 100;  // 200 descriptors are within the limit of one message
struct PartsMessage {
  uint32_t total = 0;
  std::vector<Rank> ranks;
};
inline constexpr std::size_t kPartsBytes = 12 + 4 * kRanksAtOnce;
using PartsBytes = std::array<std::byte, kPartsBytes>;
PartsBytes encode(const PartsMessage& word);
Result<PartsMessage> decode_parts(const PartsBytes& bytes);

// Sent by the client: an empty text if it has received all descriptors, otherwise the reason why
// not.
inline constexpr std::size_t kAnswerBytes = 512;
using AnswerBytes = std::array<std::byte, kAnswerBytes>;
AnswerBytes encode_answer(std::string_view why_not);
Result<std::string> decode_answer(const AnswerBytes& bytes);  // one line of printable characters

bool same_secret(std::span<const std::byte, 16> a, std::span<const std::byte, 16> b);  // in constant time

}  // namespace pc
