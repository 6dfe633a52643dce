#include "shm/fd_exchange_messages.h"

#include <algorithm>

#include "wire/frame.h"
#include "wire/little_endian.h"

namespace pc {
namespace {

// "PCJ1", "PCP1", "PCA1"
constexpr uint32_t kJoinMagic = 0x314a4350, kPartsMagic = 0x31504350, kAnswerMagic = 0x31414350;
constexpr std::size_t kAnswerHead = 8;

Status wrong(const std::string& what) {
  return Status(Code::kMismatch, what + "; do all ranks run the same version?");
}

}  // namespace

JoinBytes encode(const JoinMessage& word) {
  JoinBytes bytes = {};
  put<uint32_t>(bytes.data(), kJoinMagic);
  put<uint32_t>(bytes.data() + 4, word.epoch);
  put<uint32_t>(bytes.data() + 8, static_cast<uint32_t>(word.rank));
  put<uint8_t>(bytes.data() + 12, kProtocolVersion);
  std::copy(word.token.begin(), word.token.end(), bytes.begin() + 16);
  return bytes;
}

Result<JoinMessage> decode_join(const JoinBytes& bytes) {
  if (get<uint32_t>(bytes.data()) != kJoinMagic) return wrong("this is no rank that joins");
  if (get<uint8_t>(bytes.data() + 12) != kProtocolVersion) return wrong("a rank speaks another version");
  JoinMessage word;
  word.epoch = get<uint32_t>(bytes.data() + 4);
  word.rank = static_cast<Rank>(get<uint32_t>(bytes.data() + 8));
  std::copy_n(bytes.begin() + 16, word.token.size(), word.token.begin());
  return word;
}

PartsBytes encode(const PartsMessage& word) {
  PartsBytes bytes = {};
  put<uint32_t>(bytes.data(), kPartsMagic);
  put<uint32_t>(bytes.data() + 4, word.total);
  put<uint32_t>(bytes.data() + 8, static_cast<uint32_t>(word.ranks.size()));
  for (std::size_t i = 0; i < word.ranks.size(); ++i)
    put<uint32_t>(bytes.data() + 12 + 4 * i, static_cast<uint32_t>(word.ranks[i]));
  return bytes;
}

Result<PartsMessage> decode_parts(const PartsBytes& bytes) {
  if (get<uint32_t>(bytes.data()) != kPartsMagic) return wrong("these are no parts of other ranks");
  PartsMessage word;
  word.total = get<uint32_t>(bytes.data() + 4);
  const std::size_t count = get<uint32_t>(bytes.data() + 8);
  if (count > kRanksAtOnce || count > word.total)
    return wrong("too many parts of other ranks in one message");
  for (std::size_t i = 0; i < count; ++i)
    word.ranks.push_back(static_cast<Rank>(get<uint32_t>(bytes.data() + 12 + 4 * i)));
  return word;
}

AnswerBytes encode_answer(std::string_view why_not) {
  AnswerBytes bytes = {};
  const std::size_t length = std::min(why_not.size(), kAnswerBytes - kAnswerHead);
  put<uint32_t>(bytes.data(), kAnswerMagic);
  put<uint32_t>(bytes.data() + 4, static_cast<uint32_t>(length));
  std::transform(why_not.begin(), why_not.begin() + static_cast<std::ptrdiff_t>(length),
                 bytes.begin() + kAnswerHead, [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}

Result<std::string> decode_answer(const AnswerBytes& bytes) {
  const std::size_t length = get<uint32_t>(bytes.data() + 4);
  if (get<uint32_t>(bytes.data()) != kAnswerMagic || length > kAnswerBytes - kAnswerHead)
    return wrong("this is no answer");
  std::string text;
  for (const std::byte byte : std::span(bytes).subspan(kAnswerHead, length)) {
    const char c = static_cast<char>(byte);
    text += c < ' ' || c > '~' ? '?' : c;
  }
  return text;
}

bool same_secret(std::span<const std::byte, 16> a, std::span<const std::byte, 16> b) {
  std::byte different{0};
  for (std::size_t i = 0; i < a.size(); ++i) different |= a[i] ^ b[i];
  return different == std::byte{0};
}

std::string to_text(const FdEndpoint& endpoint) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const auto* const part : {&endpoint.name, &endpoint.token}) {
    for (const std::byte byte : *part) {
      text += kDigits[static_cast<unsigned>(byte) >> 4];
      text += kDigits[static_cast<unsigned>(byte) & 15];
    }
  }
  return text;
}

Result<FdEndpoint> endpoint_from(std::string_view text) {
  FdEndpoint endpoint;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  const bool right = text.size() == 2 * (endpoint.name.size() + endpoint.token.size()) &&
                     std::all_of(text.begin(), text.end(), [&](char c) { return digit(c) >= 0; });
  if (!right) return Status(Code::kMismatch, "an invitation to share memory is unreadable");
  for (auto* const part : {&endpoint.name, &endpoint.token}) {
    for (std::byte& byte : *part) {
      byte = static_cast<std::byte>(digit(text[0]) << 4 | digit(text[1]));
      text.remove_prefix(2);
    }
  }
  return endpoint;
}

}  // namespace pc
