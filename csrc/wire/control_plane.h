// The reports that ranks exchange besides the data: which rank gave up which call and why, which
// ranks are dead, and which are alive. ControlPlane is a state machine without clock, socket or
// thread. Its ControlHost passes it messages and the time, and carries out its decisions. A
// simulator can therefore run a world of control planes from one seed.
//
// A call that one rank gives up ends on all ranks. Every rank that is informed of this informs
// every member once, and adds its own report. The notice therefore reaches all members even if the
// first rank dies while it sends. Every rank receives the same reports: which ranks made which
// call, which are late, and what the late ranks are doing.
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

// The interface of a control plane to its rank. The methods of ControlPlane call it; an
// implementation must not call back into ControlPlane.
class ControlHost {
 public:
  // Returns the world ranks of a group, including this rank. Returns an empty span if this rank has
  // no such group, or not yet.
  virtual std::span<const Rank> members(uint32_t group) = 0;
  // Returns this rank's report on the call or, for a position query, on what this rank is doing. If
  // `find_where` is set and the report needs the position of the program, starts to determine it:
  // where_follows is then set, and located() is called later.
  virtual CallReport report(const CallId& call, bool find_where) = 0;
  virtual void send(Rank peer, const ControlMessage& message) = 0;  // sends nothing if the connection is gone
  // Another rank gave the call up. If the call runs here, it must end now. If it was not made yet,
  // it must not begin. If it is done, this has no effect.
  virtual void end_call(const CallId& call, const CallEnd& why) = 0;
  // Passes all reports on a call that was given up on any rank: one status per member, in the order
  // of the members. Called once per call, at most kWaitLimit after end_call() or gave_up().
  virtual void failure_report(const CallId& call, const CallEnd& why, std::vector<RankStatus> statuses) = 0;
  // The result of survey().
  virtual void surveyed(const CallId& call, std::vector<RankStatus> statuses) = 0;
  // Called once per peer; nothing about that peer follows.
  virtual void peer_died(Rank peer, const std::string& cause) = 0;
  // Called once per peer, when its goodbye arrives; nothing about that peer follows.
  virtual void peer_exited(Rank peer) = 0;
  virtual void peer_leaving(uint32_t, Rank) {}  // the peer, asked about a call, is in shutdown() instead
  // `by` considers this rank dead. More than one rank may report this.
  virtual void excluded(Rank by, const std::string& cause) = 0;

 protected:
  ~ControlHost() = default;
};

// Thread-safety: none; one thread owns it.
class ControlPlane {
 public:
  static constexpr std::chrono::milliseconds kWaitLimit{400};  // limit for the reports of the other ranks
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
  // that rank, because the two ranks may be in different calls without any message that shows it.
  // Call this repeatedly while the wait lasts.
  void stalled(const CallId& call, Rank waits_for, TimePoint now);
  // Requests a report on the call from every member to which PeerWatch allows an inquiry; for a
  // position query, only from the rank in question.
  void survey(const CallId& call, TimePoint now);
  // entered_late(): this rank has entered a call after other ranks gave it up, so it can now report
  // its own call. located(): the position of this rank's program was determined. Both send the
  // report to the members.
  void entered_late(const CallId& call, TimePoint now) { located(call, {}, now); }
  void located(const CallId& call, const std::string& where, TimePoint now);
  void send_goodbye(TimePoint now);  // nothing is sent after it

  // ---- time
  void tick(TimePoint now);
  std::optional<TimePoint> next_tick() const;  // nullopt: nothing to do until another event

 private:
  using Inquiries = std::map<CallId, Inquiry>;
  static constexpr std::size_t kMaxInquiries = 1024;  // beyond this limit the oldest is concluded at once
  // limit for ended calls that are remembered so that late messages do not open them again
  static constexpr std::size_t kMaxClosed = 1024;

  void call_message_arrived(Rank from, const ControlMessage& message, TimePoint now);
  void cancel_arrived(Rank from, const ControlMessage& message, TimePoint now);
  void notice_arrived(Rank from, const ControlMessage& message, TimePoint now);
  void dead_arrived(Rank from, const ControlMessage& message, TimePoint now);
  void ping_arrived(Rank from, const ControlMessage& message);
  void mark_dead(Rank peer, const std::string& cause, const std::string& reported, TimePoint now);

  // Notifies every member that `call` ends on all ranks, and starts collecting their reports.
  void open_episode(const CallId& call, const CallEnd& why, TimePoint now);
  Inquiries::iterator begin_inquiry(const CallId& call, std::optional<CallEnd> why, TimePoint now);
  // Concludes the inquiry if no report is outstanding or its time is over. Returns the next
  // inquiry.
  Inquiries::iterator conclude_if_done(Inquiries::iterator inquiry, TimePoint now);
  Inquiries::iterator conclude(Inquiries::iterator inquiry);
  void conclude_what_is_done(TimePoint now);
  std::span<const Rank> members(const CallId& call);  // the ranks that the call concerns
  // Returns null if, as far as this rank knows, no rank has given the call up.
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
