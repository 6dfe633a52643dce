#include "bench/launch.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "store/tcp_server.h"

namespace pc::bench {
namespace {

// If the first rank to end is not the cause (kUnsupported, kConsequence), the other ranks have this
// long to fail by themselves.
constexpr double kSettleS = 1;
constexpr double kGraceS = 5;  // between SIGTERM and SIGKILL
constexpr std::size_t kLongestWords = 16 << 10;

struct Child {
  Rank rank = 0;
  pid_t pid = 0;
  Fd talk;  // sends the store's address to the child and receives its error; closed when the child ends
};

// How a rank failed. The error that the rank sends begins with this character. If several ranks
// failed, the first in this order is the cause: a failure matters more than a measurement that is
// not possible here.
enum Manner : char { kFailed = 'a', kUnsupported = 'b', kConsequence = 'c' };
constexpr int kCannotHere = 77;

// Returns true if a rank that ends with `status` only reports another rank's end.
bool is_consequence(const Status& status) {
  constexpr std::array kCodes = {Code::kPeerFailure, Code::kPeerExited, Code::kPeerInterrupted,
                                 Code::kAborted};
  return std::find(kCodes.begin(), kCodes.end(), status.code()) != kCodes.end();
}

int exit_code(const Status& status) {
  return status.is_ok() ? 0 : status.code() == Code::kUnsupported ? kCannotHere : 1;
}

Manner manner_of(const Status& status) {
  if (is_consequence(status)) return kConsequence;
  return exit_code(status) == kCannotHere ? kUnsupported : kFailed;
}

struct Failure {
  Rank rank = 0;
  Manner manner = kFailed;
  std::string words;
};

// Returns the credentials of a world that this program starts.
Result<Credentials> new_job() {
  JobId job;
  JobKey::Bytes key;
  PC_TRY(fill_randomly(job));
  PC_TRY(fill_randomly(key));
  return Credentials{job, JobKey(key), "pycollective-bench"};
}

int complain(const std::string& what) {
  std::fprintf(stderr, "pycollective-bench: %s\n", what.c_str());
  return 1;
}

std::string receive(const Fd& talk) {
  std::string text(kLongestWords, '\0');
  const ssize_t length = ::recv(talk.get(), text.data(), text.size(), 0);
  text.resize(length < 0 ? 0 : static_cast<std::size_t>(length));
  return text;
}

Status send(const Fd& talk, const std::string& text) {
  const std::size_t length = std::min(text.size(), kLongestWords);
  if (::send(talk.get(), text.data(), length, MSG_NOSIGNAL) >= 0 || errno == EPIPE) return Status::ok();
  return system_error("sending to a rank", errno);
}

// Runs in the child. An empty address means that the parent has given up.
int be_rank(Role role, const Fd& talk, pid_t parent, const Run& run) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) return 1;
  role.stores = {receive(talk)};
  if (role.stores[0].empty()) return 1;
  const Status status = run(role);
  if (status.is_ok()) return 0;
  (void)send(talk, static_cast<char>(manner_of(status)) + status.to_string());
  return 1;
}

// Runs in the parent: waits for all ranks, ends the other ranks when one has failed, and prints the
// first failure last.
class Family {
 public:
  explicit Family(std::vector<Child> children) : children_(std::move(children)) {}

