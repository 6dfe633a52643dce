// The list of keys in a store's answer: for each key its length, u16, and its bytes.
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

// `list` must outlive the reader.
class KeyListReader {
 public:
  explicit KeyListReader(std::string_view list) : rest_(list) {}
  // Returns the next key, or nullopt after the last key or if the rest is truncated.
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
