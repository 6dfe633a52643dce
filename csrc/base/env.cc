#include "base/env.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <vector>

#include "base/enum_order.h"

namespace pc {
namespace {

constexpr double kMostRanks = 2147483647, kMostSeconds = 1e9;

constexpr std::array<EnvVariable, kEnvCount> kTable = {{
    {Env::kLog, "PYCOLLECTIVE_LOG", EnvType::kChoice, EnvSetBy::kUser, "warn", "error warn info debug", 0, 0,
     "Messages of this level and of all more serious levels are written to stderr.", "0.1"},
    {Env::kTimeoutS, "PYCOLLECTIVE_TIMEOUT_S", EnvType::kSeconds, EnvSetBy::kUser, "600", "", 0.001,
     kMostSeconds, "Deadline of `init` and of every call that has no timeout of its own.", "0.1"},
    {Env::kTune, "PYCOLLECTIVE_TUNE", EnvType::kText, EnvSetBy::kUser, "", "", 0, 0,
     "Rows that precede the algorithm table, for example "
     "`allreduce:0-64k:recursive_doubling;allreduce:64k-inf:ring`. All ranks use rank 0's value.",
     "0.1"},
    {Env::kTransport, "PYCOLLECTIVE_TRANSPORT", EnvType::kChoice, EnvSetBy::kUser, "auto", "auto tcp shm", 0,
     0,
     "How ranks reach each other. `auto`: ranks of one host that can share memory do so; everything else "
     "uses TCP. `tcp`: no memory is shared. `shm`: `init` fails unless all ranks share memory. All ranks "
     "use rank 0's value.",
     "0.1"},
    {Env::kRank, "PYCOLLECTIVE_RANK", EnvType::kInteger, EnvSetBy::kLauncher, "", "", 0, kMostRanks,
     "This process's rank in the job.", "0.1"},
    {Env::kWorldSize, "PYCOLLECTIVE_WORLD_SIZE", EnvType::kInteger, EnvSetBy::kLauncher, "", "", 1,
     kMostRanks, "Number of ranks in the job.", "0.1"},
    {Env::kLocalRank, "PYCOLLECTIVE_LOCAL_RANK", EnvType::kInteger, EnvSetBy::kLauncher, "", "", 0,
     kMostRanks, "This process's rank among those on its host.", "0.1"},
    {Env::kLocalWorldSize, "PYCOLLECTIVE_LOCAL_WORLD_SIZE", EnvType::kInteger, EnvSetBy::kLauncher, "", "", 1,
     kMostRanks, "Number of ranks on this host.", "0.1"},
    {Env::kStore, "PYCOLLECTIVE_STORE", EnvType::kText, EnvSetBy::kLauncher, "", "", 0, 0,
     "`host:port` of the store where the ranks find each other.", "0.1"},
    {Env::kKeyFd, "PYCOLLECTIVE_KEY_FD", EnvType::kInteger, EnvSetBy::kLauncher, "", "", 0, kMostRanks,
     "Inherited file descriptor from which the 32-byte job key is read; the key itself is never in the "
     "environment.",
     "0.1"},
    {Env::kPort, "PYCOLLECTIVE_PORT", EnvType::kInteger, EnvSetBy::kUser, "", "", 1, 65535,
     "Port of rank 0's store if RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT define the "
     "placement "
     "of this process. Unset: it is derived from them. MASTER_PORT is never bound.",
     "0.1"},
    {Env::kCheck, "PYCOLLECTIVE_CHECK", EnvType::kChoice, EnvSetBy::kUser, "on", "off on strict", 0, 0,
     "Whether ranks that make different calls are detected before their data is used. `strict`: every "
     "collective also waits until all ranks have made it, so that all of them raise the error in that call; "
     "array shapes and the parameters of reduced gradients are compared as well. All ranks use rank 0's "
     "value.",
     "0.1"},
    {Env::kLauncher, "PYCOLLECTIVE_LAUNCHER", EnvType::kChoice, EnvSetBy::kUser, "",
     "pycollective torchrun variables openmpi slurm-pmi2 hydra slurm paddle single", 0, 0,
     "The launcher that defines the placement of this process, if the variables of several launchers are "
     "set. "
     "Unset: the innermost one.",
     "0.1"},
    {Env::kInterface, "PYCOLLECTIVE_INTERFACE", EnvType::kText, EnvSetBy::kUser, "", "", 0, 0,
     "Network interfaces (`eth0`) or numeric addresses, separated by commas, on which this rank listens. "
     "Unset: the address from which this rank reaches rank 0.",
     "0.1"},
    {Env::kKeyFile, "PYCOLLECTIVE_KEY_FILE", EnvType::kText, EnvSetBy::kUser, "", "", 0, 0,
     "File with the job's key: 32 bytes or 64 hex digits, readable by its owner alone. Unset: see "
     "SECURITY.md.",
     "0.1"},
    {Env::kSecurity, "PYCOLLECTIVE_SECURITY", EnvType::kText, EnvSetBy::kUser, "auth", "", 0, 0,
     "`auth`, or a comma-separated list of `encrypt` (every connection is encrypted after its handshake) "
     "and `strict` (no key from a launcher's KVS). It must be the same on every rank.",
     "0.1"},
    {Env::kSingleCopy, "PYCOLLECTIVE_SINGLE_COPY", EnvType::kChoice, EnvSetBy::kUser, "auto", "auto off", 0,
     0,
     "Whether ranks that share memory may also read large arrays in each other's private memory, where the "
     "kernel allows it and it is faster. `off` on one rank turns it off in all groups of that rank.",
     "0.1"},
    {Env::kTcpSockets, "PYCOLLECTIVE_TCP_SOCKETS", EnvType::kInteger, EnvSetBy::kUser, "1", "", 1, 16,
     "Number of TCP connections for data between two ranks, for networks that limit the throughput of one "
     "connection. Collectives split more than 64 KiB over them; a message of `send` uses one of them. It "
     "must be the same on every rank.",
     "0.1"},
    {Env::kProfile, "PYCOLLECTIVE_PROFILE", EnvType::kText, EnvSetBy::kUser, "", "", 0, 0,
     "File with the profile of this machine, which `pycollective tune` writes, or `off`. Unset: "
     "`$XDG_CONFIG_HOME/pycollective/profile` if it exists (`~/.config` if that variable is not set). A "
     "profile of another machine is refused. All ranks use rank 0's profile.",
     "0.1"},
    {Env::kCudaLib, "PYCOLLECTIVE_CUDA_LIB", EnvType::kText, EnvSetBy::kUser, "", "", 0, 0,
     "File of the CUDA driver. Unset: what the loader finds as `libcuda.so.1`.", "0.1"},
    {Env::kNcclLib, "PYCOLLECTIVE_NCCL_LIB", EnvType::kText, EnvSetBy::kUser, "", "", 0, 0,
     "File of NCCL; no other file is tried. Unset: the copy that the process has already loaded, then the "
     "wheel `nvidia-nccl`, then `lib` below `NCCL_ROOT`, `NCCL_HOME`, `CONDA_PREFIX` and `CUDA_HOME`, then "
     "what the loader finds.",
     "0.1"},
    {Env::kGpu, "PYCOLLECTIVE_GPU", EnvType::kChoice, EnvSetBy::kUser, "auto", "auto staged", 0, 0,
     "How arrays on GPUs are transferred. `auto`: by NCCL if all ranks of a group can use it, else from "
     "array to array if the ranks reach each other's arrays, else through the host. `staged`: through the "
     "host, in every group of this rank.",
     "0.1"},
    {Env::kReplaces, "PYCOLLECTIVE_REPLACES", EnvType::kText, EnvSetBy::kUser, "", "", 0, 0,
     "Backends of torch.distributed that pycollective replaces: `gloo`, `nccl`, or both separated by a "
     "comma. Programs that name them run unchanged. See docs/torch.md.",
     "0.1"},
    {Env::kStreamCheck, "PYCOLLECTIVE_STREAM_CHECK", EnvType::kChoice, EnvSetBy::kUser, "off", "off on", 0, 0,
     "Whether a stream waits after each call by NCCL until all ranks are known to have made it; if they "
     "have not, floating-point results become NaN. See docs/gpu.md.",
     "0.1"},
}};
static_assert(in_enum_order(kTable, &EnvVariable::id));

std::string_view raw(const EnvVariable& row) {
  // The table's names are literals and therefore end in a zero byte. getenv is thread-safe here,
  // because the runtime never writes the environment.
  const char* value = std::getenv(row.name.data());  // NOLINT(concurrency-mt-unsafe)
  return value != nullptr ? value : "";
}

std::string number(double value) {
  std::array<char, 32> text = {};
  const std::to_chars_result end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  return std::string(text.data(), end.ptr);
}

std::vector<std::string_view> choices_of(const EnvVariable& row) {
  std::vector<std::string_view> words;
  for (std::string_view rest = row.choices; !rest.empty();) {
    words.push_back(rest.substr(0, rest.find(' ')));
    rest.remove_prefix(std::min(words.back().size() + 1, rest.size()));
  }
  return words;
}

// Returns what the value may be: "error, warn, info or debug", "an integer from 1 to 65535".
std::string allowed(const EnvVariable& row) {
  switch (row.type) {
    case EnvType::kText: return "text";
    case EnvType::kInteger: return "an integer from " + number(row.least) + " to " + number(row.most);
    case EnvType::kSeconds: return "seconds from " + number(row.least) + " to " + number(row.most);
    case EnvType::kChoice: break;
  }
  std::string list;
  const std::vector<std::string_view> words = choices_of(row);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) list += i + 1 == words.size() ? " or " : ", ";
    list += words[i];
  }
  return list;
}

