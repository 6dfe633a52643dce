#include "base/log.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <string>

#include "base/env.h"

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

// What a peer sent may stand in a message: it must not move the cursor of somebody's terminal.
void append_printable(std::string& out, std::string_view line) {
  for (const char c : line) {
    const bool control = (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f;
    out += control ? '?' : c;
  }
}

// A pipe that poll() calls writable takes PIPE_BUF bytes without waiting.
bool takes_more(int fd) {
  constexpr int kPatience_ms = 100;
  pollfd stream{fd, POLLOUT, 0};
  int ready = 0;
  while ((ready = ::poll(&stream, 1, kPatience_ms)) < 0 && errno == EINTR) {
  }
  return ready > 0;
}
std::size_t whole_lines(std::string_view text) {
  if (text.size() <= PIPE_BUF) return text.size();
  const std::size_t last = text.rfind('\n', PIPE_BUF - 1);
  return last == std::string_view::npos ? PIPE_BUF : last + 1;
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
  if (text.ends_with('\n')) text.remove_suffix(1);
  for (bool more = true; more;) {
    const std::size_t end = text.find('\n');
    out += prefix;
    append_printable(out, text.substr(0, end));
    out += '\n';
    more = end != std::string_view::npos;
    if (more) text.remove_prefix(end + 1);
  }

  const int saved = errno;  // a logger must not change what its caller is about to look at
  for (std::string_view rest = out; !rest.empty();) {
    if (!takes_more(fd_)) break;
    const ssize_t n = ::write(fd_, rest.data(), whole_lines(rest));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // stderr is gone: nobody is left to tell
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  errno = saved;
}

}  // namespace pc
