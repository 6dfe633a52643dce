// NCCL's version numbers. Up to 2.8 they were M*1000 + m*100 + p, since then M*10000 + m*100 + p:
// 2.28.9 is 22809.
#pragma once

#include <compare>
#include <string>

namespace pc::nccl {

struct Version {
  int major = 0, minor = 0, patch = 0;
  auto operator<=>(const Version&) const = default;
};

constexpr Version version_from_code(int code) {  // a code from ncclGetVersion
  const int unit = code < 10000 ? 1000 : 10000;
  return {code / unit, code % unit / 100, code % 100};
}
constexpr int code_of(const Version& version) {
  const bool old = version < Version{2, 9, 0};
  return version.major * (old ? 1000 : 10000) + version.minor * 100 + version.patch;
}
inline std::string text_of(const Version& version) {
  return std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.patch);
}

// The oldest version that has all required functions; it introduced ncclCommSplit.
inline constexpr Version kOldest{2, 18, 1};

}  // namespace pc::nccl
