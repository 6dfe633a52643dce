// What ranks report to each other beside the data: which rank gave up which call and why, which
// ranks are dead, which are still there. A state machine without clock, socket or thread: its host
// passes it messages and the time and carries out its decisions, so that a simulator can run a
// whole world of control planes from one seed.
//
// A call that one rank gives up ends on all ranks. Every rank that learns of it informs every
// member once and adds its own report. So the notice arrives even if the first rank dies while it
// sends, and every rank can compose the same picture: which ranks made which call, which are late,
// and where.
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

// What a control plane requires of its rank and reports to it. Called from inside the
// ControlPlane's methods; must not call back into it.
class ControlHost {
 public:
  // Returns the world ranks of a group of which this rank is a member (including itself). Returns
  // an empty span if there is no such group here (yet).
  virtual std::span<const Rank> members(uint32_t group) = 0;
  // Returns the state of the call on this rank or, for whereabouts, what this rank is doing. With
  // `find_where`, unless the report already contains the position of the program, starts
  // determining it; where_follows is then set, and located() is called later.
  virtual CallReport report(const CallId& call, bool find_where) = 0;
  virtual void send(Rank peer, const ControlMessage& message) = 0;  // sends nothing if the connection is gone
  // Another rank gave the call up. If the call runs here, it must end now. If it was not made yet,
  // it must not begin. If it is done, nothing happens.
  virtual void end_call(const CallId& call, const CallEnd& why) = 0;
  // All that can be known about a call that was given up, here or elsewhere: one entry per member,
  // in their order. Called once per call, at most kWaitLimit after end_call() or gave_up().
  virtual void failure_report(const CallId& call, const CallEnd& why, std::vector<RankStatus> statuses) = 0;
  // The result of survey().
  virtual void surveyed(const CallId& call, std::vector<RankStatus> statuses) = 0;
  // Called once per peer; nothing about that peer follows.
  virtual void peer_died(Rank peer, const std::string& cause) = 0;
  // Called once per peer, when its goodbye arrives; nothing about that peer follows.
  virtual void peer_exited(Rank peer) = 0;
  virtual void peer_leaving(uint32_t, Rank) {}  // it is in shutdown() and not in the call of the inquiry
  // `by` considers this rank dead. More than one rank may report this.
  virtual void excluded(Rank by, const std::string& cause) = 0;

 protected:
  ~ControlHost() = default;
};

// Thread-safety: none; one thread owns it.
class ControlPlane {
 public:
  static constexpr std::chrono::milliseconds kWaitLimit{400};  // for the reports of the other ranks
  static constexpr std::chrono::milliseconds kHeartbeat{500};  // to peers on other hosts

  // `remote`: by world rank, true if the rank is on another host and needs heartbeats.
  ControlPlane(Rank me, const std::vector<bool>& remote, uint32_t epoch, ControlHost& host);

  // ---- from the network
  void received(Rank from, const ControlMessage& message, TimePoint now);
  // The connection to the peer ended, or the peer was observed to die.
  void lost(Rank peer, const std::string& cause, TimePoint now);

  // ---- from this rank's calls
  // The call has ended here with an error.
  void gave_up(const CallId& call, const CallEnd& why, TimePoint now);
  // The call has waited for `waits_for` (a world rank) longer than usual. Requests a report from
  // that rank, which reveals a disagreement that no message shows. Call this repeatedly while the
  // wait lasts.
  void stalled(const CallId& call, Rank waits_for, TimePoint now);
  // Requests a report on the call from every member that may be asked. For whereabouts, requests it
  // from the rank that they are about.
  void survey(const CallId& call, TimePoint now);
  // This rank has entered a call after other ranks gave it up: it can now report which call it
  // would have made.
  void came_late(const CallId& call, TimePoint now) { located(call, {}, now); }
  void located(const CallId& call, const std::string& where, TimePoint now);
  void send_goodbye(TimePoint now);  // nothing is sent after it

  // ---- time
  void tick(TimePoint now);
  std::optional<TimePoint> next_tick() const;  // nullopt: nothing to do until another event

 private:
  using Inquiries = std::map<CallId, Inquiry>;
  static constexpr std::size_t kMaxInquiries = 1024;  // one more concludes the oldest at once
  static constexpr std::size_t kMaxClosed = 1024;  // remembered, so that late messages do not open them again

  void call_message_arrived(Rank from, const ControlMessage& message, TimePoint now);
  void cancel_arrived(Rank from, const ControlMessage& message, TimePoint now);
  void notice_arrived(Rank from, const ControlMessage& message, TimePoint now);
  void dead_arrived(Rank from, const ControlMessage& message, TimePoint now);
  void ping_arrived(Rank from, const ControlMessage& message);
  void mark_dead(Rank peer, const std::string& cause, const std::string& reported, TimePoint now);

  // Notifies every member that `call` ends on all ranks, and starts collecting their reports.
  void open_episode(const CallId& call, const CallEnd& why, TimePoint now);
  Inquiries::iterator begin_inquiry(const CallId& call, std::optional<CallEnd> why, TimePoint now);
  // Returns the next inquiry if this one was concluded.
  Inquiries::iterator conclude_if_done(Inquiries::iterator inquiry, TimePoint now);
  Inquiries::iterator conclude(Inquiries::iterator inquiry);
  void conclude_what_is_done(TimePoint now);
  std::span<const Rank> members(const CallId& call);  // the ranks that it concerns
  // Returns null if, as far as this rank knows, no rank has given it up.
  const CallEnd* end_of(const CallId& call) const;

  void send(Rank peer, ControlMessage message);
  void send_to_others(std::span<const Rank> members, const ControlMessage& message);

  const Rank me_;
  const uint32_t epoch_;
  ControlHost& host_;
  PeerWatch peers_;
  Inquiries inquiries_;
  std::array<Rank, 2> pair_{};  // storage for the result of members()
  std::map<CallId, CallEnd> closed_;
  std::deque<CallId> closed_order_;
  bool goodbye_sent_ = false, is_excluded_ = false;
};

}  // namespace pc
