#include "kernels/copy.h"

#include <cstring>

#include "kernels/copy_impl.h"

namespace pc {
namespace {

void portable_copy(std::byte* to, const std::byte* from, std::size_t nbytes) {
  if (nbytes != 0) std::memcpy(to, from, nbytes);  // memcpy requires valid pointers even for 0 bytes
}

}  // namespace

std::span<const CopyTarget> copy_targets() {
  static const std::vector<CopyTarget> kFound = [] {
    std::vector<CopyTarget> found{{"portable", portable_copy, portable_copy}};
#ifdef PYCOLLECTIVE_HAVE_HIGHWAY
    for (const CopyTarget& target : highway_copy_targets()) found.push_back(target);
#endif
    return found;
  }();
  return kFound;
}

void copy(std::byte* to, const std::byte* from, std::size_t nbytes) {
  static const Copy kBest = copy_targets().back().copy;
  kBest(to, from, nbytes);
}

void copy_past_caches(std::byte* to, const std::byte* from, std::size_t nbytes) {
  static const Copy kBest = copy_targets().back().past_caches;
  kBest(to, from, nbytes);
}

}  // namespace pc
