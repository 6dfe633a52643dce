// The real NCCL of a wheel on a machine without a driver: it loads, reports its version, and
// refuses with a reason. Skipped where there is none: set
// PYCOLLECTIVE_NCCL_LIB=.../nvidia/nccl/lib/libnccl.so.2, or have a copy that the loader finds.
#include <gtest/gtest.h>

#include <dlfcn.h>

#include <optional>

#include "gpu/nccl/communicator.h"
#include "gpu/nccl/library.h"

namespace pc::nccl {
namespace {

class RealNccl : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = Library::open(process_environment());
    if (!opened.is_ok()) GTEST_SKIP() << opened.status().message();
    if (::dlsym(::dlopen(opened.value().path().c_str(), RTLD_NOW), "fake_nccl_script") != nullptr)
      GTEST_SKIP() << "this is a fake";
    library_.emplace(std::move(opened).value());
  }
  const Api& api() const { return library_->api(); }
  static bool there_is_a_driver() { return ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr; }
  std::optional<Library> library_;
};

TEST_F(RealNccl, has_every_function_that_its_version_should_have) {
  for (const Symbol& row : symbols())
    EXPECT_EQ(row.has(api()), row.since <= api().version) << row.name << " in " << library_->to_string();
}

TEST_F(RealNccl, answers_without_a_driver_what_needs_none) {
  EXPECT_GE(api().version, kOldest);
  EXPECT_STREQ(api().get_error_string(ReturnCode::kSuccess), "no error");
  UniqueId id = {};
  EXPECT_EQ(api().get_unique_id(&id), ReturnCode::kSuccess);
  EXPECT_EQ(api().group_start(), ReturnCode::kSuccess);
  EXPECT_EQ(api().group_end(), ReturnCode::kSuccess);
}

TEST_F(RealNccl, refuses_a_communicator_that_is_none) {
  ReturnCode error = ReturnCode::kSuccess;
  EXPECT_EQ(api().comm_get_async_error(nullptr, &error), ReturnCode::kInvalidArgument);
  float x = 0;
  EXPECT_EQ(api().all_reduce(&x, &x, 1, DataType::kFloat32, RedOp::kSum, nullptr, nullptr),
            ReturnCode::kInvalidArgument);
}

TEST_F(RealNccl, says_why_there_is_no_communicator_without_a_driver) {
  if (there_is_a_driver()) GTEST_SKIP() << "there is a driver";
  SteadyClock clock;
  Resources resources;
  resources.api = library_->shared_api();
  resources.clock = &clock;
  const Result<UniqueId> id = make_unique_id(api());
  ASSERT_TRUE(id.is_ok()) << id.status().to_string();
  const auto made = Communicator::init(resources, {id.value(), 0, 1}, {}, {Deadline::after(20)});
  ASSERT_FALSE(made.is_ok());
  EXPECT_NE(made.status().to_string().find("CUDA driver version is insufficient"), std::string::npos)
      << made.status().to_string();
}

}  // namespace
}  // namespace pc::nccl
