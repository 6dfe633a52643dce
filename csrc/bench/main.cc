// pycollective-bench: forks n ranks on this host, lets them measure, prints the table on rank 0.
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "base/fd.h"
#include "bench/measure.h"
#include "bench/options.h"
#include "bench/output.h"
#include "comm/runtime.h"
#include "store/tcp_client.h"
#include "store/tcp_server.h"

namespace pc::bench {
namespace {

constexpr double kTimeoutS = 60;

int complain(const Status& status) {
  std::fprintf(stderr, "pycollective-bench: %s\n", status.to_string().c_str());
  return 1;
}

Result<JobId> new_job() {
  JobId job = {};
  if (::getrandom(job.data(), job.size(), 0) == static_cast<ssize_t>(job.size())) return job;
  return system_error("getrandom", errno);
}

Result<bool> measure_all(Communicator& world, const Options& options) {
  bool right = true;
  for (const Operation* operation : options.operations) {
    if (world.rank() == 0) print_header(*operation, world.size(), options.explain);
    const std::size_t rows = operation->moves_data ? options.sizes.size() : 1;
    for (std::size_t i = 0; i < rows; ++i) {
      PC_ASSIGN_OR_RETURN(const Row row,
                          measure(world, *operation, options.sizes[i], options.dtype, options.iterations));
      if (world.rank() == 0) print_row(row, options.dtype);
      right = right && row.wrong == 0;
    }
  }
  return right;
}

Result<bool> run_rank(const Options& options, Rank rank, const JobId& job, const std::string& store) {
  RuntimeOptions native;
  native.rank = rank;
  native.size = options.ranks;
  native.job = job;
  native.timeout_s = kTimeoutS;
  native.tune = options.tune;
  const Deadline deadline = Deadline::after(kTimeoutS);
  PC_ASSIGN_OR_RETURN(native.store, connect_tcp_store({store}, job, deadline));
  PC_ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime, Runtime::create(std::move(native), deadline));
  PC_ASSIGN_OR_RETURN(const bool right, measure_all(runtime->world(), options));
  PC_TRY(runtime->shutdown(Deadline::after(kTimeoutS)));
  return right;
}

// The child's side: learns the store's address from the pipe. An empty one means that the parent has given up.
int child(const Options& options, Rank rank, const JobId& job, const Fd& pipe, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) return 1;
  std::string store(256, '\0');
  const ssize_t length = ::read(pipe.get(), store.data(), store.size());
  if (length <= 0) return 1;
  store.resize(static_cast<std::size_t>(length));
  const Result<bool> right = run_rank(options, rank, job, store);
  if (!right.is_ok()) return complain(right.status());
  return right.value() ? 0 : 1;
}

// Waits for all; the first that fails ends the others.
int wait_for(std::vector<pid_t> children) {
  int code = 0;
  while (!children.empty()) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, 0);
    if (ended < 0 && errno == EINTR) continue;
    if (ended < 0) return complain(system_error("waitpid", errno));
    std::erase(children, ended);
    if (status == 0 || code != 0) continue;
    code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (WIFSIGNALED(status))
      std::fprintf(stderr, "pycollective-bench: a rank was killed by signal %d\n", WTERMSIG(status));
    for (const pid_t pid : children) ::kill(pid, SIGTERM);
  }
  return code;
}

int run(const Options& options) {
  Result<JobId> job = new_job();
  if (!job.is_ok()) return complain(job.status());
  const pid_t parent = ::getpid();
  std::vector<pid_t> children;
  std::vector<Fd> pipes;
  for (Rank rank = 0; rank < options.ranks; ++rank) {  // before any thread: fork copies only the caller
    int ends[2];
    if (::pipe(ends) < 0) return complain(system_error("pipe", errno));
    const Fd read_end(ends[0]);
    pipes.emplace_back(ends[1]);
    const pid_t pid = ::fork();
    if (pid < 0) return complain(system_error("fork", errno));
    if (pid == 0) {
      pipes.clear();
      return child(options, rank, job.value(), read_end, parent);
    }
    children.push_back(pid);
  }
  const Result<std::unique_ptr<TcpStoreServer>> server = TcpStoreServer::open("127.0.0.1", 0, job.value());
  if (!server.is_ok()) return complain(server.status());
  const std::string& address = server.value()->address();
  ::signal(SIGPIPE, SIG_IGN);  // a rank that is gone already is wait_for's business
  for (const Fd& pipe : pipes) {
    if (::write(pipe.get(), address.data(), address.size()) < 0 && errno != EPIPE) {
      return complain(system_error("write", errno));
    }
  }
  return wait_for(children);
}

}  // namespace
}  // namespace pc::bench

int main(int argc, char** argv) {
  const pc::Result<pc::bench::Options> options =
      pc::bench::parse(std::vector<std::string>(argv + 1, argv + argc));
  if (!options.is_ok()) {
    std::fprintf(stderr, "pycollective-bench: %s\n%s", options.status().message().c_str(),
                 pc::bench::usage().c_str());
    return 2;
  }
  if (options.value().help) {
    std::fputs(pc::bench::usage().c_str(), stdout);
    return 0;
  }
  return pc::bench::run(options.value());
}