Status malformed(const EnvVariable& row, std::string_view value) {
  std::string message(row.name);
  message += "='" + std::string(value) + "' is not allowed: it must be " + allowed(row);
  return Status(Code::kInvalidArgument, std::move(message));
}

// Returns the text of the variable if it is set, else its fallback. Fails if the variable is not
// set and must have a value.
Result<std::string> value_of(const EnvVariable& row) {
  const std::string_view set = raw(row);
  if (!set.empty()) return std::string(set);
  const bool may_be_empty = row.type == EnvType::kText && row.set_by == EnvSetBy::kUser;
  if (!row.fallback.empty() || may_be_empty) return std::string(row.fallback);
  std::string message(row.name);
  message += " is not set: it must be " + allowed(row);
  if (row.set_by == EnvSetBy::kLauncher) message += ", and the launcher sets it";
  return Status(Code::kInvalidArgument, std::move(message));
}

template <class Number>
Result<Number> parsed(const EnvVariable& row) {
  PC_ASSIGN_OR_RETURN(const std::string text, value_of(row));
  Number number = 0;
  const char* const end = text.data() + text.size();
  const std::from_chars_result read = std::from_chars(text.data(), end, number);
  const bool in_range = static_cast<double>(number) >= row.least && static_cast<double>(number) <= row.most;
  if (read.ec != std::errc() || read.ptr != end || !in_range)
    return malformed(row, text);  // NaN is never in range
  return number;
}

