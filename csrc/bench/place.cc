#include "bench/place.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/env.h"
#include "bench/numbers.h"

namespace pc::bench {
namespace {

// Between that file and this one alone: the job's id in hexadecimal, and where its key is from, for people.
constexpr const char* kJob = "PYCOLLECTIVE_BENCH_JOB";
constexpr const char* kKeySource = "PYCOLLECTIVE_BENCH_KEY_SOURCE";

std::string variable(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): there are no threads yet
  return value == nullptr ? "" : value;
}

Result<JobId> job_from(const std::string& digits) {
  JobId job;
  bool right = digits.size() == 2 * job.size();
  for (std::size_t i = 0; right && i < job.size(); ++i) {
    unsigned value = 0;
    const char* const begin = digits.data() + 2 * i;
    right = std::from_chars(begin, begin + 2, value, 16).ptr == begin + 2;
    job[i] = static_cast<std::byte>(value);
  }
  if (right) return job;
  return Status(Code::kInvalidArgument, std::string(kJob) + " is not 32 hexadecimal digits");
}

Result<JobKey> key_from_descriptor() {
  PC_ASSIGN_OR_RETURN(const int64_t fd, env_integer(Env::kKeyFd));
  JobKey::Bytes bytes;
  const ssize_t length = ::pread(static_cast<int>(fd), bytes.data(), bytes.size(), 0);
  if (length == static_cast<ssize_t>(bytes.size())) return JobKey(bytes);
  return system_error("reading the job's key from descriptor " + std::to_string(fd),
                      length < 0 ? errno : EIO);
}

std::vector<std::string> listed(const std::string& text) {
  return text.empty() ? std::vector<std::string>() : split(text);
}

}  // namespace

Result<std::optional<Place>> place_from_environment() {
  const std::string job = variable(kJob);
  if (job.empty() && env_is_set(Env::kRank)) {
    return Status(
        Code::kInvalidArgument,
        "PYCOLLECTIVE_RANK is set, so a launcher has started this program as one of several ranks, but it "
        "cannot join them by itself: start the command `pycollective-bench`, which pip installs");
  }
  if (job.empty()) return std::optional<Place>();
  Place place;
  PC_ASSIGN_OR_RETURN(const int64_t rank, env_integer(Env::kRank));
  PC_ASSIGN_OR_RETURN(const int64_t size, env_integer(Env::kWorldSize));
  place.rank = static_cast<Rank>(rank);
  place.size = static_cast<Rank>(size);
  if (size == 1) return std::optional<Place>(std::move(place));
  PC_ASSIGN_OR_RETURN(const std::string stores, env_text(Env::kStore));
  PC_ASSIGN_OR_RETURN(const std::string listen, env_text(Env::kInterface));
  PC_ASSIGN_OR_RETURN(const std::string security, env_text(Env::kSecurity));
  PC_ASSIGN_OR_RETURN(place.credentials.job, job_from(job));
  PC_ASSIGN_OR_RETURN(place.credentials.key, key_from_descriptor());
  place.stores = listed(stores);
  place.listen = listed(listen);
  place.credentials.key_source = variable(kKeySource);
  place.credentials.encrypts = security == "encrypt";
  return std::optional<Place>(std::move(place));
}

}  // namespace pc::bench