  int wait() {
    while (!children_.empty()) {
      std::vector<pollfd> ends;
      for (const Child& each : children_) ends.push_back({each.talk.get(), POLLIN, 0});
      const int slice = stop_ ? stop_->slice_ms(100'000) : -1;
      if (::poll(ends.data(), ends.size(), slice) < 0 && errno != EINTR)
        return complain(system_error("poll", errno).message());
      for (std::size_t i = ends.size(); i-- > 0;) {
        if (ends[i].revents != 0) reap(i);
      }
      if (stop_ && stop_->expired()) stop();
    }
    return report();
  }

 private:
  void reap(std::size_t index) {
    const Child each = std::move(children_[index]);
    children_.erase(children_.begin() + static_cast<std::ptrdiff_t>(index));
    const std::string words = receive(each.talk);
    int status = 0;
    while (::waitpid(each.pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (status == 0) return;
    if (failures_.empty() || !stopping_) failures_.push_back(failure(each, words, status));
    if (!stopping_ && failures_.back().manner == kFailed) stop_ = Deadline::after(0);
    if (!stop_) stop_ = Deadline::after(kSettleS);
  }

  static Failure failure(const Child& each, const std::string& words, int status) {
    if (!words.empty()) return {each.rank, static_cast<Manner>(words[0]), words.substr(1)};
    const std::string process = "process " + std::to_string(each.pid) + " ";
    if (WIFEXITED(status))
      return {each.rank, kFailed, process + "ended with code " + std::to_string(WEXITSTATUS(status))};
    const int number = WTERMSIG(status);
    return {each.rank, kFailed,
            process + "was killed by signal " + std::to_string(number) + " (" + ::strsignal(number) + ")"};
  }

  void stop() {
    for (const Child& each : children_) ::kill(each.pid, stopping_ ? SIGKILL : SIGTERM);
    stopping_ = true;
    stop_ = Deadline::after(kGraceS);
  }

  int report() {
    if (failures_.empty()) return 0;
    const auto cause =
        std::min_element(failures_.begin(), failures_.end(),
                         [](const Failure& a, const Failure& b) { return a.manner < b.manner; });
    std::rotate(failures_.begin(), cause, cause + 1);
    const Failure& first = failures_.front();
    if (first.manner == kUnsupported) return complain(first.words), kCannotHere;  // all ranks report the same
    for (std::size_t i = 1; i < failures_.size(); ++i)
      complain("rank " + std::to_string(failures_[i].rank) + ": " + failures_[i].words);
    return complain("rank " + std::to_string(first.rank) + " failed first: " + first.words);
  }

  std::vector<Child> children_;
  std::vector<Failure> failures_;
  std::optional<Deadline> stop_;  // when to end the remaining ranks
  bool stopping_ = false;         // SIGTERM has been sent
};

}  // namespace

int complain(const Status& status) {
  const char* const prefix = is_consequence(status) ? "pycollective.PeerFailure" : "pycollective-bench";
  std::fprintf(stderr, "%s: %s\n", prefix, status.to_string().c_str());
  return exit_code(status);
}

int launch_processes(Rank count, const Run& run) {
  Result<Credentials> job = new_job();
  if (!job.is_ok()) return complain(job.status());
  const pid_t parent = ::getpid();
  std::vector<Child> children;
  for (Rank rank = 0; rank < count; ++rank) {
    std::array<int, 2> ends = {};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) < 0)
      return complain(system_error("socketpair", errno).message());
    Fd ours(ends[0]);
    const Fd theirs(ends[1]);
    const pid_t pid = ::fork();
    if (pid < 0) return complain(system_error("fork", errno).message());
    if (pid == 0) {
      children.clear();
      ours.reset();
      return be_rank({rank, count, {}, {}, job.value()}, theirs, parent, run);
    }
    children.push_back({rank, pid, std::move(ours)});
  }
  const Result<std::unique_ptr<TcpStoreServer>> server = TcpStoreServer::open({"127.0.0.1:0"}, job.value());
  if (!server.is_ok()) return complain(server.status());
  for (const Child& each : children) {
    const Status sent = send(each.talk, server.value()->addresses().front());
    if (!sent.is_ok()) return complain(sent.message());
  }
  return Family(std::move(children)).wait();
}

int launch_threads(Rank count, const Run& run) {
  const Result<Credentials> job = new_job();
  if (!job.is_ok()) return complain(job.status());
  const Result<std::unique_ptr<TcpStoreServer>> server = TcpStoreServer::open({"127.0.0.1:0"}, job.value());
  if (!server.is_ok()) return complain(server.status());
  std::vector<Status> ends(static_cast<std::size_t>(count));
  std::vector<std::thread> ranks;
  for (Rank rank = 0; rank < count; ++rank) {
    ranks.emplace_back([&, rank] {
      ends[static_cast<std::size_t>(rank)] =
          run({rank, count, {server.value()->addresses().front()}, {}, job.value()});
    });
  }
  for (std::thread& each : ranks) each.join();
  std::erase_if(ends, [](const Status& end) { return end.is_ok(); });
  const auto cause = std::min_element(
      ends.begin(), ends.end(), [](const Status& a, const Status& b) { return manner_of(a) < manner_of(b); });
  return cause == ends.end() ? 0 : complain(*cause);
}

}  // namespace pc::bench
