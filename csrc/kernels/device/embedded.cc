#include "kernels/device/embedded.h"

#include "embedded_here.h"

#ifdef PC_FATBIN
asm(".pushsection .rodata\n"
    ".balign 64\n"
    ".globl pc_device_kernels_begin\n"
    ".hidden pc_device_kernels_begin\n"
    "pc_device_kernels_begin:\n"
    ".incbin \"" PC_FATBIN
    "\"\n"
    ".globl pc_device_kernels_end\n"
    ".hidden pc_device_kernels_end\n"
    "pc_device_kernels_end:\n"
    ".byte 0\n"
    ".popsection\n");

extern "C" {
[[gnu::visibility("hidden")]] extern const std::byte pc_device_kernels_begin[];
[[gnu::visibility("hidden")]] extern const std::byte pc_device_kernels_end[];
}
#endif

namespace pc {

#ifdef PC_FATBIN
std::span<const std::byte> embedded_kernels() { return {pc_device_kernels_begin, pc_device_kernels_end}; }

std::span<const std::string_view> embedded_targets() {
  static constexpr std::string_view kTargets[] = {PC_FATBIN_TARGETS};
  return kTargets;
}
#else
std::span<const std::byte> embedded_kernels() { return {}; }
std::span<const std::string_view> embedded_targets() { return {}; }
#endif

}  // namespace pc
