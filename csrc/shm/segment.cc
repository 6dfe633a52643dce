#include "shm/segment.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <string>

#include "base/byte_units.h"
#include "base/round_up.h"

namespace pc {
namespace {

constexpr std::size_t kMostAtOnce = 16 * kMiB;  // limits how much must be repeated after a signal
constexpr std::size_t kSpare = 32 * kMiB;  // must stay available, because other processes allocate memory too
constexpr unsigned kNoExec = 8;            // MFD_NOEXEC_SEAL, which not every kernel and C library has

std::size_t page_nbytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

std::string amount(uint64_t nbytes) {
  return nbytes < 10 * kMiB ? std::to_string(nbytes) + " bytes" : std::to_string(nbytes / kMiB) + " MiB";
}

Status no_memory(uint64_t wanted, uint64_t had, int error) {
  const std::string limit =
      error == EFBIG ? "Raise the limit of the size of files (ulimit -f)"
                     : "Raise the memory limit of this job, container or virtual machine, or let fewer ranks "
                       "share one host; the size of /dev/shm does not matter";
  return Status(Code::kSystem, system_error("shared memory: no " + amount(wanted) + " more beside the " +
                                                amount(had) + " that this rank has",
                                            error)
                                       .message() +
                                   ". " + limit + ". PYCOLLECTIVE_TRANSPORT=tcp does without shared memory");
}

// Returns true if a file that ends at `end` exceeds the limit of file sizes. The kernel would end a
// process that exceeds it (SIGXFSZ).
bool beyond_file_limit(uint64_t end) {
  rlimit limit = {};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && end > limit.rlim_cur;
}

int new_memory_file() {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int fd = ::memfd_create("pycollective", flags | kNoExec);
  return fd >= 0 || errno != EINVAL ? fd : ::memfd_create("pycollective", flags);
}

Status foreign(const std::string& why) {
  return Status(Code::kMismatch, "what another rank gave as its shared memory cannot be used: " + why);
}

// Returns a piece of a file of `has` bytes: from one of `mappings`, or from a new mapping that
// covers the piece.
Result<std::span<std::byte>> piece_of(const Fd& fd, uint64_t has, uint64_t offset, std::size_t nbytes,
                                      std::vector<Mapping>& mappings) {
  if (nbytes == 0 || offset > has || nbytes > has - offset) {
    return Status(Code::kMismatch, std::to_string(nbytes) + " bytes at " + std::to_string(offset) +
                                       " do not lie inside shared memory of " + std::to_string(has));
  }
  for (const Mapping& mapping : mappings) {
    if (mapping.covers(offset, nbytes)) return mapping.piece(offset, nbytes);
  }
  // Maps to the end of the last page: a file that does not end on a page boundary still has that
  // whole page.
  const std::size_t page = page_nbytes();
  const uint64_t from = offset / page * page, to = round_up(offset + nbytes, page);
  PC_ASSIGN_OR_RETURN(Mapping mapping, Mapping::of(fd.get(), from, to - from));
  mappings.push_back(std::move(mapping));
  return mappings.back().piece(offset, nbytes);
}

}  // namespace

Result<OwnSegment> OwnSegment::create(std::function<uint64_t()> available) {
  Fd fd(new_memory_file());
  if (!fd.valid()) return system_error("memfd_create for shared memory", errno);
  // F_SEAL_SEAL prevents any process from sealing the memory against growing or writing.
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
    return system_error("sealing shared memory", errno);
  return OwnSegment(std::move(fd), std::move(available));
}

Result<SharedRange> OwnSegment::grow(std::size_t nbytes) {
  const std::size_t page = page_nbytes();
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();  // the largest off_t
  if (nbytes == 0) return Status(Code::kInternal, "shared memory of 0 bytes was asked for");
  if (nbytes > kMost - nbytes_ - page) return no_memory(nbytes, nbytes_, EFBIG);
  nbytes = round_up(nbytes, page);
  if (beyond_file_limit(nbytes_ + nbytes)) return no_memory(nbytes, nbytes_, EFBIG);
  const Status allocated = allocate(nbytes);
  Result<Mapping> mapping =
      allocated.is_ok() ? Mapping::of(fd_.get(), nbytes_, nbytes) : Result<Mapping>(allocated);
  if (!mapping.is_ok()) {
    // The file cannot be shortened again, but its pages can be freed.
    ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(nbytes_),
                static_cast<off_t>(nbytes));
    return mapping.status();
  }
  const SharedRange range{nbytes_, mapping.value().memory()};
  mappings_.push_back(std::move(mapping).value());
  nbytes_ += nbytes;
  return range;
}

// Allocates the pages, not only a file size, because touching a missing page ends the process. The
// kernel never refuses a page but kills some other process instead, so this function requests no
// more memory than is available.
Status OwnSegment::allocate(std::size_t nbytes) {
  for (std::size_t done = 0; done < nbytes;) {
    const uint64_t available = available_();
    if (available < kSpare || available - kSpare < nbytes - done) return no_memory(nbytes, nbytes_, ENOMEM);
    const std::size_t part = std::min(nbytes - done, kMostAtOnce);
    if (::fallocate(fd_.get(), 0, static_cast<off_t>(nbytes_ + done), static_cast<off_t>(part)) == 0) {
      done += part;
    } else if (errno != EINTR) {
      return no_memory(nbytes, nbytes_, errno);
    }
  }
  return Status::ok();
}

// In the child, the arrays in this memory become private copies, like all other memory of the
// child. They are no longer the arrays of the parent.
void OwnSegment::close_in_child() noexcept {
  for (Mapping& mapping : mappings_) {
    if (fd_.valid()) mapping.make_private(fd_.get());
  }
  fd_.reset();
}

Result<std::span<std::byte>> OwnSegment::map(uint64_t offset, std::size_t nbytes) {
  return piece_of(fd_, nbytes_, offset, nbytes, mappings_);
}

Result<PeerSegment> PeerSegment::adopt(Fd fd) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  struct statfs system {};
  if (seals < 0 || ::fstatfs(fd.get(), &system) != 0 || system.f_type != TMPFS_MAGIC)
    return foreign("it is no memory");
  if ((seals & F_SEAL_SHRINK) == 0) return foreign("it is not sealed against shrinking");
  const int mode = ::fcntl(fd.get(), F_GETFL);
  if (mode < 0 || (mode & O_ACCMODE) != O_RDWR || (seals & F_SEAL_WRITE) != 0)
    return foreign("it cannot be written");
  return PeerSegment(std::move(fd));
}

Result<std::span<std::byte>> PeerSegment::map(uint64_t offset, std::size_t nbytes) {
  struct stat file {};
  if (::fstat(fd_.get(), &file) != 0) return system_error("fstat of shared memory", errno);
  return piece_of(fd_, static_cast<uint64_t>(file.st_size), offset, nbytes, mappings_);
}

}  // namespace pc
