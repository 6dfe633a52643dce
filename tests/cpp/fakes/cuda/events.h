// A FAKE of the CUDA driver: events. Each is two counters, for an interprocess event in a page that
// other processes can map.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>

#include "fakes/cuda/streams.h"

namespace pc::cuda {

// --- Files that back memory: another process opens them as /proc/<pid>/fd/<fd> of their creator

inline int make_file(std::size_t nbytes) {
  const int fd = ::memfd_create("fake_cuda", MFD_CLOEXEC);
  if (fd >= 0 && ::ftruncate(fd, static_cast<off_t>(nbytes)) == 0) return fd;
  if (fd >= 0) ::close(fd);
  return -1;
}
inline void* map_file(int fd, std::size_t nbytes, void* at = nullptr, int access = PROT_READ | PROT_WRITE) {
  void* const memory = ::mmap(at, nbytes, access, MAP_SHARED | (at != nullptr ? MAP_FIXED : 0), fd, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}
inline std::size_t pages(std::size_t nbytes) { return (nbytes + kPage - 1) / kPage * kPage; }

struct Ticket {  // the content of a handle of memory or of an event
  char magic[8];
  pid_t process;
  int fd;
  std::size_t nbytes;
};
constexpr char kMemoryTicket[8] = "memory.", kEventTicket[8] = "event..";
template <class To>
void write_ticket(To& to, const char (&magic)[8], int fd, std::size_t nbytes) {
  Ticket ticket{{}, ::getpid(), fd, nbytes};
  std::memcpy(ticket.magic, magic, sizeof magic);
  std::memset(&to, 0, sizeof to);
  std::memcpy(&to, &ticket, sizeof ticket);
}
// Returns the file, or -1 if the handle is not one of ours or its process has exited.
template <class From>
int open_ticket(const From& from, const char (&magic)[8], Ticket& ticket) {
  std::memcpy(&ticket, &from, sizeof ticket);
  if (std::memcmp(ticket.magic, magic, sizeof magic) != 0) return -1;
  if (ticket.process == ::getpid()) return ::fcntl(ticket.fd, F_DUPFD_CLOEXEC, 3);
  const std::string path = "/proc/" + std::to_string(ticket.process) + "/fd/" + std::to_string(ticket.fd);
  return ::open(path.c_str(), O_RDWR | O_CLOEXEC);
}

// --- Events

inline void free_event(CUevent event) {
  if (event->fd >= 0) {
    ::munmap(event->marks, kPage);
    ::close(event->fd);
  } else {
    delete event->marks;
  }
  delete event;
}
inline bool exists(CUevent event) { return world().events.count(event) != 0; }

inline CUresult cuEventCreate(CUevent* event, unsigned flags) {
  BEGIN_UNSAFE(cuEventCreate);
  if ((flags & CU_EVENT_INTERPROCESS) == 0) {
    *event = new CUevent_st{this_thread().context, -1, new Marks};
  } else {
    if ((flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
    const int fd = make_file(kPage);
    void* const page = fd >= 0 ? map_file(fd, kPage) : nullptr;
    if (page == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *event = new CUevent_st{this_thread().context, fd, new (page) Marks};
  }
  world().events.insert(*event);
  return CUDA_SUCCESS;
}
inline CUresult cuEventDestroy(CUevent event) {
  BEGIN_IN_CONTEXT(cuEventDestroy);
  if (world().events.erase(event) == 0) return CUDA_ERROR_INVALID_HANDLE;
  world().destroyed_events.push_back(event);  // queued work may still use its marks
  return CUDA_SUCCESS;
}
inline CUresult cuEventRecord(CUevent event, CUstream handle) {
  BEGIN_IN_CONTEXT(cuEventRecord);
  CUstream stream = find_stream(handle);
  if (!exists(event) || stream == nullptr || stream->context != event->context)
    return CUDA_ERROR_INVALID_HANDLE;
  Marks* const marks = event->marks;
  const uint64_t mark = marks->recorded.fetch_add(1) + 1;
  return enqueue(stream, [marks, mark] {
    uint64_t before = marks->done.load();
    while (before < mark && !marks->done.compare_exchange_weak(before, mark)) {
    }
  });
}
inline void wait_while_queries_are_held() {
  World& all = world();
  std::unique_lock lock(all.mutex);
  ++all.held_queries;
  all.changed.wait(lock, [&] { return !all.hold_queries; });
  --all.held_queries;
}
inline CUresult cuEventQuery(CUevent event) {
  wait_while_queries_are_held();
  BEGIN_UNSAFE(cuEventQuery);
  if (!exists(event)) return CUDA_ERROR_INVALID_HANDLE;
  return event->marks->done.load() >= event->marks->recorded.load() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
inline CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  BEGIN_IN_CONTEXT(cuStreamWaitEvent);
  if (!exists(event)) return CUDA_ERROR_INVALID_HANDLE;
  Marks* const marks = event->marks;
  const uint64_t mark = marks->recorded.load();
  return enqueue(stream, Operation{[marks, mark] { return marks->done.load() >= mark; }, [] {}});
}
inline CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event) {
  BEGIN_IN_CONTEXT(cuIpcGetEventHandle);
  if (!exists(event) || event->fd < 0) return CUDA_ERROR_INVALID_HANDLE;
  write_ticket(*handle, kEventTicket, event->fd, kPage);
  return CUDA_SUCCESS;
}
inline CUresult cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
  BEGIN_UNSAFE(cuIpcOpenEventHandle);
  Ticket ticket;
  const int fd = open_ticket(handle, kEventTicket, ticket);
  void* const page = fd >= 0 ? map_file(fd, kPage) : nullptr;
  if (page == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *event = new CUevent_st{this_thread().context, fd, static_cast<Marks*>(page)};
  world().events.insert(*event);
  return CUDA_SUCCESS;
}

}  // namespace pc::cuda
