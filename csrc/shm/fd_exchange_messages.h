// What ranks of one host say to each other while they hand round their descriptors (fd_exchange.h). Every
// kind of message has one size; what does not fit its format is kMismatch.
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
  std::array<std::byte, 16> name = {};  // of the socket; everybody on the host can see it
  std::array<std::byte, 16> token = {};
};
std::string to_text(const FdEndpoint& endpoint);  // for the store
Result<FdEndpoint> endpoint_from(std::string_view text);

// "I am rank 3, this is my memory, this is my notifier": with two descriptors.
struct JoinMessage {
  uint32_t epoch = 0;
  Rank rank = -1;
  std::array<std::byte, 16> token = {};
};
inline constexpr std::size_t kJoinBytes = 32;
using JoinBytes = std::array<std::byte, kJoinBytes>;
JoinBytes encode(const JoinMessage& word);
Result<JoinMessage> decode_join(const JoinBytes& bytes);

// "Of `total` others these are some": with two descriptors for each of `ranks`.
inline constexpr std::size_t kRanksAtOnce =
    100;  // twice as many descriptors are fewer than one message may have
struct PartsMessage {
  uint32_t total = 0;
  std::vector<Rank> ranks;
};
inline constexpr std::size_t kPartsBytes = 12 + 4 * kRanksAtOnce;
using PartsBytes = std::array<std::byte, kPartsBytes>;
PartsBytes encode(const PartsMessage& word);
Result<PartsMessage> decode_parts(const PartsBytes& bytes);

// "I have everything", an empty text, or why not.
inline constexpr std::size_t kAnswerBytes = 512;
using AnswerBytes = std::array<std::byte, kAnswerBytes>;
AnswerBytes encode_answer(std::string_view why_not);
Result<std::string> decode_answer(const AnswerBytes& bytes);  // one line of printable characters

bool same_secret(std::span<const std::byte, 16> a, std::span<const std::byte, 16> b);  // in constant time

}  // namespace pc
