// Memory that is shared between processes: allocated memory exists, and a segment of another
// process is not trusted.
#include "shm/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bytes.h"
#include "descriptors.h"
#include "shm/event_fd.h"
#include "statuses.h"

namespace pc {
namespace {

using testing::duplicate;
using testing::has;

OwnSegment new_segment() { return OwnSegment::create().value(); }
blkcnt_t pages_in(int fd) {
  struct stat file {};
  return ::fstat(fd, &file) == 0 ? file.st_blocks / 8 : -1;
}
Fd memory_file(unsigned flags, off_t nbytes, int seals) {
  Fd fd(::memfd_create("test", MFD_CLOEXEC | flags));
  EXPECT_EQ(::ftruncate(fd.get(), nbytes), 0);
  EXPECT_TRUE(seals == 0 || ::fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return fd;
}
Status refusal_of(Fd fd) { return PeerSegment::adopt(std::move(fd)).status(); }

TEST(Segment, what_one_rank_writes_the_other_reads_at_the_same_offset) {
  OwnSegment own = new_segment();
  const SharedRange first = own.grow(4096).value(), next = own.grow(3 * 4096).value();
  EXPECT_EQ(first.offset, 0u);
  EXPECT_EQ(next.offset, 4096u);
  PeerSegment peer = PeerSegment::adopt(duplicate(own.fd())).value();
  next.memory[17] = std::byte{42};
  const std::span<std::byte> seen = peer.map(4096 + 17, 5).value();
  ASSERT_EQ(seen.size(), 5u);
  EXPECT_EQ(seen[0], std::byte{42});
  seen[1] = std::byte{7};
  EXPECT_EQ(next.memory[18], std::byte{7});
  EXPECT_EQ(own.map(4096 + 18, 1).value()[0], std::byte{7});
}

// Otherwise the first access to a page would cost a microsecond, in the first message that uses it.
TEST(Segment, every_page_is_entered_when_it_is_mapped) {
  const auto entered = [](std::span<std::byte> memory) {
    const Fd map(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
    std::vector<uint64_t> pages(memory.size() / 4096);
    const auto first =
        static_cast<off_t>(reinterpret_cast<uintptr_t>(memory.data()) / 4096 * sizeof(uint64_t));
    const std::size_t nbytes = pages.size() * sizeof(uint64_t);
    EXPECT_EQ(::pread(map.get(), pages.data(), nbytes, first), static_cast<ssize_t>(nbytes));
    return std::count_if(pages.begin(), pages.end(), [](uint64_t page) { return page >> 63 != 0; });
  };
  OwnSegment own = new_segment();
  const std::span<std::byte> memory = own.grow(4 * kMiB).value().memory;
  // Kernels before Linux 5.14 enter no page. Everything works nevertheless.
  const int pages = ::madvise(memory.data(), memory.size(), 23) == 0 ? 1024 : 0;
  PeerSegment peer = PeerSegment::adopt(duplicate(own.fd())).value();
  EXPECT_EQ(entered(peer.map(0, 4 * kMiB).value()), pages);
  EXPECT_EQ(entered(own.grow(4 * kMiB).value().memory), pages);
}

TEST(Segment, growing_gives_whole_pages_of_zeros_that_are_there) {
  OwnSegment own = new_segment();
  const SharedRange range = own.grow(kMiB + 1).value();
  EXPECT_EQ(range.memory.size(), kMiB + 4096);
  EXPECT_TRUE(
      std::all_of(range.memory.begin(), range.memory.end(), [](std::byte b) { return b == std::byte{0}; }));
  OwnSegment untouched = new_segment();
  EXPECT_TRUE(untouched.grow(40 * kMiB).is_ok());
  EXPECT_EQ(pages_in(untouched.fd()), static_cast<blkcnt_t>(40 * kMiB / 4096));
}

TEST(Segment, what_was_given_stays_where_it_is_when_more_is_given) {
  OwnSegment own = new_segment();
  const SharedRange first = own.grow(4096).value();
  PeerSegment peer = PeerSegment::adopt(duplicate(own.fd())).value();
  const std::span<std::byte> seen = peer.map(0, 4096).value();
  first.memory[0] = std::byte{1};
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(own.grow(kMiB).is_ok());
  ASSERT_TRUE(peer.map(kMiB, 3 * kMiB).is_ok()) << "over the edges of what was given at once";
  EXPECT_EQ(seen[0], std::byte{1});
  EXPECT_EQ(peer.map(0, 4096).value().data(), seen.data());
}

TEST(Segment, a_piece_of_what_is_mapped_is_not_mapped_again) {
  OwnSegment own = new_segment();
  ASSERT_TRUE(own.grow(kMiB).is_ok());
  PeerSegment peer = PeerSegment::adopt(duplicate(own.fd())).value();
  const std::byte* const all = peer.map(0, kMiB).value().data();
  EXPECT_EQ(peer.map(5000, 1000).value().data(), all + 5000);
  EXPECT_EQ(peer.map(kMiB - 1, 1).value().data(), all + kMiB - 1);
}

TEST(Segment, cannot_be_shortened_or_sealed_against_writing) {
  OwnSegment own = new_segment();
  ASSERT_TRUE(own.grow(4096).is_ok());
  EXPECT_EQ(::ftruncate(own.fd(), 0), -1);
  EXPECT_EQ(::fcntl(own.fd(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), -1);
}

TEST(Segment, a_piece_that_is_not_there_is_a_mismatch) {
  OwnSegment own = new_segment();
  ASSERT_TRUE(own.grow(8192).is_ok());
  PeerSegment peer = PeerSegment::adopt(duplicate(own.fd())).value();
  constexpr uint64_t kMax = UINT64_MAX;
  for (const auto& [offset, nbytes] : {std::tuple<uint64_t, std::size_t>{0, 8193},
                                       {8192, 1},
                                       {8191, 2},
                                       {4096, kMax},
                                       {kMax, 1},
                                       {kMax, 2},
                                       {kMax - 4095, 4096},
                                       {uint64_t{1} << 63, 4096},
                                       {0, 0},
                                       {1, kMax}}) {
    const Status status = peer.map(offset, nbytes).status();
    EXPECT_EQ(status.code(), Code::kMismatch) << offset << " " << nbytes;
  }
  EXPECT_TRUE(peer.map(0, 8192).is_ok());
  EXPECT_EQ(own.map(4096, 4097).status().code(), Code::kMismatch);
}

TEST(Segment, what_is_no_sealed_memory_is_refused) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd reads(ends[0]);
  EXPECT_TRUE(has(refusal_of(Fd(ends[1])), "no memory"));
  EXPECT_TRUE(has(refusal_of(Fd(::open("/dev/null", O_RDWR | O_CLOEXEC))), "no memory"));
  EXPECT_TRUE(has(refusal_of(Fd()), "no memory"));
  char path[] = "/tmp/segment_test.XXXXXX";
  Fd file(::mkostemp(path, O_CLOEXEC));
  ASSERT_TRUE(file.valid());
  ::unlink(path);
  EXPECT_EQ(refusal_of(std::move(file)).code(), Code::kMismatch);
  EXPECT_TRUE(has(refusal_of(memory_file(0, 4096, 0)), "not sealed against shrinking"));
  EXPECT_TRUE(has(refusal_of(memory_file(MFD_ALLOW_SEALING, 4096, F_SEAL_GROW)), "not sealed"));
  EXPECT_TRUE(has(refusal_of(memory_file(MFD_ALLOW_SEALING, 4096, F_SEAL_SHRINK | F_SEAL_WRITE)), "written"));
}

// An access to a huge page that cannot be allocated would end the process.
TEST(Segment, sealed_memory_of_huge_pages_is_refused) {
  Fd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!fd.valid()) GTEST_SKIP() << "this kernel has no huge pages";
  ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_TRUE(has(refusal_of(std::move(fd)), "no memory"));
}

TEST(Segment, sealed_memory_that_is_open_for_reading_only_is_refused) {
  const Fd writable = memory_file(MFD_ALLOW_SEALING, 4096, F_SEAL_SHRINK);
  const std::string link = "/proc/self/fd/" + std::to_string(writable.get());
  Fd readable(::open(link.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(readable.valid());
  EXPECT_TRUE(has(refusal_of(std::move(readable)), "written"));
}

TEST(Segment, the_last_page_of_memory_that_is_no_whole_pages_long_can_be_mapped_up_to_its_end) {
  PeerSegment peer = PeerSegment::adopt(memory_file(MFD_ALLOW_SEALING, 5000, F_SEAL_SHRINK)).value();
  EXPECT_EQ(peer.map(4990, 10).value().size(), 10u);
  EXPECT_EQ(peer.map(4990, 11).status().code(), Code::kMismatch);
}

// With a made-up limit: the kernel itself ends processes instead of refusing.
TEST(Segment, more_memory_than_there_is_room_for_is_an_error_that_says_what_to_do) {
  uint64_t available = 100 * kMiB;
  OwnSegment own = OwnSegment::create([&] { return available; }).value();
  ASSERT_TRUE(own.grow(4096).is_ok());
  const Status status = own.grow(100 * kMiB).status();
  EXPECT_EQ(status.code(), Code::kSystem);
  for (const char* part :
       {"100 MiB more", "4096 bytes", "ENOMEM", "memory limit", "PYCOLLECTIVE_TRANSPORT=tcp"})
    EXPECT_TRUE(has(status, part)) << status.to_string();
  available = 10 * kMiB;
  EXPECT_EQ(own.grow(4096).status().code(), Code::kSystem) << "others need some, too";
  available = UINT64_MAX;
  EXPECT_EQ(own.grow(4096).value().offset, 4096u);
}

TEST(Segment, nothing_is_kept_of_what_was_not_enough) {
  uint64_t available = 128 * kMiB;
  OwnSegment own =
      OwnSegment::create([&] { return std::exchange(available, available - 48 * kMiB); }).value();
  ASSERT_EQ(own.grow(40 * kMiB).status().code(), Code::kSystem) << "others took it meanwhile";
  EXPECT_EQ(pages_in(own.fd()), 0);
  available = UINT64_MAX;
  EXPECT_EQ(own.grow(4096).value().offset, 0u);
}

TEST(Segment, a_size_that_no_file_can_have_is_refused) {
  OwnSegment own = OwnSegment::create([] { return 64 * kMiB; }).value();
  for (const std::size_t nbytes : {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 2 - 4095})
    EXPECT_TRUE(has(own.grow(nbytes).status(), "EFBIG"));
}

// A control group with a memory limit, for one process. Empty if none can be made.
class SmallGroup {
 public:
  explicit SmallGroup(uint64_t limit) {
    for (const auto& [root, file] :
         {std::pair{"/sys/fs/cgroup/memory", "/memory.limit_in_bytes"}, {"/sys/fs/cgroup", "/memory.max"}}) {
      const std::string folder = std::string(root) + "/pycollective-test-" + std::to_string(::getpid());
      if (::mkdir(folder.c_str(), 0700) != 0) continue;
      folder_ = folder;
      std::error_code failed;
      if (std::filesystem::exists(folder + file, failed) && write(folder + file, std::to_string(limit)))
        return;
      remove();
    }
  }
  ~SmallGroup() { remove(); }
  SmallGroup(const SmallGroup&) = delete;
  SmallGroup& operator=(const SmallGroup&) = delete;
  bool made() const { return !folder_.empty(); }
  bool enter() const { return write(folder_ + "/cgroup.procs", std::to_string(::getpid())); }

 private:
  static bool write(const std::string& path, const std::string& text) {
    std::ofstream file(path);
    file << text << std::flush;
    return file.good();
  }
  void remove() {
    if (made()) ::rmdir(folder_.c_str());
    folder_.clear();
  }
  std::string folder_;
};

TEST(Segment, a_full_control_group_is_an_error_and_does_not_end_the_process) {
  const SmallGroup group(100 * kMiB);
  if (!group.made()) GTEST_SKIP() << "needs root and a control group for memory that it may divide";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!group.enter()) ::_exit(2);
    OwnSegment own = new_segment();
    Status status;
    for (int i = 0; i < 20 && status.is_ok(); ++i) status = own.grow(10 * kMiB).status();
    ::_exit(own.nbytes() >= 10 * kMiB && has(status, "no 10 MiB more") ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Segment, the_limit_of_file_sizes_is_an_error_and_does_not_end_the_process) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit = {kMiB, kMiB};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    OwnSegment own = new_segment();
    const bool some = own.grow(kMiB).is_ok();
    const Status more = own.grow(4096).status();
    ::_exit(some && more.code() == Code::kSystem && has(more, "ulimit -f") ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(EventFd, stays_notified_until_it_is_cleared) {
  EventFd notifier = EventFd::create().value();
  EventFd other = EventFd::adopt(duplicate(notifier.fd())).value();
  const auto readable = [&] {
    pollfd polled = {notifier.fd(), POLLIN, 0};
    return ::poll(&polled, 1, 0) == 1;
  };
  EXPECT_FALSE(readable());
  for (int i = 0; i < 1000; ++i) other.notify();
  EXPECT_TRUE(readable());
  notifier.clear_notification();
  EXPECT_FALSE(readable());
  notifier.clear_notification();
}

TEST(EventFd, that_cannot_take_more_notifications_blocks_no_caller) {
  EventFd notifier = EventFd::create().value();
  const uint64_t nearly_full = UINT64_MAX - 1;
  ASSERT_EQ(::write(notifier.fd(), &nearly_full, sizeof nearly_full), 8);
  notifier.notify();
  notifier.clear_notification();
}

TEST(EventFd, what_is_none_or_might_block_is_refused) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const Fd reads(ends[0]);
  EXPECT_EQ(EventFd::adopt(Fd(ends[1])).status().code(), Code::kMismatch);
  EXPECT_EQ(EventFd::adopt(Fd(::open("/dev/null", O_RDWR | O_CLOEXEC | O_NONBLOCK))).status().code(),
            Code::kMismatch);
  EXPECT_EQ(EventFd::adopt(Fd(::eventfd(0, EFD_CLOEXEC))).status().code(), Code::kMismatch);
  EXPECT_EQ(EventFd::adopt(Fd()).status().code(), Code::kMismatch);
}

}  // namespace
}  // namespace pc
