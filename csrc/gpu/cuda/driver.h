// The CUDA driver, opened when it is first asked for. Without one everything answers kUnsupported and says what was searched,
// what was found and what mends it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "gpu/cuda/driver_abi.h"

namespace pc::cuda {

// The functions of the driver, by their own names; an optional one may be null. Opened by open_driver(), and then cuInit() has
// been called and there is at least one GPU. The library stays loaded for the life of the process: other libraries use it too.
// Thread-safety: immutable, and the driver is thread-safe.
struct Driver {
#define PC_CUDA_MEMBER(name, since, parameters) CUresult(*name) parameters = nullptr;
  PC_CUDA_REQUIRED_FUNCTIONS(PC_CUDA_MEMBER)
  PC_CUDA_OPTIONAL_FUNCTIONS(PC_CUDA_MEMBER)
#undef PC_CUDA_MEMBER
  std::string path;      // of the library
  int version = 0;       // 12040: CUDA 12.4
  int device_count = 0;  // that are visible
  pid_t process = -1;    // that opened it

  // OK, or cuda_error().
  Status check(CUresult result, const char* call) const;
  // Whether calls make sense in this process: a driver that was opened before fork() is of no use in the child. Destructors ask
  // before they give anything back.
  bool is_usable() const;
};

struct DriverSearch {
  std::string
      path;  // PYCOLLECTIVE_CUDA_LIB, which alone is tried then; empty: what the loader finds as libcuda.so.1
};
Result<std::shared_ptr<const Driver>> open_driver(const DriverSearch& search);

// "cuMemAlloc(64 MiB): out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2)", and what mends it where that is known. kUnsupported where
// this GPU, driver or capture cannot do it; kSystem otherwise.
Status cuda_error(const Driver& driver, std::string_view call, CUresult result);
// For an optional function that is null.
Status lacks_function(const Driver& driver, std::string_view function);

std::string cuda_version_text(int version);  // "12.4"

}  // namespace pc::cuda
