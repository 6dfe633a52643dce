// Keys as a store lists them in an answer: for each its length, u16, and its bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace pc {

inline void append_key(std::string& list, std::string_view key) {
  const auto nbytes = static_cast<uint16_t>(key.size());
  list.append(reinterpret_cast<const char*>(&nbytes), sizeof nbytes).append(key);
}

// `list` must outlive it.
class KeyListReader {
 public:
  explicit KeyListReader(std::string_view list) : rest_(list) {}
  // The next key. Nothing: it was the last one, or what follows is cut off.
  std::optional<std::string_view> next() {
    uint16_t nbytes = 0;
    if (rest_.size() < sizeof nbytes) return std::nullopt;
    std::memcpy(&nbytes, rest_.data(), sizeof nbytes);
    rest_.remove_prefix(sizeof nbytes);
    if (rest_.size() < nbytes) return std::nullopt;
    const std::string_view key = rest_.substr(0, nbytes);
    rest_.remove_prefix(nbytes);
    return key;
  }

 private:
  std::string_view rest_;
};

}  // namespace pc
