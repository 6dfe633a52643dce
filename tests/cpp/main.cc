// Runs the tests of one program. PYCOLLECTIVE_CASE_TIMEOUT_S, which ctest sets, is the deadline of
// each single test. PYCOLLECTIVE_CASES_LEFT_OUT names the tests that the machine cannot run, in the
// syntax of --gtest_filter.
#include <gtest/gtest.h>

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace {

void end_at_deadline(int) {
  constexpr std::string_view kText = "This test did not end within PYCOLLECTIVE_CASE_TIMEOUT_S seconds.\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText.data(), kText.size());
  ::_exit(1);
}

class Deadlines : public ::testing::EmptyTestEventListener {
 public:
  explicit Deadlines(unsigned seconds) : seconds_(seconds) { ::signal(SIGALRM, end_at_deadline); }
  void OnTestStart(const ::testing::TestInfo&) override { ::alarm(seconds_); }
  void OnTestEnd(const ::testing::TestInfo&) override { ::alarm(0); }

 private:
  unsigned seconds_;
};

}  // namespace

int main(int count, char** words) {
  ::testing::InitGoogleTest(&count, words);
  if (const char* seconds = std::getenv("PYCOLLECTIVE_CASE_TIMEOUT_S"))
    ::testing::UnitTest::GetInstance()->listeners().Append(
        new Deadlines(static_cast<unsigned>(std::strtoul(seconds, nullptr, 10))));
  if (const char* cases = std::getenv("PYCOLLECTIVE_CASES_LEFT_OUT"))
    GTEST_FLAG_SET(filter, GTEST_FLAG_GET(filter) + "-" + cases);
  return RUN_ALL_TESTS();
}
