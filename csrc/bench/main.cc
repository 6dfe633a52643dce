// pycollective-bench: one rank if a launcher has started it, otherwise the parent of ranks on this
// host.
#include <cstdio>
#include <string>
#include <vector>

#include "bench/command_line.h"
#include "bench/launch.h"
#include "bench/output.h"
#include "bench/rank.h"
#include "bench/role.h"

namespace pc::bench {
namespace {

constexpr Rank kRanks = 2;
constexpr int kUsage = 2;

// A launcher stops all ranks soon after one fails by itself. Ranks that do not print the reason
// therefore report a failure of rank 0, so that rank 0 has time to print the reason.
int refuse(const Status& status, bool says_why) {
  if (says_why)
    std::fprintf(stderr, "%spycollective-bench: %s\n", usage().c_str(), status.message().c_str());
  else
    std::fputs("pycollective.PeerFailure: rank 0 says what is wrong with the command line\n", stderr);
  return kUsage;
}

int run(const std::vector<std::string>& words) {
  const Result<std::optional<Role>> found = role_from_environment();
  if (!found.is_ok()) return complain(found.status());
  const std::optional<Role>& role = found.value();
  // an error in the command line is the same on every rank, so only rank 0 prints it
  const bool speaks = !role || role->rank == 0;
  const Result<Options> parsed = parse(words);
  if (!parsed.is_ok()) return refuse(parsed.status(), speaks);
  const Options& options = parsed.value();
  if (options.help) return speaks ? std::fputs(usage().c_str(), stdout) < 0 : 0;
  const bool threads = options.threads != 0;
  if (threads && role)
    return refuse(Status(Code::kInvalidArgument, "-t: the launcher has started the ranks"), speaks);
  const Rank size = role      ? role->size
                    : threads ? static_cast<Rank>(options.threads)
                              : options.ranks.value_or(kRanks);
  const Status usable = check(options, size);
  if (!usable.is_ok()) return refuse(usable, speaks);
  if (options.roofline) {
    const Status measured = speaks ? print_roofline(options) : Status::ok();
    return measured.is_ok() ? 0 : complain(measured);
  }
  const auto be_rank = [&](const Role& here) { return run_rank(options, here); };
  if (!role) return threads ? launch_threads(size, be_rank) : launch_processes(size, be_rank);
  const Status ended = be_rank(*role);
  return ended.is_ok() ? 0 : complain(ended);
}

}  // namespace
}  // namespace pc::bench

int main(int argc, char** argv) { return pc::bench::run(std::vector<std::string>(argv + 1, argv + argc)); }
