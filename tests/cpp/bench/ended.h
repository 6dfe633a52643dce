// The outcome of a run of ranks.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace pc::bench {

struct Ended {
  int code = 0;
  std::string standard_error;  // on standard error
};

template <class Run>
Ended end_of(Run run) {
  ::testing::internal::CaptureStderr();
  const int code = run();
  return {code, ::testing::internal::GetCapturedStderr()};
}

}  // namespace pc::bench
