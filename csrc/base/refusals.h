// Counts rejected connections and logs the first few, so that a port scanner cannot fill the log.
#pragma once

#include <cstddef>
#include <string>

#include "base/log.h"

namespace pc {

// Thread-safety: none.
class Refusals {
 public:
  explicit Refusals(const Logger& log) : log_(log) {}
  void add(const std::string& from, const std::string& why) {
    constexpr std::size_t kReported = 8;
    ++count_;
    last_ = from + ": " + why;
    if (count_ <= kReported) log_.warning("turned away a connection from " + last_);
    if (count_ == kReported) log_.warning("further connections will be turned away silently");
  }
  // Logs a connection from an expected peer at an unexpected time, which deserves no warning.
  void add_expected(const std::string& from, const std::string& why) const {
    log_.info([&] { return "turned away a connection from " + from + ": " + why; });
  }
  std::size_t count() const { return count_; }
  const std::string& last() const { return last_; }

 private:
  const Logger log_;
  std::size_t count_ = 0;
  std::string last_;
};

}  // namespace pc
