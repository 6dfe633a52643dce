// What ranks tell each other beside the data: who gave up which call and why, who is dead, who is still there. A state
// machine without clock, socket or thread: its host hands it messages and the time, and carries out what it decides, so
// that a simulator can run a whole world of them from one seed.
//
// A call that one rank gives up ends for all. Everybody who learns of it says so to every member once, together with where
// it stands itself; so the news gets through even if the first rank dies while it tells it, and everybody can compose the
// same picture: who made which call, who is late, where.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "wire/control_message.h"
#include "wire/inquiry.h"
#include "wire/peer_watch.h"

namespace pc {

// What a control plane asks of its rank, and tells it. Called from inside the ControlPlane's methods; must not call back.
class ControlHost {
 public:
  // World ranks of a group that this rank is a member of (itself included); empty: there is no such group here (yet).
  virtual std::span<const Rank> members(uint32_t group) = 0;
  // Where this rank stands with the call, or what it is doing at all, if that is asked. `find_where`: where that does not say
  // it already, start finding out where its program is; then where_follows is set and located() comes later.
  virtual CallReport report(const CallId& call, bool find_where) = 0;
  virtual void send(Rank peer, const ControlMessage& message) = 0;  // nothing, if its connection is gone
  // Another rank gave the call up: if it runs here it ends now; if it was not made yet it must not begin; if it is done,
  // nothing.
  virtual void end_call(const CallId& call, const CallEnd& why) = 0;
  // All that can be known about a call that was given up, here or elsewhere: one entry per member, in their order. Once
  // per call, at most kWaitLimit after end_call() or gave_up().
  virtual void failure_report(const CallId& call, const CallEnd& why, std::vector<RankStatus> statuses) = 0;
  // The answer to survey().
  virtual void surveyed(const CallId& call, std::vector<RankStatus> statuses) = 0;
  // Once per peer, and then nothing else of it.
  virtual void peer_died(Rank peer, const std::string& cause) = 0;
  virtual void peer_exited(Rank peer) = 0;  // likewise, at its goodbye
  virtual void peer_leaving(uint32_t, Rank) {
  }  // it is in shutdown() instead of the call that it was asked about
  // `by` takes this rank for dead. Others may say so too.
  virtual void excluded(Rank by, const std::string& cause) = 0;

 protected:
  ~ControlHost() = default;
};

// Thread-safety: none; one thread owns it.
class ControlPlane {
 public:
  static constexpr std::chrono::milliseconds kWaitLimit{400};  // for the others' reports
  static constexpr std::chrono::milliseconds kHeartbeat{500};  // to peers on other hosts

  // `remote`: by world rank, who lives on another host and needs heartbeats.
  ControlPlane(Rank me, const std::vector<bool>& remote, uint32_t epoch, ControlHost& host);

  // ---- from the network
  void received(Rank from, const ControlMessage& message, TimePoint now);
  // A connection to it ended, or it was seen dying.
  void lost(Rank peer, const std::string& cause, TimePoint now);

  // ---- from this rank's calls
  void gave_up(const CallId& call, const CallEnd& why, TimePoint now);  // it has ended here with an error
  // It waits for `waits_for` (a world rank) longer than usual: asks that rank, and finds disagreement that shows in no
  // message. To be repeated while that goes on.
  void stalled(const CallId& call, Rank waits_for, TimePoint now);
  // Asks every member that may be asked where it stands with the call. For whereabouts: the one that they are about.
  void survey(const CallId& call, TimePoint now);
  // This rank has come to a call after others gave it up: now it can say which one it would have made.
  void came_late(const CallId& call, TimePoint now) { located(call, {}, now); }
  void located(const CallId& call, const std::string& where, TimePoint now);
  void send_goodbye(TimePoint now);  // nothing is sent after it

  // ---- time
  void tick(TimePoint now);
  std::optional<TimePoint> next_tick() const;  // nullopt: nothing to do until something else happens

 private:
  using Inquiries = std::map<CallId, Inquiry>;
  static constexpr std::size_t kMaxInquiries = 1024;  // one more concludes the oldest at once
  static constexpr std::size_t kMaxClosed = 1024;     // remembered: late messages do not open them again

  void call_message_arrived(Rank from, const ControlMessage& message, TimePoint now);
  void cancel_arrived(Rank from, const ControlMessage& message, TimePoint now);
  void notice_arrived(Rank from, const ControlMessage& message, TimePoint now);
  void dead_arrived(Rank from, const ControlMessage& message, TimePoint now);
  void ping_arrived(Rank from, const ControlMessage& message);
  void mark_dead(Rank peer, const std::string& cause, const std::string& reported, TimePoint now);

  // Tells every member that `call` ends for all, and starts gathering their reports.
  void open_episode(const CallId& call, const CallEnd& why, TimePoint now);
  Inquiries::iterator begin_inquiry(const CallId& call, std::optional<CallEnd> why, TimePoint now);
  Inquiries::iterator conclude_if_done(Inquiries::iterator inquiry, TimePoint now);  // the next one if it was
  Inquiries::iterator conclude(Inquiries::iterator inquiry);
  void conclude_what_is_done(TimePoint now);
  std::span<const Rank> members(const CallId& call);  // whom it concerns
  const CallEnd* end_of(const CallId& call) const;    // null: nobody that we know of has given it up

  void send(Rank peer, ControlMessage message);
  void send_to_others(std::span<const Rank> members, const ControlMessage& message);

  const Rank me_;
  const uint32_t epoch_;
  ControlHost& host_;
  PeerWatch peers_;
  Inquiries inquiries_;
  std::array<Rank, 2> pair_{};  // what members() points to
  std::map<CallId, CallEnd> closed_;
  std::deque<CallId> closed_order_;
  bool goodbye_sent_ = false, is_excluded_ = false;
};

}  // namespace pc
