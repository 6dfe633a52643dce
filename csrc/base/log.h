// A logger with levels that writes lines to stderr: "pycollective[rank 3] warning: ...". It is a
// small value that objects copy from their owner; there is no global logger.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/status.h"

namespace pc {

enum class LogLevel : uint8_t { kError, kWarning, kInfo, kDebug };

// Thread-safety: all methods; copies share the flag stuck_. Each message is one write(2), so that
// lines of different ranks do not mix; a message longer than PIPE_BUF is several writes of whole
// lines. A message waits at most 0.1 s for the reader of stderr and is then dropped. After a drop,
// messages do not wait at all until the reader accepts text again, so that a stalled reader blocks
// no call.
class Logger {
 public:
  explicit Logger(LogLevel level = LogLevel::kWarning, Rank rank = -1, int fd = 2)
      : level_(level),
        rank_(rank),
        fd_(fd),
        stuck_(std::make_shared<std::atomic<bool>>(false)) {}
  static Result<Logger> from_environment(Rank rank = -1);  // with the level in PYCOLLECTIVE_LOG

  Logger with_rank(Rank rank) const {
    Logger same = *this;
    same.rank_ = rank;
    return same;
  }
  bool enabled(LogLevel level) const { return level <= level_; }

  // `text` is a string, or a function that returns one and is only called if the level is enabled:
  //   log.debug([&] { return "connected to rank " + std::to_string(peer); });
  // Every line of a multi-line text gets the prefix. Control characters are replaced by '?'.
  template <class Text>
  void error(Text&& text) const {
    log(LogLevel::kError, std::forward<Text>(text));
  }
  template <class Text>
  void warning(Text&& text) const {
    log(LogLevel::kWarning, std::forward<Text>(text));
  }
  template <class Text>
  void info(Text&& text) const {
    log(LogLevel::kInfo, std::forward<Text>(text));
  }
  template <class Text>
  void debug(Text&& text) const {
    log(LogLevel::kDebug, std::forward<Text>(text));
  }

 private:
  template <class Text>
  void log(LogLevel level, Text&& text) const {
    if (!enabled(level)) return;
    if constexpr (std::is_invocable_v<Text>) {
      write(level, std::forward<Text>(text)());
    } else {
      write(level, text);
    }
  }
  void write(LogLevel level, std::string_view text) const;
  void pass_on(std::string_view text) const;

  static constexpr double kWaitLimitS = 0.1;

  LogLevel level_;
  Rank rank_;                                 // -1: not known yet, or not a rank
  int fd_;                                    // not owned
  std::shared_ptr<std::atomic<bool>> stuck_;  // whether the last write found no room; shared by all copies
};

}  // namespace pc
