// One table of all PYCOLLECTIVE_* environment variables. The getters, their error messages and
// docs/environment.md are derived from it. Each call of a getter reads the environment again; no
// value is cached.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace pc {

enum class Env : uint8_t {
  kLog,
  kTimeoutS,
  kTune,
  kTransport,
  kRank,
  kWorldSize,
  kLocalRank,
  kLocalWorldSize,
  kStore,
  kKeyFd,
  kPort,
  kCheck,
  kLauncher,
  kInterface,
  kKeyFile,
  kSecurity,
  kSingleCopy,
  kTcpSockets,
  kProfile,
  kCudaLib,
  kNcclLib,
  kGpu,
  kReplaces,
  kStreamCheck,
};
inline constexpr int kEnvCount = 24;

enum class EnvType : uint8_t { kText, kChoice, kInteger, kSeconds };
enum class EnvSetBy : uint8_t { kUser, kLauncher };

struct EnvVariable {
  Env id;
  std::string_view name;
  EnvType type;
  EnvSetBy set_by;
  // value if the variable is unset, as a user would write it; empty if there is none
  std::string_view fallback;
  std::string_view choices;  // kChoice: the allowed values, separated by spaces
  double least, most;        // kInteger and kSeconds: the allowed range, both ends included
  std::string_view meaning;  // one sentence
  std::string_view since;    // the first version that has it
};

std::span<const EnvVariable> environment_table();
const EnvVariable& describe(Env variable);
std::string environment_markdown();  // the text of docs/environment.md

// A variable that is set to the empty string counts as unset. Each getter reads variables of its
// own type; env_text also reads kChoice. A getter fails with kInvalidArgument if the value is
// malformed; the error names the variable, the value and the allowed values. A getter also fails if
// the variable is unset and has no fallback. The exception is a kText variable of kUser, which is
// then empty.
bool env_is_set(Env variable);
Result<std::string> env_text(Env variable);
Result<int64_t> env_integer(Env variable);
Result<double> env_seconds(Env variable);

}  // namespace pc
