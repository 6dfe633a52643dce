#include "base/log.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <string>

#include "base/deadline.h"
#include "base/env.h"
#include "base/fd.h"

namespace pc {
namespace {

std::string_view name_of(LogLevel level) {
  switch (level) {
    case LogLevel::kError: return "error";
    case LogLevel::kWarning: return "warning";
    case LogLevel::kInfo: return "info";
    case LogLevel::kDebug: return "debug";
  }
  return "";
}

// Replaces control characters, because a message may quote text from a peer, and such text must not
// control the terminal.
void append_printable(std::string& out, std::string_view line) {
  for (const char c : line) {
    const bool control = (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f;
    out += control ? '?' : c;
  }
}

// Writes without blocking. Opens a second file description of the same stream, because O_NONBLOCK
// belongs to the description, which other processes share. A stream that cannot be reopened (a
// socket; a terminal of another user) or never blocks (a file) is used directly.
class Stream {
 public:
  explicit Stream(int fd) : fd_(fd) {
    struct stat status;
    if (::fstat(fd, &status) != 0) return;
    is_socket_ = S_ISSOCK(status.st_mode);
    if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode)) return;
    const std::string name = "/proc/self/fd/" + std::to_string(fd);
    ours_.reset(::open(name.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (ours_.valid()) fd_ = ours_.get();
  }
  // Returns -1 with EAGAIN if the stream has no room at the moment.
  ssize_t write(std::string_view text) const {
    if (is_socket_) return ::send(fd_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return ::write(fd_, text.data(), text.size());
  }
  bool is_writable(Deadline deadline) const {
    for (;;) {
      pollfd stream{fd_, POLLOUT, 0};
      const int ready = ::poll(&stream, 1, deadline.slice_ms(1000));
      if (ready > 0) return true;
      if ((ready < 0 && errno != EINTR) || deadline.expired()) return false;
    }
  }

 private:
  int fd_;
  Fd ours_;
  bool is_socket_ = false;
};

// Returns the whole lines at the beginning of `text` that fit in PIPE_BUF bytes, because a pipe
// accepts that many bytes atomically. No line is longer than PIPE_BUF.
std::string_view first_part(std::string_view text) {
  if (text.size() <= PIPE_BUF) return text;
  return text.substr(0, text.rfind('\n', PIPE_BUF - 1) + 1);
}

}  // namespace

Result<Logger> Logger::from_environment(Rank rank) {
  PC_ASSIGN_OR_RETURN(const std::string word, env_text(Env::kLog));
  const LogLevel level = word == "error"   ? LogLevel::kError
                         : word == "info"  ? LogLevel::kInfo
                         : word == "debug" ? LogLevel::kDebug
                                           : LogLevel::kWarning;
  return Logger(level, rank);
}

void Logger::write(LogLevel level, std::string_view text) const {
  std::string prefix = "pycollective";
  if (rank_ >= 0) prefix += "[rank " + std::to_string(rank_) + "]";
  prefix += ' ';
  prefix += name_of(level);
  prefix += ": ";

  std::string out;
  const std::size_t longest = PIPE_BUF - prefix.size() - 1;
  if (text.ends_with('\n')) text.remove_suffix(1);
  for (bool more = true; more;) {
    const std::size_t end = text.find('\n');
    out += prefix;
    append_printable(out, text.substr(0, std::min(end, longest)));
    out += '\n';
    more = end != std::string_view::npos;
    if (more) text.remove_prefix(end + 1);
  }
  const int saved = errno;  // a logger must not change the errno that its caller is about to read
  pass_on(out);
  errno = saved;
}

void Logger::pass_on(std::string_view text) const {
  const Stream stream(fd_);
  const Deadline deadline = Deadline::after(*stuck_ ? 0 : kWaitLimitS);
  while (!text.empty()) {
    if (!stream.is_writable(deadline)) {
      *stuck_ = true;
      return;
    }
    const ssize_t n = stream.write(first_part(text));
    if (n < 0 && (errno == EINTR || errno == EAGAIN) && !deadline.expired()) continue;
    if (n <= 0) return;  // stderr is closed: the failure cannot be reported
    *stuck_ = false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace pc
