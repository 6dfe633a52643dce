// The properties of a GPU that need no context, and making its context current.
#include "gpu/cuda/device.h"

#include "gpu/cuda/context.h"
#include "gpu/cuda/fake_gpu.h"

namespace pc::cuda {
namespace {

class DeviceTest : public FakeGpu {
 protected:
  CUcontext current() {
    CUcontext context = nullptr;
    EXPECT_EQ(driver->cuCtxGetCurrent(&context), CUDA_SUCCESS);
    return context;
  }
};

TEST_F(DeviceTest, has_the_name_uuid_and_pci_bus_id_that_tools_show) {
  fake.set_device_count(2);
  fake.set_memory(80UL << 30);
  driver = value_of(open_driver({FAKE_CUDA}));
  const DeviceInfo info = value_of(describe_device(*driver, 1));
  EXPECT_EQ(info.name, "Fake GPU 1");
  EXPECT_EQ(info.pci_bus_id, "0000:02:00.0");
  EXPECT_EQ(info.uuid, "GPU-01f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff");
  EXPECT_EQ(info.major, 9);
  EXPECT_EQ(info.minor, 0);
  EXPECT_EQ(info.total_nbytes, uint64_t{80} << 30);
  EXPECT_EQ(info.multiprocessors, 4);
  EXPECT_TRUE(info.stream_values && info.shareable_memory && info.ipc_events);
  EXPECT_EQ(fake.calls("cuDevicePrimaryCtxRetain"), 0) << "asking must make no context";
}

TEST_F(DeviceTest, that_is_not_there_is_an_error_that_says_how_many_are) {
  driver = value_of(open_driver({FAKE_CUDA}));
  const Result<DeviceInfo> info = describe_device(*driver, 5);
  ASSERT_FALSE(info.is_ok());
  EXPECT_HAS(info.status().message(),
             "cuDeviceGet(5), where this process sees 1 GPUs: invalid device ordinal");
}

TEST_F(DeviceTest, abilities_need_the_functions_and_the_hardware) {
  fake.hide("cuStreamWaitValue32");
  fake.set_attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0);
  fake.set_attribute(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 0);
  driver = value_of(open_driver({FAKE_CUDA}));
  const DeviceInfo info = value_of(describe_device(*driver, 0));
  EXPECT_FALSE(info.stream_values);
  EXPECT_FALSE(info.shareable_memory);
  EXPECT_FALSE(info.ipc_events);
}

TEST_F(DeviceTest, peer_access_depends_on_both_devices_and_a_device_can_access_itself) {
  fake.set_device_count(2);
  driver = value_of(open_driver({FAKE_CUDA}));
  const DeviceInfo a = value_of(describe_device(*driver, 0)), b = value_of(describe_device(*driver, 1));
  EXPECT_TRUE(value_of(can_access_peer(*driver, a, b)));
  fake.set_peer_access(0);
  EXPECT_FALSE(value_of(can_access_peer(*driver, a, b)));
  EXPECT_TRUE(value_of(can_access_peer(*driver, a, a)));
}

TEST_F(DeviceTest, enabling_a_peer_twice_is_fine_and_impossible_peers_are_named) {
  fake.set_device_count(2);
  const Context a = gpu(0), b = gpu(1);
  EXPECT_OK(a.enable_peer(b));
  EXPECT_OK(a.enable_peer(b));
  EXPECT_OK(a.enable_peer(a));
  fake.set_peer_access(0);
  const Status refused = b.enable_peer(a);
  EXPECT_EQ(refused.code(), Code::kUnsupported);
  EXPECT_HAS(refused.message(), "cuCtxEnablePeerAccess(GPU 1 to GPU 0)");
}

TEST_F(DeviceTest, guards_nest_and_put_back_what_was_current) {
  fake.set_device_count(2);
  const Context a = gpu(0), b = gpu(1);
  EXPECT_EQ(current(), nullptr);
  {
    const ContextGuard outer = value_of(a.enter());
    EXPECT_EQ(current(), a.get());
    {
      const ContextGuard inner = value_of(b.enter());
      EXPECT_EQ(current(), b.get());
      const ContextGuard again = value_of(b.enter());
      EXPECT_EQ(current(), b.get());
    }
    EXPECT_EQ(current(), a.get());
  }
  EXPECT_EQ(current(), nullptr);
}

TEST_F(DeviceTest, the_context_is_the_one_that_all_libraries_share) {
  const Context once = gpu(), twice = gpu();
  EXPECT_EQ(once.get(), twice.get());
  const Context::FreeMemory available = value_of(once.available_memory());
  EXPECT_EQ(available.free_nbytes, available.total_nbytes);
}

TEST_F(DeviceTest, a_context_that_cannot_be_had_says_of_which_gpu) {
  driver = value_of(open_driver({FAKE_CUDA}));
  fake.fail_next("cuDevicePrimaryCtxRetain", CUDA_ERROR_OUT_OF_MEMORY);
  const Result<Context> context = Context::primary(driver, 0);
  ASSERT_FALSE(context.is_ok());
  EXPECT_HAS(context.status().message(), "cuDevicePrimaryCtxRetain(GPU 0): out of memory");
}

}  // namespace
}  // namespace pc::cuda
