#include "bench/roofline.h"

#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "bench/host_arrays.h"
#include "kernels/reduce.h"
#include "net/socket.h"

namespace pc::bench {
namespace {

constexpr double kWaitLimitS = 60;       // for one size over TCP
constexpr uint64_t kClocked = 64 << 10;  // bytes: smaller work is repeated between two readings of the clock

// Times `work`, which performs the measured operation `repeats` times.
template <class Work>
Latencies time_work(uint64_t iterations, int repeats, Work work) {
  work();
  std::vector<int64_t> ends = {now_ns()};
  for (uint64_t i = 0; i < iterations; ++i) {
    work();
    ends.push_back(now_ns());
  }
  return latencies(differences(ends), ends.back() - ends.front(), repeats);
}

// Makes the compiler assume that other code reads and writes the memory.
void keep(const std::byte* memory) { asm volatile("" : : "r"(memory) : "memory"); }

// Times `work`, which takes two arrays of `nbytes`.
template <class Work>
Result<Roofline> roofline_of_memory(std::string_view name, uint64_t nbytes, uint64_t iterations, Work work) {
  PC_ASSIGN_OR_RETURN(const Memory to, allocate(nbytes));
  PC_ASSIGN_OR_RETURN(const Memory from, allocate(nbytes));
  const int repeats = static_cast<int>(std::max<uint64_t>(1, kClocked / std::max<uint64_t>(1, nbytes)));
  const Latencies time = time_work(iterations, repeats, [&] {
    for (int i = 0; i < repeats; ++i) work(to.get(), from.get());
  });
  return Roofline{name, nbytes, iterations, time};
}

// Pins this thread to one of the cores that it may use, always the same core for the same `which`,
// while the object lives. Otherwise two threads that wait for each other may share a core. If there
// is only one core, they must share it.
class OnCore {
 public:
  explicit OnCore(int which) {
    if (::sched_getaffinity(0, sizeof before_, &before_) != 0 || CPU_COUNT(&before_) <= which) return;
    int core = 0;
    for (int usable = which; !CPU_ISSET(core, &before_) || usable-- > 0;) ++core;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    kept_ = ::sched_setaffinity(0, sizeof one, &one) == 0;
  }
  ~OnCore() {
    if (kept_) (void)::sched_setaffinity(0, sizeof before_, &before_);
  }
  OnCore(const OnCore&) = delete;
  OnCore& operator=(const OnCore&) = delete;