// Appends a list item, wrapped at the page width. A word that is wider than the page ends the
// wrapping: the rest of the item stays on one line.
void append_item(std::string& page, std::string item) {
  constexpr std::size_t kPageWidth = 120;
  std::size_t line = 0;
  while (item.size() - line > kPageWidth) {
    const std::size_t blank = item.rfind(' ', line + kPageWidth);
    if (blank == std::string::npos || blank < line + 2) break;  // the next word is wider than the page
    item.replace(blank, 1, "\n  ");
    line = blank + 1;
  }
  page += item + "\n";
}

void append_section(std::string& page, EnvSetBy set_by) {
  page += "\n";
  for (const EnvVariable& row : kTable) {
    if (row.set_by != set_by) continue;
    const std::string fallback = row.fallback.empty() ? "unset" : "`" + std::string(row.fallback) + "`";
    append_item(page, "- `" + std::string(row.name) + "` (default: " + fallback + "; " + allowed(row) +
                          "; since " + std::string(row.since) + "): " + std::string(row.meaning));
  }
}

}  // namespace

std::span<const EnvVariable> environment_table() { return kTable; }
const EnvVariable& describe(Env variable) { return kTable[static_cast<std::size_t>(variable)]; }

bool env_is_set(Env variable) { return !raw(describe(variable)).empty(); }

Result<std::string> env_text(Env variable) {
  const EnvVariable& row = describe(variable);
  Result<std::string> text = value_of(row);
  if (!text.is_ok() || row.type != EnvType::kChoice) return text;
  for (const std::string_view word : choices_of(row)) {
    if (word == text.value()) return text;
  }
  return malformed(row, text.value());
}

Result<int64_t> env_integer(Env variable) { return parsed<int64_t>(describe(variable)); }
Result<double> env_seconds(Env variable) { return parsed<double>(describe(variable)); }

std::string environment_markdown() {
  std::string page =
      "# Environment variables\n\n"
      "This page lists the environment variables that pycollective reads, with the default, the allowed\n"
      "values and the first version of each; `pycollective env` prints it. An empty variable counts as\n"
      "unset. A value that is not allowed is an error when it is read, never ignored. The page is generated\n"
      "from the table in `csrc/base/env.cc`; change that table, not this page.\n\n"
      "## For you to set\n";
  append_section(page, EnvSetBy::kUser);
  page += "\n## Set by the launcher for each process\n";
  append_section(page, EnvSetBy::kLauncher);
  return page;
}

}  // namespace pc
