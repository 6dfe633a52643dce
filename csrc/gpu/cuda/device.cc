#include "gpu/cuda/device.h"

namespace pc::cuda {
namespace {

std::string uuid_text(const CUuuid& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// Returns the value of a boolean attribute, or false if the driver does not know the attribute.
bool can(const Driver& driver, CUdevice device, int attribute) {
  int value = 0;
  return driver.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

Status read_names(const Driver& driver, DeviceInfo& info) {
  char text[256] = {};
  PC_TRY(driver.check(driver.cuDeviceGetName(text, sizeof text, info.handle), "cuDeviceGetName"));
  info.name = text;
  PC_TRY(driver.check(driver.cuDeviceGetPCIBusId(text, sizeof text, info.handle), "cuDeviceGetPCIBusId"));
  info.pci_bus_id = text;
  CUuuid uuid{};
  PC_TRY(driver.check(driver.cuDeviceGetUuid(&uuid, info.handle), "cuDeviceGetUuid"));
  info.uuid = uuid_text(uuid);
  return Status::ok();
}

Status read_sizes(const Driver& driver, DeviceInfo& info) {
  std::size_t nbytes = 0;
  PC_TRY(driver.check(driver.cuDeviceTotalMem(&nbytes, info.handle), "cuDeviceTotalMem"));
  info.total_nbytes = nbytes;
  const struct {
    int* into;
    int attribute;
  } numbers[] = {{&info.major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
                 {&info.minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
                 {&info.multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT}};
  for (const auto& number : numbers) {
    PC_TRY(driver.check(driver.cuDeviceGetAttribute(number.into, number.attribute, info.handle),
                        "cuDeviceGetAttribute"));
  }
  return Status::ok();
}

void read_abilities(const Driver& driver, DeviceInfo& info) {
  info.stream_values = driver.cuStreamWriteValue32 != nullptr && driver.cuStreamWaitValue32 != nullptr;
  info.flushes_remote_writes = can(driver, info.handle, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES);
  info.shareable_memory =
      driver.cuMemCreate != nullptr && driver.cuMemExportToShareableHandle != nullptr &&
      can(driver, info.handle, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
      can(driver, info.handle, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  info.ipc_events = driver.cuIpcGetEventHandle != nullptr &&
                    can(driver, info.handle, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
}

}  // namespace

Result<DeviceInfo> describe_device(const Driver& driver, int ordinal) {
  DeviceInfo info;
  info.ordinal = ordinal;
  const CUresult result = driver.cuDeviceGet(&info.handle, ordinal);
  if (result != CUDA_SUCCESS) {
    return cuda_error(driver,
                      "cuDeviceGet(" + std::to_string(ordinal) + "), where this process sees " +
                          std::to_string(driver.device_count) + " GPUs",
                      result);
  }
  PC_TRY(read_names(driver, info));
  PC_TRY(read_sizes(driver, info));
  read_abilities(driver, info);
  return info;
}

Result<bool> can_access_peer(const Driver& driver, const DeviceInfo& device, const DeviceInfo& peer) {
  if (device.handle == peer.handle) return true;
  int can = 0;
  PC_TRY(
      driver.check(driver.cuDeviceCanAccessPeer(&can, device.handle, peer.handle), "cuDeviceCanAccessPeer"));
  return can != 0;
}

}  // namespace pc::cuda
