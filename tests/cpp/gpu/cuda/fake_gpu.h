// A test with the fake driver: it is reset before the test, and nothing may be left on it
// afterwards.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>

#include "fakes/cuda/fake_cuda.h"
#include "gpu/cuda/context.h"
#include "gpu/cuda/driver.h"

namespace pc::cuda {

template <class T>
T value_of(Result<T> result) {  // for tests; ends the program if there is no value
  if (!result.is_ok()) {
    ADD_FAILURE() << result.status().to_string();
    std::abort();
  }
  return std::move(result).value();
}

#define EXPECT_OK(expr)                                           \
  do {                                                            \
    const ::pc::Status status_ = (expr);                          \
    EXPECT_TRUE(status_.is_ok()) << #expr << status_.to_string(); \
  } while (0)

class FakeGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    fake = FakeCuda::at(FAKE_CUDA);
    ASSERT_NE(fake.reset, nullptr) << FAKE_CUDA << " is not the fake";
    fake.reset();
    driver = nullptr;
  }
  void TearDown() override {
    EXPECT_EQ(fake.live(nullptr), 0) << "something was not given back";
    fake.reset();
  }
  // Opens the fake driver. A test must script its devices and functions before.
  Context gpu(int ordinal = 0) {
    if (driver == nullptr) driver = value_of(open_driver({FAKE_CUDA}));
    return value_of(Context::primary(driver, ordinal));
  }
  FakeCuda fake;
  std::shared_ptr<const Driver> driver;
};

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
#define EXPECT_HAS(text, part) EXPECT_TRUE(has(text, part)) << "\"" << part << "\" is not in: " << text

}  // namespace pc::cuda
