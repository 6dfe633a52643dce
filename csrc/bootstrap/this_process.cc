// Describes the process of this rank and the host on which it runs.
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <thread>

#include "base/fd.h"
#include "bootstrap/rendezvous.h"

namespace pc {
namespace {

// Returns an empty text if the kernel does not provide the id. Running out of descriptors is an
// error: without the id, the other ranks would take this host for a different one.
Result<std::string> boot_id() {
  const char* const path = "/proc/sys/kernel/random/boot_id";
  const Fd fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd.valid() && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
    return system_error(path, errno);
  char text[64] = "";
  const ssize_t count = fd.valid() ? ::read(fd.get(), text, sizeof text) : 0;
  const std::string line(text, count > 0 ? static_cast<std::size_t>(count) : 0);
  return line.substr(0, line.find('\n'));
}

// Returns the number of cores that the cgroup's quota allows. The file contains quota and period,
// "150000 100000", or "max 100000" if there is no limit.
double cgroup_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return INFINITY;
  return std::strtod(quota.c_str(), nullptr) / period;
}

double usable_cores() {
  double cores = std::max(1u, std::thread::hardware_concurrency());
  cpu_set_t mask;
  if (::sched_getaffinity(0, sizeof mask, &mask) == 0) cores = CPU_COUNT(&mask);
  return std::min(cores, cgroup_cores());
}

}  // namespace

Result<HostMap::Entry> this_process() {
  HostMap::Entry entry;
  char name[256] = "unknown";
  if (::gethostname(name, sizeof name - 1) == 0) entry.host_name = name;
  // The name is published in lines of tab-separated fields, so it may contain no control
  // characters.
  std::replace_if(
      entry.host_name.begin(), entry.host_name.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  PC_ASSIGN_OR_RETURN(const std::string boot, boot_id());
  struct stat network {};
  const bool known = ::stat("/proc/self/ns/net", &network) == 0;
  entry.host_key = (boot.empty() ? entry.host_name : boot) + "/" + std::to_string(known ? network.st_ino : 0);
  entry.pid = ::getpid();
  struct stat pids {};
  const bool pids_known = ::stat("/proc/self/ns/pid", &pids) == 0;
  if (pids_known && !boot.empty()) entry.pid_key = boot + "/" + std::to_string(pids.st_ino);
  return entry;
}

bool more_ranks_than_cores(Rank local) { return local > usable_cores(); }

}  // namespace pc
