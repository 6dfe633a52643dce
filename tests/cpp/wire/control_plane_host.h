// One ControlPlane, rank 0 of a world of four. The test acts as its peers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "wire/control_plane.h"

namespace pc {

using State = CallReport::State;
using std::chrono::milliseconds;

inline constexpr uint32_t kEpoch = 7;
inline constexpr uint32_t kWorld = 0, kSub = 1, kUnknownGroup = 99;
inline constexpr CallId kCall{kWorld, 5};
inline const CallEnd kLate{Code::kTimeout, 2, "timed out after 3 s"};

struct Host final : ControlHost {
  struct Sent {
    Rank to;
    ControlMessage message;
  };
  struct Ended {
    CallId call;
    CallEnd why;
    std::vector<RankStatus> statuses;  // of a failure report or survey
  };
  std::map<uint32_t, std::vector<Rank>> groups = {{kWorld, {0, 1, 2, 3}}, {kSub, {3, 0}}};
  CallReport rank_status{.state = State::kRunning, .digest = 0xaa, .call = "allreduce"};
  std::vector<Sent> sent;
  std::vector<Ended> ended, failure_reports, surveys;
  std::vector<Rank> died, exited, excluded_by, leaving;
  std::vector<std::string> causes;
  int position_requests = 0;

  std::span<const Rank> members(uint32_t group) override { return groups[group]; }
  CallReport report(const CallId&, bool find_where) override {
    CallReport now = rank_status;
    now.where_follows |= find_where && now.state == State::kNotMade;
    position_requests += find_where;
    return now;
  }
  void send(Rank peer, const ControlMessage& message) override { sent.push_back({peer, message}); }
  void end_call(const CallId& call, const CallEnd& why) override {
    ended.push_back({call, why, {}});
    if (rank_status.state == State::kRunning) rank_status.state = State::kGivenUp;
  }
  void failure_report(const CallId& call, const CallEnd& why, std::vector<RankStatus> statuses) override {
    failure_reports.push_back({call, why, std::move(statuses)});
  }
  void surveyed(const CallId& call, std::vector<RankStatus> statuses) override {
    surveys.push_back({call, {}, std::move(statuses)});
  }
  void peer_died(Rank peer, const std::string& cause) override {
    died.push_back(peer);
    causes.push_back(cause);
  }
  void peer_exited(Rank peer) override { exited.push_back(peer); }
  void peer_leaving(uint32_t, Rank peer) override { leaving.push_back(peer); }
  void excluded(Rank by, const std::string& cause) override {
    excluded_by.push_back(by);
    causes.push_back(cause);
  }
};

class ControlPlaneTest : public ::testing::Test {
 protected:
  Host host;
  ControlPlane plane{0, {false, false, false, false}, kEpoch, host};
  TimePoint now = TimePoint{} + std::chrono::hours(1);

  void after(milliseconds time) {
    now += time;
    plane.tick(now);
  }
  ControlMessage made(FrameType type, const CallId& call = kCall, CallReport report = {}) {
    ControlMessage m;
    m.type = type;
    m.epoch = kEpoch;
    m.call = call;
    m.report = std::move(report);
    return m;
  }
  void notice(Rank from, CallReport report, bool asks = false, const CallId& call = kCall) {
    ControlMessage m = made(FrameType::kNotice, call, std::move(report));
    m.asks = asks;
    plane.received(from, m, now);
  }
  void cancel(Rank from, const CallEnd& why, CallReport report = {.state = State::kGivenUp},
              const CallId& call = kCall) {
    ControlMessage m = made(FrameType::kCancel, call, std::move(report));
    m.end = why;
    plane.received(from, m, now);
  }
  void dead(Rank from, Rank rank, const std::string& cause = "killed") {
    ControlMessage m = made(FrameType::kDead, {});
    m.end = {Code::kPeerFailure, rank, cause};
    plane.received(from, m, now);
  }
  void goodbye(Rank from) { plane.received(from, made(FrameType::kGoodbye, {}), now); }

  // Returns the ranks that were sent a message of this type since the last call.
  std::vector<Rank> notified_ranks(FrameType type) {
    std::vector<Rank> ranks;
    for (const Host::Sent& sent : host.sent) {
      EXPECT_EQ(sent.message.epoch, kEpoch);
      if (sent.message.type == type) ranks.push_back(sent.to);
    }
    host.sent.clear();
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }
};

using Ranks = std::vector<Rank>;

}  // namespace pc
