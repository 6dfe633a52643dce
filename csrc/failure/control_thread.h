// The control thread of a rank, the only thread that init() starts. It sleeps in epoll, owns the
// control connections, watches the processes of the peers on this host, and runs the ControlPlane.
// It never touches data and never runs the user's code.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "net/byte_stream.h"
#include "wire/control_plane.h"

namespace pc {

// The interface of a group to the control thread. Only the control thread calls it.
class ControlledGroup {
 public:
  virtual std::span<const Rank> world_ranks() const = 0;
  virtual CallReport report(uint64_t sequence) = 0;
  virtual void end_call(uint64_t sequence, const CallEnd& why) = 0;
  virtual void failure_report(uint64_t sequence, const CallEnd& why,
                              std::span<const RankStatus> statuses) = 0;
  virtual void surveyed(uint64_t sequence, std::span<const RankStatus> statuses) = 0;
  virtual void peer_leaving(Rank peer) = 0;  // the peer is in shutdown()
  virtual void peer_exited(Rank peer) = 0;   // the peer, a world rank, has said goodbye
  // `peer`, a world rank, can make no more calls with this rank. The code of `why` is kPeerFailure
  // or kExcluded.
  virtual void peer_ended(Rank peer, const Status& why) = 0;

 protected:
  ~ControlledGroup() = default;
};

struct ControlOptions {
  Rank rank = 0;
  uint32_t epoch = 0;
  std::vector<ByteStream> sockets;  // by world rank; this rank's own entry is empty
  std::vector<bool> remote;         // true for ranks on another host
  std::vector<int64_t> pids;        // process ids by world rank; 0: the process is not visible from here
  // Determines the line that this process's program executes, and passes its text to the callback.
  // Does not block. May be empty.
  std::function<void(std::function<void(std::string)>)> find_position;
  int print_request = -1;  // an eventfd, not owned: readable when print_record must be called; -1: never
  std::function<void()> print_record = {};
};

// Thread-safety: all methods.
class ControlThread {
 public:
  static Result<std::unique_ptr<ControlThread>> create(ControlOptions options);
  Status start();  // call it once, when the initial groups have been added
  ~ControlThread() { stop(); }
  ControlThread(const ControlThread&) = delete;
  ControlThread& operator=(const ControlThread&) = delete;

  // also reports to `calls` the peers that have already ended
  void add(uint32_t group, std::shared_ptr<ControlledGroup> calls);
  void remove(uint32_t group);  // `calls` may still receive notifications that are in flight

  // These forward to ControlPlane; its header explains them. None of them waits.
  void gave_up(const CallId& call, const CallEnd& why);
  void stalled(const CallId& call, Rank waits_for);
  void survey(const CallId& call);
  void entered_late(const CallId& call);
  void lost(Rank peer, const std::string& cause);
  void send_goodbye();

  void stop();  // closes at once; without send_goodbye() before, the peers report a death
  // For a forked child: closes every descriptor. Takes no lock; no other method may be called
  // afterwards.
  void close_in_child() noexcept;

 private:
  ControlThread();
  struct State;
  std::shared_ptr<State> state_;  // searches for the program's position hold weak references to it
};

}  // namespace pc
