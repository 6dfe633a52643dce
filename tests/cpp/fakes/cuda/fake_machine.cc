// A FAKE of the CUDA driver for whole programs, which no test controls from within.
// FAKE_CUDA_DEVICES is the number of GPUs, and the fake NCCL that PYCOLLECTIVE_NCCL_LIB names runs
// in their streams.
#include <cstdlib>

#include "fake_cuda.cc"

namespace {

__attribute__((constructor)) void become_a_machine() {
  if (const char* const devices = std::getenv("FAKE_CUDA_DEVICES"); devices != nullptr)
    fake_cuda_set_device_count(std::atoi(devices));
  const char* const nccl = std::getenv("PYCOLLECTIVE_NCCL_LIB");
  void* const library = nccl == nullptr ? nullptr : ::dlopen(nccl, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  const auto run_in_streams = reinterpret_cast<void (*)(void*)>(::dlsym(library, "fake_nccl_run_in_streams"));
  if (run_in_streams != nullptr) run_in_streams(reinterpret_cast<void*>(&fake_cuda_enqueue));
}

}  // namespace
