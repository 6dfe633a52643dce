#include "bench/output.h"

#include <cinttypes>
#include <cstdio>
#include <string>

namespace pc::bench {

void print_header(const Operation& operation, Rank size, bool explain) {
  std::printf("# %s, %d ranks\n", std::string(operation.name).c_str(), size);
  if (explain) {
    std::printf(
        "# time: median over the iterations, p99 likewise; each the slowest rank's. algbw = bytes / time\n");
    std::printf("# Calls follow each other without a barrier, so that one may overlap the next.\n");
    std::printf("# busbw = %s, with n = %d: comparable between operations and world sizes\n",
                std::string(operation.formula()).c_str(), size);
  }
  std::printf("%12s%12s%10s%12s%12s%10s%10s%8s\n", "size", "count", "type", "time", "p99", "algbw", "busbw",
              "#wrong");
  std::printf("%12s%12s%10s%12s%12s%10s%10s\n", "(B)", "", "", "(us)", "(us)", "(GB/s)", "(GB/s)");
}

void print_row(const Row& row, DType dtype) {
  std::printf("%12" PRIu64 "%12" PRIu64 "%10s%12.1f%12.1f%10.3f%10.3f%8" PRIu64 "\n", row.nbytes, row.count,
              std::string(name_of(dtype)).c_str(), row.median_s * 1e6, row.p99_s * 1e6, row.algbw, row.busbw,
              row.wrong);
  std::fflush(stdout);
}

}  // namespace pc::bench
