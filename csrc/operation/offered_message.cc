#include "operation/offered_message.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace pc {
namespace {

// no array's description begins with 0xff, because no dtype has that number
constexpr std::string_view kMark = "\xffoffer ";

}  // namespace

MessageAnswer MessageAnswer::refused(std::string_view expected) {
  MessageAnswer answer;
  answer.word = Word::kRefused;
  std::memcpy(answer.expected.data(), expected.data(), std::min(expected.size(), answer.expected.size() - 1));
  return answer;
}

std::string MessageAnswer::expects() const {
  return {expected.data(), strnlen(expected.data(), expected.size())};
}

MessageGo MessageGo::given_up(const Status& why) {
  MessageGo go;
  go.code = why.code();
  const std::string& words = why.message();
  std::memcpy(go.why.data(), words.data(), std::min(words.size(), go.why.size() - 1));
  return go;
}

Status MessageGo::status(Rank sender) const {
  if (launch_number != 0) return Status::ok();
  const std::string theirs(why.data(), strnlen(why.data(), why.size()));
  const Code ours = code == Code::kInterrupted ? Code::kPeerInterrupted
                    : code == Code::kTimeout   ? Code::kTimeout
                                               : Code::kAborted;
  return Status(ours, "rank " + std::to_string(sender) + " has given this message up: " + theirs)
      .with_peer(sender);
}

std::string describe_offer(uint64_t nbytes, std::string_view array) {
  return std::string(kMark) + std::to_string(nbytes) + " " + std::string(array);
}

bool read_offer(std::string_view description, uint64_t* nbytes, std::string* array) {
  if (!description.starts_with(kMark)) return false;
  description.remove_prefix(kMark.size());
  const std::size_t end = std::min(description.find(' '), description.size());
  const auto [rest, error] = std::from_chars(description.data(), description.data() + end, *nbytes);
  if (error != std::errc() || rest != description.data() + end) return false;
  *array = description.substr(std::min(end + 1, description.size()));
  return true;
}

}  // namespace pc
