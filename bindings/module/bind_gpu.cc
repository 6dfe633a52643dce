#include "bindings/module/bind_gpu.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/env.h"
#include "gpu/cuda/device.h"
#include "gpu/cuda/driver.h"
#include "gpu/nccl/library.h"
#include "kernels/device/embedded.h"

namespace py = pybind11;

namespace pc {
namespace {

struct Gpus {
  std::shared_ptr<const cuda::Driver> driver;
  std::vector<cuda::DeviceInfo> devices;
  std::vector<std::vector<int>> peers;  // for each device, the devices that it can access
};

Result<Gpus> look_at_gpus() {
  PC_ASSIGN_OR_RETURN(const std::string path, env_text(Env::kCudaLib));
  Gpus found;
  PC_ASSIGN_OR_RETURN(found.driver, cuda::open_driver({path}));
  for (int ordinal = 0; ordinal < found.driver->device_count; ++ordinal) {
    PC_ASSIGN_OR_RETURN(cuda::DeviceInfo device, cuda::describe_device(*found.driver, ordinal));
    found.devices.push_back(std::move(device));
  }
  for (const cuda::DeviceInfo& device : found.devices) {
    std::vector<int>& peers = found.peers.emplace_back();
    for (const cuda::DeviceInfo& other : found.devices) {
      if (other.ordinal == device.ordinal) continue;
      PC_ASSIGN_OR_RETURN(const bool can, cuda::can_access_peer(*found.driver, device, other));
      if (can) peers.push_back(other.ordinal);
    }
  }
  return found;
}

py::dict driver_facts() {
  const Result<Gpus> looked = [] {
    const py::gil_scoped_release release;  // the driver may take seconds to start
    return look_at_gpus();
  }();
  py::dict facts;
  if (!looked.is_ok()) {
    facts["why_not"] = looked.status().message();
    return facts;
  }
  const Gpus& found = looked.value();
  py::list devices;
  for (std::size_t i = 0; i < found.devices.size(); ++i) {
    const cuda::DeviceInfo& device = found.devices[i];
    py::dict each;
    each["name"] = device.name;
    each["uuid"] = device.uuid;
    each["pci_bus_id"] = device.pci_bus_id;
    each["capability"] = py::make_tuple(device.major, device.minor);
    each["total_nbytes"] = device.total_nbytes;
    each["peers"] = py::tuple(py::cast(found.peers[i]));
    devices.append(each);
  }
  facts["path"] = found.driver->path;
  facts["version"] = cuda::cuda_version_text(found.driver->version);
  facts["devices"] = py::tuple(devices);
  return facts;
}

py::dict nccl_facts(std::vector<std::string> wheel_folders) {
  const auto [opened, copies] = [&] {
    const py::gil_scoped_release release;
    auto library = nccl::Library::open(nccl::process_environment(std::move(wheel_folders)));
    return std::pair(std::move(library), nccl::mapped_copies());
  }();
  py::dict facts;
  if (!opened.is_ok()) {
    facts["why_not"] = opened.status().message();
    return facts;
  }
  const nccl::Library& library = opened.value();
  py::list tried;
  for (const nccl::Attempt& each : library.tried())
    tried.append(py::make_tuple(each.how, each.path, each.why));
  facts["path"] = library.path();
  facts["how"] = library.how();
  facts["version"] = nccl::text_of(library.api().version);
  facts["tried"] = py::tuple(tried);
  facts["warning"] = nccl::warning_about(copies);
  return facts;
}

std::vector<std::string> kernel_targets() {
  const auto targets = embedded_targets();
  return {targets.begin(), targets.end()};
}

}  // namespace

void bind_gpu(py::module_& module) {
  module.def("_driver_facts", &driver_facts,
             "Opens and starts the CUDA driver. Returns its path, version and devices; or why_not.");
  module.def("_nccl_facts", &nccl_facts, py::arg("wheel_folders"),
             "Opens NCCL. Returns its path, how it was found, version, what was tried before, a warning; "
             "or why_not.");
  module.def("_kernel_targets", &kernel_targets,
             "GPUs that this build has kernels for: sm_75, ..., compute_75.");
}

}  // namespace pc
