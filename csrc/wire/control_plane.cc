#include "wire/control_plane.h"

#include <algorithm>
#include <utility>

namespace pc {
namespace {

ControlMessage about(FrameType type, const CallId& call, CallReport report) {
  ControlMessage message;
  message.type = type;
  message.call = call;
  message.report = std::move(report);
  return message;
}

ControlMessage cancel_of(const CallId& call, const CallEnd& why, CallReport report) {
  ControlMessage message = about(FrameType::kCancel, call, std::move(report));
  message.end = why;
  return message;
}

bool disagree(const CallReport& ours, const CallReport& theirs) {
  return ours.made() && theirs.made() && ours.digest != 0 && theirs.digest != 0 &&
         ours.digest != theirs.digest;
}

bool is_leaving(const CallReport& report) { return report.state == CallReport::State::kLeaving; }

}  // namespace

ControlPlane::ControlPlane(Rank me, const std::vector<bool>& remote, uint32_t epoch, ControlHost& host)
    : me_(me),
      epoch_(epoch),
      host_(host),
      peers_(me, remote, kHeartbeat) {}

// ---- from the network

void ControlPlane::received(Rank from, const ControlMessage& message, TimePoint now) {
  if (message.epoch != epoch_ || !peers_.lives(from)) return;
  peers_.received_from(from);
  switch (message.type) {
    case FrameType::kNotice:
    case FrameType::kCancel: return call_message_arrived(from, message, now);
    case FrameType::kDead: return dead_arrived(from, message, now);
    case FrameType::kPing: return ping_arrived(from, message);
    case FrameType::kGoodbye:
      peers_.remove(from);
      host_.peer_exited(from);
      return conclude_what_is_done(now);
    default: return;
  }
}

void ControlPlane::call_message_arrived(Rank from, const ControlMessage& message, TimePoint now) {
  const std::span<const Rank> concerned = members(message.call);
  const bool is_cancel = message.type == FrameType::kCancel;
  if (concerned.empty()) {
    // This rank has not made the group yet, or has closed it. It answers nevertheless, so that the
    // sender does not wait for a report. `why` is set if this rank gave the call up when it closed
    // the group.
    const CallEnd* const why = end_of(message.call);
    if (message.asks && why != nullptr) return send(from, cancel_of(message.call, *why, {}));
    if (is_cancel || message.asks) send(from, about(FrameType::kNotice, message.call, {}));
    return;
  }
  const bool has_a_say = std::find(concerned.begin(), concerned.end(), from) != concerned.end();
  if (!has_a_say || (is_cancel && !message.call.is_call())) return;
  is_cancel ? cancel_arrived(from, message, now) : notice_arrived(from, message, now);
}

void ControlPlane::cancel_arrived(Rank from, const ControlMessage& message, TimePoint now) {
  const CallId& call = message.call;
  if (closed_.contains(call)) return;
  CallEnd why = message.end;
  if (why.code == Code::kOk) why.code = Code::kAborted;
  if (why.by < 0 || why.by >= peers_.size()) why.by = from;
  if (end_of(call) == nullptr) {
    host_.end_call(call, why);
    open_episode(call, why, now);
  }
  const auto episode = inquiries_.find(call);
  episode->second.learn(why);
  episode->second.store(from, message.report);
  conclude_if_done(episode, now);
}

void ControlPlane::notice_arrived(Rank from, const ControlMessage& message, TimePoint now) {
  const CallId& call = message.call;
  const CallReport ours = host_.report(call, message.asks && message.asks_where);
  if (const CallEnd* why = end_of(call); why != nullptr) {
    if (message.asks) send(from, cancel_of(call, *why, ours));
  } else if (call.is_call() && disagree(ours, message.report)) {
    const bool it_leaves = is_leaving(message.report) && !is_leaving(ours);
    CallEnd end{Code::kMismatch, me_, "rank " + std::to_string(from) + " made another call"};
    if (it_leaves) end = {Code::kPeerExited, from, "it is in shutdown()"};
    host_.end_call(call, end);
    open_episode(call, end, now);
  } else {
    if (message.asks) send(from, about(FrameType::kNotice, call, ours));
    if (is_leaving(message.report)) host_.peer_leaving(call.group, from);
  }
  const auto inquiry = inquiries_.find(call);
  if (inquiry == inquiries_.end()) return;
  inquiry->second.store(from, message.report);
  conclude_if_done(inquiry, now);
}

void ControlPlane::dead_arrived(Rank from, const ControlMessage& message, TimePoint now) {
  const auto& [code, rank, cause] = message.end;
  if (rank == me_) {
    is_excluded_ = true;
    return host_.excluded(from, cause);
  }
  if (!peers_.lives(rank)) return;
  mark_dead(rank, cause, cause + " (rank " + std::to_string(from) + " says so)", now);
}

void ControlPlane::ping_arrived(Rank from, const ControlMessage& message) {
  if (message.asks) send(from, ControlMessage{});
}

void ControlPlane::lost(Rank peer, const std::string& cause, TimePoint now) {
  // After a goodbye of either side, a lost connection is no death. This rank's own goodbye
  // suffices, because a peer that receives it first sends none.
  if (!goodbye_sent_ && peers_.lives(peer)) mark_dead(peer, cause, cause, now);
}

void ControlPlane::mark_dead(Rank peer, const std::string& cause, const std::string& reported,
                             TimePoint now) {
  ControlMessage message;
  message.type = FrameType::kDead;
  message.end = {Code::kPeerFailure, peer, cause};
  // The peer itself is notified too: if it is alive after all, it must know that the other ranks
  // continue without it. An excluded rank reports no deaths, because it may have missed the goodbye
  // of a rank that left.
  for (Rank rank = 0; rank < peers_.size() && !is_excluded_; ++rank) send(rank, message);
  peers_.remove(peer);
  host_.peer_died(peer, reported);
  conclude_what_is_done(now);
}

// ---- from this rank's calls

void ControlPlane::gave_up(const CallId& call, const CallEnd& why, TimePoint now) {
  if (const auto known = inquiries_.find(call); known != inquiries_.end() && known->second.why().has_value())
    return known->second.learn(why);
  if (closed_.contains(call)) return;
  open_episode(call, why, now);
  conclude_if_done(inquiries_.find(call), now);
}

void ControlPlane::stalled(const CallId& call, Rank waits_for, TimePoint now) {
  if (!peers_.take_question(waits_for, now)) return;
  ControlMessage question = about(FrameType::kNotice, call, host_.report(call, false));
  question.asks = true;
  send(waits_for, std::move(question));
}

void ControlPlane::survey(const CallId& call, TimePoint now) {
  if (inquiries_.contains(call) || closed_.contains(call)) return;
  ControlMessage question = about(FrameType::kNotice, call, host_.report(call, false));
  question.asks = question.asks_where = true;
  for (const Rank rank : members(call)) {
    if (peers_.take_question(rank, now)) send(rank, question);
  }
  conclude_if_done(begin_inquiry(call, std::nullopt, now), now);
}

void ControlPlane::located(const CallId& call, const std::string& where, TimePoint) {
  CallReport report = host_.report(call, false);
  report.where = where;
  report.where_follows = false;
  send_to_others(members(call), about(FrameType::kNotice, call, std::move(report)));
}

void ControlPlane::send_goodbye(TimePoint) {
  ControlMessage message;
  message.type = FrameType::kGoodbye;
  for (Rank rank = 0; rank < peers_.size(); ++rank) send(rank, message);
  goodbye_sent_ = true;
}

// ---- episodes and surveys

std::span<const Rank> ControlPlane::members(const CallId& call) {
  const std::span<const Rank> all = host_.members(call.group);
  if (!call.is_position_query() || all.empty()) return all;
  pair_ = {call.asker(), call.asked()};
  const auto [first, second] = pair_;
  const auto is_member = [all](Rank rank) { return std::find(all.begin(), all.end(), rank) != all.end(); };
  const bool ours = first != second && (first == me_ || second == me_);
  return ours && is_member(first) && is_member(second) ? pair_ : std::span<const Rank>();
}

void ControlPlane::open_episode(const CallId& call, const CallEnd& why, TimePoint now) {
  const CallReport ours = host_.report(call, true);
  send_to_others(members(call), cancel_of(call, why, ours));
  begin_inquiry(call, why, now)->second.store(me_, ours);
}

ControlPlane::Inquiries::iterator ControlPlane::begin_inquiry(const CallId& call, std::optional<CallEnd> why,
                                                              TimePoint now) {
  if (inquiries_.size() >= kMaxInquiries) {
    conclude(std::min_element(inquiries_.begin(), inquiries_.end(), [](const auto& x, const auto& y) {
      return x.second.until() < y.second.until();
    }));
  }
  Inquiry inquiry(members(call), std::move(why), now + kWaitLimit);
  return inquiries_.insert_or_assign(call, std::move(inquiry)).first;
}

ControlPlane::Inquiries::iterator ControlPlane::conclude_if_done(Inquiries::iterator it, TimePoint now) {
  const Inquiry& inquiry = it->second;
  bool waits = false;
  for (std::size_t i = 0; i < inquiry.statuses().size() && !waits; ++i)
    waits = inquiry.waits_for(i) && peers_.lives(inquiry.statuses()[i].rank);
  return waits && now < inquiry.until() ? std::next(it) : conclude(it);
}

ControlPlane::Inquiries::iterator ControlPlane::conclude(Inquiries::iterator it) {
  const CallId call = it->first;
  it->second.store(me_, host_.report(call, false));
  const Inquiry inquiry = std::move(it->second);
  const auto next = inquiries_.erase(it);
  if (!inquiry.why().has_value()) {
    host_.surveyed(call, inquiry.statuses());
    return next;
  }
  const CallEnd cause = inquiry.cause();
  if (closed_order_.size() == kMaxClosed) {
    closed_.erase(closed_order_.front());
    closed_order_.pop_front();
  }
  closed_.emplace(call, cause);
  closed_order_.push_back(call);
  host_.failure_report(call, cause, inquiry.statuses());
  return next;
}

void ControlPlane::conclude_what_is_done(TimePoint now) {
  for (auto it = inquiries_.begin(); it != inquiries_.end();) it = conclude_if_done(it, now);
}

const CallEnd* ControlPlane::end_of(const CallId& call) const {
  if (const auto closed = closed_.find(call); closed != closed_.end()) return &closed->second;
  const auto open = inquiries_.find(call);
  return open != inquiries_.end() && open->second.why().has_value() ? &*open->second.why() : nullptr;
}

// ---- time and sending

void ControlPlane::tick(TimePoint now) {
  conclude_what_is_done(now);
  ControlMessage ping;
  ping.asks = true;
  for (Rank rank = 0; rank < peers_.size() && !goodbye_sent_; ++rank) {
    if (peers_.take_ping(rank, now)) send(rank, ping);
  }
}

std::optional<TimePoint> ControlPlane::next_tick() const {
  std::optional<TimePoint> next = goodbye_sent_ ? std::nullopt : peers_.next_ping();
  for (const auto& [call, inquiry] : inquiries_)
    next = std::min(next.value_or(inquiry.until()), inquiry.until());
  return next;
}

void ControlPlane::send(Rank peer, ControlMessage message) {
  if (goodbye_sent_ || !peers_.lives(peer)) return;
  message.epoch = epoch_;
  host_.send(peer, message);
}

void ControlPlane::send_to_others(std::span<const Rank> members, const ControlMessage& message) {
  for (const Rank rank : members) send(rank, message);
}

}  // namespace pc
