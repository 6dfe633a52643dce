// The CUDA driver, opened on first use. If there is no driver, open_driver() returns kUnsupported
// and reports what was searched, what was found and how to fix it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "gpu/cuda/driver_abi.h"

namespace pc::cuda {

// The functions of the driver, under their own names; an optional function may be null.
// open_driver() returns a Driver after cuInit() has succeeded and at least one GPU has been found.
// The library stays loaded for the life of the process, since other libraries use it too.
// Thread-safety: immutable, and the driver is thread-safe.
struct Driver {
#define PC_CUDA_MEMBER(name, since, parameters) CUresult(*name) parameters = nullptr;
  PC_CUDA_REQUIRED_FUNCTIONS(PC_CUDA_MEMBER)
  PC_CUDA_OPTIONAL_FUNCTIONS(PC_CUDA_MEMBER)
#undef PC_CUDA_MEMBER
  std::string path;      // path of the library
  int version = 0;       // 12040: CUDA 12.4
  int device_count = 0;  // number of visible devices
  pid_t process = -1;    // the process that opened the driver

  // Returns OK or cuda_error().
  Status check(CUresult result, const char* call) const;
  // Returns true if driver calls are valid in this process: a driver that was opened before fork()
  // cannot be used in the child. Destructors check this before they release anything.
  bool is_usable() const;
};

struct DriverSearch {
  std::string
      path;  // PYCOLLECTIVE_CUDA_LIB, which is then the only candidate; empty: the loader finds libcuda.so.1
};
Result<std::shared_ptr<const Driver>> open_driver(const DriverSearch& search);

// Returns an error such as "cuMemAlloc(64 MiB): out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2)",
// followed by a remedy if one is known. The code is kUnsupported if the GPU, the driver or a
// capture does not support the call, and kSystem otherwise.
Status cuda_error(const Driver& driver, std::string_view call, CUresult result);
// Returns the error for an optional function that is null.
Status lacks_function(const Driver& driver, std::string_view function);

std::string cuda_version_text(int version);  // "12.4"

}  // namespace pc::cuda
