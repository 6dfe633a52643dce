// A levelled line logger to stderr: "pycollective[rank 3] warning: ...". A small value that owners pass on; no global.
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

// Thread-safety: all methods; copies share whether the reader is stuck. Every message is one write(2), so that lines of
// different ranks do not mix; a long one is several, of whole lines. What the reader does not take within 0.1 s is dropped, and
// from then on what it does not take at once, until it takes something again: no call waits for who reads the log.
class Logger {
 public:
  explicit Logger(LogLevel level = LogLevel::kWarning, Rank rank = -1, int fd = 2)
      : level_(level),
        rank_(rank),
        fd_(fd),
        stuck_(std::make_shared<std::atomic<bool>>(false)) {}
  static Result<Logger> from_environment(Rank rank = -1);  // the level that PYCOLLECTIVE_LOG asks for

  Logger with_rank(Rank rank) const {
    Logger same = *this;
    same.rank_ = rank;
    return same;
  }
  bool enabled(LogLevel level) const { return level <= level_; }

  // `text` is a string, or a function that makes one and is only called when the level is on:
  //   log.debug([&] { return "connected to rank " + std::to_string(peer); });
  // Every line of a text of several lines gets the prefix. Control characters come out as '?'.
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
  std::shared_ptr<std::atomic<bool>> stuck_;  // what was written last had no room; shared by all copies
};

}  // namespace pc