 private:
  cpu_set_t before_ = {};
  bool kept_ = false;
};
constexpr int kOriginCore = 0, kEchoCore = 1;

// ---- TCP

struct Pair {
  Fd origin, echo;
};

Status await(int fd, short events, Deadline deadline) {
  pollfd waits = {fd, events, 0};
  const int ready = ::poll(&waits, 1, deadline.slice_ms(60'000));
  if (ready < 0 && errno != EINTR) return system_error("poll", errno);
  return ready != 0 || !deadline.expired()
             ? Status::ok()
             : Status(Code::kTimeout, "the loopback connection does not answer");
}

void send_at_once(const Fd& fd) {
  const int on = 1;
  (void)::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Result<Pair> loopback(Deadline deadline) {
  PC_ASSIGN_OR_RETURN(const SocketAddress any, parse_endpoint("127.0.0.1:0"));
  PC_ASSIGN_OR_RETURN(const Fd listener, new_socket(any));
  PC_TRY(listen_on(listener, any, 1));
  const SocketAddress address = local_address(listener.get());
  Pair pair;
  PC_ASSIGN_OR_RETURN(pair.origin, new_socket(address));
  PC_TRY(start_connect(pair.origin, address));
  while (!pair.echo.valid()) {
    PC_TRY(await(listener.get(), POLLIN, deadline));
    PC_ASSIGN_OR_RETURN(pair.echo, accept_one(listener.get()));
  }
  PC_TRY(await(pair.origin.get(), POLLOUT, deadline));
  send_at_once(pair.origin);
  send_at_once(pair.echo);
  return pair;
}

enum class Direction : uint8_t { kOut, kIn };

// Sends or receives all bytes. Polls the socket, and yields from time to time.
Status move(const Fd& fd, Direction direction, std::byte* data, uint64_t nbytes, Deadline deadline) {
  constexpr int kPollsPerYield = 64;
  int idle = 0;
  for (uint64_t done = 0; done < nbytes;) {
    const ssize_t moved = direction == Direction::kOut
                              ? ::send(fd.get(), data + done, nbytes - done, MSG_DONTWAIT | MSG_NOSIGNAL)
                              : ::recv(fd.get(), data + done, nbytes - done, MSG_DONTWAIT);
    if (moved > 0) {
      done += static_cast<uint64_t>(moved);
      continue;
    }
    if (moved == 0) return Status(Code::kPeerFailure, "the loopback connection has ended");
    if (errno != EAGAIN && errno != EINTR) return system_error("the loopback connection", errno);
    if (++idle % kPollsPerYield != 0) continue;
    if (deadline.expired()) return Status(Code::kTimeout, "the loopback connection does not answer");
    ::sched_yield();
  }
  return Status::ok();
}

// ---- the futex

class HandOff {
 public:
  void pass(uint32_t to) {
    holder_.store(to, std::memory_order_release);
    futex(FUTEX_WAKE, 1);
  }
  void await(uint32_t self) {
    for (uint32_t holder = holder_.load(std::memory_order_acquire); holder != self;
         holder = holder_.load(std::memory_order_acquire))
      futex(FUTEX_WAIT, holder);
  }

 private:
  // Not a private futex, because the ranks of a job are processes, and a private futex works only
  // within one process.
  void futex(int operation, uint32_t value) {
    ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&holder_), operation, value, nullptr, nullptr, 0);
  }
  std::atomic<uint32_t> holder_ = 0;
};

}  // namespace

Result<Roofline> roofline_of_copy(uint64_t nbytes, uint64_t iterations) {
  return roofline_of_memory("memcpy", nbytes, iterations, [nbytes](std::byte* to, const std::byte* from) {
    std::memcpy(to, from, nbytes);
    keep(to);
  });
}

Result<Roofline> roofline_of_add(uint64_t nbytes, uint64_t iterations) {
  const uint64_t count = std::max<uint64_t>(1, nbytes / sizeof(float));
  return roofline_of_memory(
      "add", count * sizeof(float), iterations,
      [count](std::byte* a, const std::byte* b) { reduce(a, a, b, count, DType::kF32, ReduceOp::kSum); });
}

Result<Roofline> roofline_of_tcp(uint64_t nbytes, uint64_t iterations, Deadline deadline) {
  PC_ASSIGN_OR_RETURN(const Memory ours, allocate(nbytes));
  PC_ASSIGN_OR_RETURN(const Memory theirs, allocate(nbytes));
  PC_ASSIGN_OR_RETURN(Pair pair, loopback(deadline));
  Status answered = Status::ok(), asked = Status::ok();
  std::thread echo([&] {
    const OnCore core(kEchoCore);
    while (answered.is_ok()) {  // until the other end is closed
      answered = move(pair.echo, Direction::kIn, theirs.get(), nbytes, deadline);
      if (answered.is_ok()) answered = move(pair.echo, Direction::kOut, theirs.get(), nbytes, deadline);
    }
    pair.echo.reset();
  });
  const OnCore core(kOriginCore);
  const Latencies time = time_work(iterations, 2, [&] {
    if (asked.is_ok()) asked = move(pair.origin, Direction::kOut, ours.get(), nbytes, deadline);
    if (asked.is_ok()) asked = move(pair.origin, Direction::kIn, ours.get(), nbytes, deadline);
  });
  pair.origin.reset();
  echo.join();
  // If the echo timed out first, `asked` only reports that the echo closed the connection.
  if (!asked.is_ok()) return answered.code() == Code::kTimeout ? answered : asked;
  return Roofline{"tcp", nbytes, iterations, time};
}

Roofline roofline_of_wake(uint64_t iterations) {
  constexpr uint32_t kOrigin = 0, kEcho = 1;
  HandOff hand_off;
  std::thread echo([&] {
    const OnCore core(kEchoCore);
    for (uint64_t i = 0; i < iterations + 1; ++i) {  // time_work() begins with one untimed call
      hand_off.await(kEcho);
      hand_off.pass(kOrigin);
    }
  });
  const OnCore core(kOriginCore);
  const Latencies time = time_work(iterations, 2, [&] {
    hand_off.pass(kEcho);
    hand_off.await(kOrigin);
  });
  echo.join();
  return {"futex", 0, iterations, time};
}

Status measure_roofline(const Options& options, const std::function<Status(const Roofline&)>& take) {
  PC_TRY(take(roofline_of_wake(effort(options, 1).iterations)));
  for (const uint64_t nbytes : options.sizes) {
    const uint64_t iterations = effort(options, nbytes).iterations;
    PC_ASSIGN_OR_RETURN(const Roofline copy, roofline_of_copy(nbytes, iterations));
    PC_TRY(take(copy));
    PC_ASSIGN_OR_RETURN(const Roofline add, roofline_of_add(nbytes, iterations));
    PC_TRY(take(add));
    PC_ASSIGN_OR_RETURN(const Roofline tcp,
                        roofline_of_tcp(nbytes, iterations, Deadline::after(kWaitLimitS)));
    PC_TRY(take(tcp));
  }
  return Status::ok();
}

}  // namespace pc::bench
