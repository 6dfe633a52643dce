#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "base/fd.h"

namespace pc {
namespace {

// A pair of sockets that preserves the boundaries of writes.
class Log : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    written_ = Fd(ends[0]);
    read_ = Fd(ends[1]);
  }
  Logger logger(LogLevel level, Rank rank = 3) const { return Logger(level, rank, written_.get()); }
  std::string next_write() const {  // "" if there was none
    char text[4096];
    const ssize_t n = ::read(read_.get(), text, sizeof text);
    return std::string(text, n > 0 ? static_cast<std::size_t>(n) : 0);
  }

 private:
  Fd written_, read_;
};

TEST_F(Log, a_message_is_one_write_with_rank_and_level) {
  const Logger log = logger(LogLevel::kDebug);
  log.error("a");
  log.warning(std::string("b"));
  log.info("c\n");
  log.debug([] { return "d"; });
  EXPECT_EQ(next_write(), "pycollective[rank 3] error: a\n");
  EXPECT_EQ(next_write(), "pycollective[rank 3] warning: b\n");
  EXPECT_EQ(next_write(), "pycollective[rank 3] info: c\n");
  EXPECT_EQ(next_write(), "pycollective[rank 3] debug: d\n");
  EXPECT_EQ(next_write(), "");
}

TEST(LogPipe, a_full_pipe_blocks_no_writer_and_its_reader_gets_whole_lines) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd reads(ends[0]), writes(ends[1]);
  const Logger log(LogLevel::kWarning, 3, writes.get());
  const std::string line(100, 'x');
  std::string lines = line;
  for (int i = 1; i < 100; ++i) lines += "\n" + line;
  for (int i = 0; i < 20; ++i) log.warning(lines);  // 250 KiB, more than a pipe holds
  ASSERT_EQ(::fcntl(reads.get(), F_SETFL, O_NONBLOCK), 0);
  std::string text;
  char bytes[4096];
  for (ssize_t n; (n = ::read(reads.get(), bytes, sizeof bytes)) > 0;)
    text.append(bytes, static_cast<std::size_t>(n));
  const std::string whole = "pycollective[rank 3] warning: " + line + "\n";
  ASSERT_FALSE(text.empty());
  ASSERT_EQ(text.size() % whole.size(), 0u);
  for (std::size_t at = 0; at < text.size(); at += whole.size())
    ASSERT_EQ(text.substr(at, whole.size()), whole);
}

TEST(LogTerminal, a_terminal_that_shows_nothing_blocks_no_writer) {
  const Fd screen(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(screen.valid());
  ASSERT_TRUE(::grantpt(screen.get()) == 0 && ::unlockpt(screen.get()) == 0);
  const Fd terminal(::open(::ptsname(screen.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(terminal.valid());
  const Logger log(LogLevel::kWarning, 3, terminal.get());
  // once the pipe is full, none of them waits
  for (int i = 0; i < 300; ++i) log.warning(std::string(4000, 'x'));
  char byte;
  EXPECT_EQ(::read(screen.get(), &byte, 1), 1);
}

TEST(LogPipe, a_timer_that_interrupts_the_wait_does_not_begin_it_again) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const Fd reads(ends[0]), writes(ends[1]);
  while (::write(writes.get(), "x", 1) == 1) {
  }
  struct sigaction go_on {
  }, before;
  go_on.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGALRM, &go_on, &before), 0);
  const itimerval often{{0, 20'000}, {0, 20'000}}, never{};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
  Logger(LogLevel::kWarning, 3, writes.get()).warning("no process reads this");  // must return
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
}

TEST(LogPipe, a_line_that_no_pipe_takes_as_one_is_cut) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd reads(ends[0]), writes(ends[1]);
  Logger(LogLevel::kWarning, 3, writes.get()).warning(std::string(10'000, 'x').append("\nnext"));
  char bytes[16384];
  const ssize_t n = ::read(reads.get(), bytes, sizeof bytes);
  ASSERT_GT(n, 0);
  const std::string text(bytes, static_cast<std::size_t>(n));
  EXPECT_EQ(text.find('\n'), 4095u);
  EXPECT_TRUE(text.ends_with("warning: next\n")) << text;
}

TEST_F(Log, without_a_rank_none_is_named_and_one_can_be_added) {
  logger(LogLevel::kInfo, -1).info("starting");
  EXPECT_EQ(next_write(), "pycollective info: starting\n");
  logger(LogLevel::kInfo, -1).with_rank(0).info("started");
  EXPECT_EQ(next_write(), "pycollective[rank 0] info: started\n");
}

TEST_F(Log, what_is_off_is_neither_written_nor_made) {
  const Logger log = logger(LogLevel::kWarning);
  bool made = false;
  log.info([&] {
    made = true;
    return "expensive";
  });
  log.debug("x");
  EXPECT_FALSE(made);
  EXPECT_EQ(next_write(), "");
  EXPECT_TRUE(log.enabled(LogLevel::kError));
  EXPECT_TRUE(log.enabled(LogLevel::kWarning));
  EXPECT_FALSE(log.enabled(LogLevel::kInfo));
}

TEST_F(Log, several_lines_each_get_the_prefix_in_one_write) {
  logger(LogLevel::kError).error("one\n\ntwo");
  EXPECT_EQ(
      next_write(),
      "pycollective[rank 3] error: one\npycollective[rank 3] error: \npycollective[rank 3] error: two\n");
}

TEST_F(Log, foreign_text_cannot_steer_the_terminal) {
  logger(LogLevel::kError).error("host \x1b[2J\r\x07 and\ttab, \xc3\xa9");
  EXPECT_EQ(next_write(), "pycollective[rank 3] error: host ?[2J?? and\ttab, \xc3\xa9\n");
}

TEST_F(Log, errno_survives) {
  errno = EAGAIN;
  Logger(LogLevel::kError, 0, -1).error("to nowhere");
  EXPECT_EQ(errno, EAGAIN);
}

TEST(LogEnvironment, the_level_comes_from_the_environment) {
  ::setenv("PYCOLLECTIVE_LOG", "debug", 1);
  EXPECT_TRUE(Logger::from_environment().value().enabled(LogLevel::kDebug));
  ::setenv("PYCOLLECTIVE_LOG", "error", 1);
  EXPECT_FALSE(Logger::from_environment().value().enabled(LogLevel::kWarning));
  ::setenv("PYCOLLECTIVE_LOG", "verbose", 1);
  EXPECT_EQ(Logger::from_environment().status().code(), Code::kInvalidArgument);
  ::unsetenv("PYCOLLECTIVE_LOG");
  EXPECT_TRUE(Logger::from_environment().value().enabled(LogLevel::kWarning));
  EXPECT_FALSE(Logger::from_environment().value().enabled(LogLevel::kInfo));
}

}  // namespace
}  // namespace pc
