// Opening the driver: each error has a message that names what was searched, what was found and how
// to fix it.
#include "gpu/cuda/driver.h"

#include <sys/wait.h>
#include <unistd.h>

#include "gpu/cuda/fake_gpu.h"

namespace pc::cuda {
namespace {

class DriverTest : public FakeGpu {
 protected:
  std::string why_not(const std::string& path = FAKE_CUDA) {
    const Result<std::shared_ptr<const Driver>> opened = open_driver({path});
    EXPECT_FALSE(opened.is_ok());
    EXPECT_EQ(opened.status().code(), Code::kUnsupported);
    return opened.status().message();
  }
};

TEST_F(DriverTest, opens_and_says_which_it_is) {
  fake.set_device_count(3);
  const auto opened = value_of(open_driver({FAKE_CUDA}));
  EXPECT_EQ(opened->version, 13000);
  EXPECT_EQ(opened->device_count, 3);
  EXPECT_HAS(opened->path, "fake_cuda");
  EXPECT_NE(opened->cuIpcGetMemHandle, nullptr);
}

TEST_F(DriverTest, a_path_that_leads_nowhere_is_named_and_nothing_else_is_tried) {
  const std::string why = why_not("/nowhere/libcuda.so.1");
  EXPECT_HAS(why, "PYCOLLECTIVE_CUDA_LIB names /nowhere/libcuda.so.1 and only that was tried");
  EXPECT_HAS(why, "unset it");
}

TEST_F(DriverTest, without_a_library_the_message_says_where_was_searched) {
  const Result<std::shared_ptr<const Driver>> opened = open_driver({});
  if (opened.is_ok()) GTEST_SKIP() << "this machine has a driver: " << opened.value()->path;
  EXPECT_EQ(opened.status().code(), Code::kUnsupported);
  if (has(opened.status().message(), "does not start")) GTEST_SKIP() << opened.status().message();
  EXPECT_HAS(opened.status().message(), "libcuda.so.1");
  EXPECT_HAS(opened.status().message(), "LD_LIBRARY_PATH");
  EXPECT_HAS(opened.status().message(), "PYCOLLECTIVE_CUDA_LIB");
}

TEST_F(DriverTest, another_library_is_distinguished_from_a_driver) {
  const std::string why = why_not("libm.so.6");
  EXPECT_HAS(why, "libm.so.6 has no cuDriverGetVersion that answers, so it is another library");
}

TEST_F(DriverTest, a_driver_of_cuda_11_is_too_old_and_says_its_version) {
  const std::string why = why_not(FAKE_CUDA_11);
  EXPECT_HAS(why, "is of CUDA 11.4 (no cuGetProcAddress_v2)");
  EXPECT_HAS(why, "older than CUDA 12.0; install NVIDIA's driver 525 or newer");
}

TEST_F(DriverTest, a_driver_that_knows_how_to_find_functions_may_still_be_too_old) {
  fake.set_version(11080);
  EXPECT_HAS(why_not(), "is of CUDA 11.8, older than CUDA 12.0");
}

TEST_F(DriverTest, missing_functions_are_named_all_of_them) {
  fake.hide("cuMemAlloc");
  fake.hide("cuEventQuery");
  EXPECT_HAS(why_not(), "(CUDA 13.0) lacks cuMemAlloc, cuEventQuery");
}

TEST_F(DriverTest, missing_optional_functions_are_no_error_until_they_are_needed) {
  fake.hide("cuIpcGetMemHandle");
  fake.hide("cuMemCreate");
  const auto opened = value_of(open_driver({FAKE_CUDA}));
  EXPECT_EQ(opened->cuIpcGetMemHandle, nullptr);
  const Status lacks = lacks_function(*opened, "cuIpcGetMemHandle");
  EXPECT_EQ(lacks.code(), Code::kUnsupported);
  EXPECT_HAS(lacks.message(), "(CUDA 13.0) has no cuIpcGetMemHandle");
}

TEST_F(DriverTest, each_way_in_which_it_does_not_start_has_its_own_advice) {
  const struct {
    int result;
    const char *name, *advice;
  } backends[] = {
      {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE, 100", "CUDA_VISIBLE_DEVICES"},
      {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN, 999", "/dev/nvidia*"},
      {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803", "restart the machine"},
      {CUDA_ERROR_SYSTEM_NOT_READY, "CUDA_ERROR_SYSTEM_NOT_READY, 802", "fabricmanager"},
      {CUDA_ERROR_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY, 34", "made for linking"}};
  for (const auto& backend : backends) {
    fake.set_init_result(backend.result);
    const std::string why = why_not();
    EXPECT_HAS(why, "does not start: cuInit: ");
    EXPECT_HAS(why, backend.name);
    EXPECT_HAS(why, backend.advice);
    EXPECT_HAS(why, "fake_cuda");
  }
}

TEST_F(DriverTest, a_driver_without_gpus_is_no_driver) {
  fake.set_device_count(0);
  EXPECT_HAS(why_not(), "sees no GPU");
}

TEST_F(DriverTest, errors_have_the_call_a_text_a_name_and_a_number) {
  const auto opened = value_of(open_driver({FAKE_CUDA}));
  const Status error = cuda_error(*opened, "cuMemAlloc(64 MiB)", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_HAS(error.message(), "cuMemAlloc(64 MiB): out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2); ");
  EXPECT_EQ(error.code(), Code::kSystem);
  EXPECT_EQ(cuda_error(*opened, "x", CUDA_ERROR_NOT_SUPPORTED).code(), Code::kUnsupported);
  EXPECT_EQ(cuda_error(*opened, "x", 4711).message(),
            "x: an error that the driver has no words for (CUresult, 4711)");
  EXPECT_OK(opened->check(CUDA_SUCCESS, "x"));
}

TEST_F(DriverTest, is_of_no_use_in_a_child_of_fork) {
  const auto opened = value_of(open_driver({FAKE_CUDA}));
  EXPECT_TRUE(opened->is_usable());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(opened->is_usable() ? 1 : 0);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace pc::cuda
