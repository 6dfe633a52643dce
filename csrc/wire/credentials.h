// What a member of a job has and a pending connection has not.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "base/export.h"
#include "base/status.h"

namespace pc {

// Names the job. No secret: it keeps jobs apart that meet at one address.
using JobId = std::array<std::byte, 16>;
std::string fingerprint(const JobId& job);  // 8 hex digits

// The job's secret. Wiped when it goes; never printed.
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
// Names a key and tells nothing about it: so that people see which keys differ.
using KeyId = std::array<std::byte, 4>;
KeyId key_id(const JobKey& key);
std::string to_string(const KeyId& id);  // 8 hex digits

struct Credentials {
  JobId job = {};
  JobKey key;
  std::string key_source;  // for people: "/home/ann/.config/pycollective/key"
  bool encrypts = false;   // data too; store and control connections always are. All members say the same
};

// From the kernel.
PC_EXPORT Status fill_randomly(std::span<std::byte> bytes);

}  // namespace pc
