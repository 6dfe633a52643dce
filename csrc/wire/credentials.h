// The credentials with which members of a job authenticate their connections.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "base/export.h"
#include "base/status.h"

namespace pc {

// Identifies the job. It is no secret: it separates jobs that use the same address.
using JobId = std::array<std::byte, 16>;
std::string fingerprint(const JobId& job);  // 8 hex digits

// The job's secret. Wiped on destruction, never printed.
class JobKey {
 public:
  static constexpr std::size_t kBytes = 32;
  using Bytes = std::array<std::byte, kBytes>;
  JobKey() = default;
  explicit JobKey(const Bytes& bytes) : bytes_(bytes) {}
  JobKey(const JobKey&) = default;
  JobKey& operator=(const JobKey&) = default;
  JobKey(JobKey&&) = default;
  JobKey& operator=(JobKey&&) = default;
  PC_EXPORT ~JobKey();
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_ = {};
};
// Identifies a key without revealing anything about it, so that errors can show which keys differ.
using KeyId = std::array<std::byte, 4>;
KeyId key_id(const JobKey& key);
std::string to_string(const KeyId& id);  // 8 hex digits

struct Credentials {
  JobId job = {};
  JobKey key;
  std::string key_source;  // for error texts: "/home/ann/.config/pycollective/key"
  // True if data connections are encrypted; store and control connections always are. All members
  // must have the same value.
  bool encrypts = false;
};

// Uses the kernel's random numbers.
PC_EXPORT Status fill_randomly(std::span<std::byte> bytes);

}  // namespace pc
