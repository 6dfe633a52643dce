#include "gpu/cuda/driver.h"

#include <dlfcn.h>
#include <unistd.h>

#include <utility>

#include "gpu/cuda/error_advice.h"

namespace pc::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

std::string text_or(const char* text, const char* otherwise) { return text != nullptr ? text : otherwise; }

Result<void*> open_library(const DriverSearch& search) {
  const std::string name = search.path.empty() ? kLibrary : search.path;
  void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const std::string why = text_or(::dlerror(), "no reason given");
  if (!search.path.empty()) {
    return unsupported("no CUDA driver: PYCOLLECTIVE_CUDA_LIB names " + name +
                       " and only that was tried: " + why + "; unset it, or let it name a libcuda.so.1");
  }
  return unsupported("no CUDA driver: " + why +
                     "; searched where the loader looks (LD_LIBRARY_PATH, "
                     "ld.so.cache). Install NVIDIA's driver, start the container with its GPUs "
                     "(docker run --gpus all), or let PYCOLLECTIVE_CUDA_LIB name the library");
}

// Returns 0 if the library does not report a version, because then it is not a driver.
int version_of(void* library) {
  using GetVersion = CUresult (*)(int*);
  const auto get_version = reinterpret_cast<GetVersion>(::dlsym(library, "cuDriverGetVersion"));
  int version = 0;
  if (get_version != nullptr) (void)get_version(&version);
  return version;
}

Status check_version(const Driver& driver, bool finds_functions) {
  if (driver.version == 0) {
    return unsupported("no CUDA driver: " + driver.path +
                       " has no cuDriverGetVersion that answers, so it is another library");
  }
  if (driver.version >= kOldestDriver && finds_functions) return Status::ok();
  return unsupported("the CUDA driver " + driver.path + " is of CUDA " + cuda_version_text(driver.version) +
                     (finds_functions ? "" : std::string(" (no ") + kGetProcAddress + ")") +
                     ", older than CUDA 12.0; install NVIDIA's driver 525 or newer");
}

std::string path_of(void* symbol, const std::string& otherwise) {
  Dl_info info{};
  return symbol != nullptr && ::dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname
                                                                                        : otherwise;
}

void* find(GetProcAddress get, const char* name, int since) {
  void* function = nullptr;
  int why = 0;
  return get(name, &function, since, 0, &why) == CUDA_SUCCESS ? function : nullptr;
}

// Looks up all functions. Returns the names of the required functions that are missing.
std::string fill(Driver& driver, GetProcAddress get) {
  std::string missing;
#define PC_CUDA_FIND(name, since, parameters) \
  driver.name = reinterpret_cast<decltype(driver.name)>(find(get, #name, since));
#define PC_CUDA_DEMAND(name, since, parameters) \
  PC_CUDA_FIND(name, since, parameters)         \
  if (driver.name == nullptr) missing += missing.empty() ? #name : ", " #name;
  PC_CUDA_REQUIRED_FUNCTIONS(PC_CUDA_DEMAND)
  PC_CUDA_OPTIONAL_FUNCTIONS(PC_CUDA_FIND)
#undef PC_CUDA_DEMAND
#undef PC_CUDA_FIND
  return missing;
}

Status initialize(Driver& driver) {
  const CUresult result = driver.cuInit(0);
  if (result != CUDA_SUCCESS) {
    return unsupported("the CUDA driver " + driver.path +
                       " does not start: " + cuda_error(driver, "cuInit", result).message());
  }
  PC_TRY(driver.check(driver.cuDeviceGetCount(&driver.device_count), "cuDeviceGetCount"));
  if (driver.device_count > 0) return Status::ok();
  return unsupported("the CUDA driver " + driver.path +
                     " sees no GPU: " + std::string(advice_for(CUDA_ERROR_NO_DEVICE)));
}

}  // namespace

Result<std::shared_ptr<const Driver>> open_driver(const DriverSearch& search) {
  PC_ASSIGN_OR_RETURN(void* const library, open_library(search));
  void* const symbol = ::dlsym(library, kGetProcAddress);
  auto driver = std::make_shared<Driver>();
  driver->path = path_of(symbol, search.path.empty() ? kLibrary : search.path);
  driver->version = version_of(library);
  driver->process = ::getpid();
  PC_TRY(check_version(*driver, symbol != nullptr));
  const std::string missing = fill(*driver, reinterpret_cast<GetProcAddress>(symbol));
  if (!missing.empty()) {
    return unsupported("the CUDA driver " + driver->path + " (CUDA " + cuda_version_text(driver->version) +
                       ") lacks " + missing + "; install NVIDIA's driver 525 or newer");
  }
  PC_TRY(initialize(*driver));
  return std::shared_ptr<const Driver>(std::move(driver));
}

Status Driver::check(CUresult result, const char* call) const {
  return result == CUDA_SUCCESS ? Status::ok() : cuda_error(*this, call, result);
}

bool Driver::is_usable() const { return ::getpid() == process; }

Status cuda_error(const Driver& driver, std::string_view call, CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  (void)driver.cuGetErrorName(result, &name);
  (void)driver.cuGetErrorString(result, &text);
  std::string message = std::string(call) + ": " +
                        text_or(text, "an error that the driver has no words for") + " (" +
                        text_or(name, "CUresult") + ", " + std::to_string(result) + ")";
  if (const std::string_view advice = advice_for(result); !advice.empty()) {
    message.append("; ").append(advice);
  }
  return Status(code_for(result), std::move(message));
}

Status lacks_function(const Driver& driver, std::string_view function) {
  return unsupported("the CUDA driver " + driver.path + " (CUDA " + cuda_version_text(driver.version) +
                     ") has no " + std::string(function));
}

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace pc::cuda
