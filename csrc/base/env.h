// Every PYCOLLECTIVE_* environment variable, in one table. The getters, their error messages and
// docs/environment.md all use it. Every call of a getter reads the environment; values are never
// kept.
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
  std::string_view fallback;  // the value when unset, in the variable's own notation; empty: none
  std::string_view choices;   // kChoice: the allowed values, separated by spaces
  double least, most;         // kInteger and kSeconds: the allowed range, both ends included
  std::string_view meaning;   // one sentence
  std::string_view since;     // the first version that has it
};

std::span<const EnvVariable> environment_table();
const EnvVariable& describe(Env variable);
std::string environment_markdown();  // the text of docs/environment.md

// An empty variable counts as unset. The getter must fit the variable's type (env_text reads
// kChoice too). A getter fails with kInvalidArgument if the value is malformed (the error names the
// variable, the value and what is allowed), or if the variable is unset without a fallback. An
// unset text that the user sets is empty instead.
bool env_is_set(Env variable);
Result<std::string> env_text(Env variable);
Result<int64_t> env_integer(Env variable);
Result<double> env_seconds(Env variable);

}  // namespace pc
