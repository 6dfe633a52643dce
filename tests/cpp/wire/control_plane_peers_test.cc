// Peers that die, leave, fall silent or send invalid messages.
#include <algorithm>
#include <random>

#include "control_plane_host.h"

namespace pc {
namespace {

// ---- death and departure

TEST_F(ControlPlaneTest, ADeathIsReportedToAllOnce) {
  plane.lost(2, "reset", now);
  plane.lost(2, "reset", now);
  EXPECT_EQ(host.died, (Ranks{2}));
  EXPECT_EQ(host.causes.at(0), "reset");
  EXPECT_EQ(host.sent.at(0).message.end.by, 2);
  EXPECT_EQ(host.sent.at(0).message.end.text, "reset");
  EXPECT_EQ(notified_ranks(FrameType::kDead), (Ranks{1, 2, 3})) << "the dead too: it may live after all";
}

TEST_F(ControlPlaneTest, ADeathThatIsReportedIsPassedOnOnce) {
  dead(1, 2);
  EXPECT_EQ(host.died, (Ranks{2}));
  EXPECT_EQ(host.causes.at(0), "killed (rank 1 says so)");
  EXPECT_EQ(host.sent.at(0).message.end.text, "killed");
  EXPECT_EQ(notified_ranks(FrameType::kDead), (Ranks{1, 2, 3}));
  dead(3, 2);
  plane.lost(2, "reset", now);
  EXPECT_EQ(host.died.size(), 1u);
  EXPECT_TRUE(host.sent.empty());
}

TEST_F(ControlPlaneTest, ADeadRankIsIgnoredAndSentNothing) {
  plane.lost(2, "reset", now);
  host.sent.clear();
  cancel(2, kLate);
  dead(2, 1);
  goodbye(2);
  notice(2, {}, true);
  EXPECT_TRUE(host.ended.empty() && host.exited.empty() && host.sent.empty());
  EXPECT_EQ(host.died, (Ranks{2}));
  plane.gave_up(kCall, kLate, now);
  EXPECT_EQ(notified_ranks(FrameType::kCancel), (Ranks{1, 3}));
}

TEST_F(ControlPlaneTest, AnExcludedRankIsInformed) {
  dead(1, 0, "no heartbeat");
  EXPECT_EQ(host.excluded_by, (Ranks{1}));
  EXPECT_EQ(host.causes.at(0), "no heartbeat");
  EXPECT_TRUE(host.died.empty() && host.sent.empty());
}

TEST_F(ControlPlaneTest, AnExcludedRankReportsNoDeaths) {
  dead(1, 0, "no heartbeat");
  plane.lost(1, "end of stream", now);  // it may have sent a goodbye to all ranks but this one
  EXPECT_EQ(host.died, (Ranks{1}));
  EXPECT_TRUE(host.sent.empty());
}

TEST_F(ControlPlaneTest, AGoodbyeMakesTheEndOfTheConnectionOrderly) {
  goodbye(2);
  EXPECT_EQ(host.exited, (Ranks{2}));
  goodbye(2);
  plane.lost(2, "end of stream", now);
  dead(1, 2);
  cancel(2, kLate);
  EXPECT_EQ(host.exited.size(), 1u);
  EXPECT_TRUE(host.died.empty() && host.sent.empty() && host.ended.empty());
}

TEST_F(ControlPlaneTest, NothingIsSentAfterOurGoodbye) {
  plane.send_goodbye(now);
  EXPECT_EQ(notified_ranks(FrameType::kGoodbye), (Ranks{1, 2, 3}));
  plane.gave_up(kCall, kLate, now);
  plane.lost(1, "reset", now);
  EXPECT_TRUE(host.died.empty());  // it has read our goodbye, and left
  notice(2, {}, true);
  plane.send_goodbye(now);
  after(ControlPlane::kWaitLimit);
  EXPECT_TRUE(host.sent.empty());
  EXPECT_EQ(host.failure_reports.size(), 1u);
}

// ---- time

TEST_F(ControlPlaneTest, AnIdleWorldOfOneHostNeverWakes) {
  EXPECT_FALSE(plane.next_tick().has_value());
  after(std::chrono::hours(1));
  EXPECT_TRUE(host.sent.empty());
  EXPECT_FALSE(plane.next_tick().has_value());
}

TEST_F(ControlPlaneTest, PeersOnOtherHostsHaveHeartbeats) {
  ControlPlane remote(0, {false, true, false, false}, kEpoch, host);
  for (int beat = 0; beat < 3; ++beat) {
    remote.tick(now);
    remote.tick(now);
    EXPECT_TRUE(host.sent.at(0).message.asks);
    EXPECT_EQ(notified_ranks(FrameType::kPing), (Ranks{1}));
    EXPECT_EQ(remote.next_tick(), now + ControlPlane::kHeartbeat);
    now += ControlPlane::kHeartbeat;
    remote.received(1, made(FrameType::kPing), now);
  }
}

TEST_F(ControlPlaneTest, AStoppedPeerGetsFewPingsAndOthersAgainWhenItAnswers) {
  ControlPlane remote(0, {false, true, false, false}, kEpoch, host);
  for (int beat = 0; beat < 100; ++beat, now += ControlPlane::kHeartbeat) remote.tick(now);
  EXPECT_EQ(notified_ranks(FrameType::kPing).size(), 8u);
  EXPECT_FALSE(remote.next_tick().has_value());
  remote.received(1, made(FrameType::kPing), now);
  remote.tick(now);
  EXPECT_EQ(notified_ranks(FrameType::kPing), (Ranks{1}));
  remote.lost(1, "reset", now);
  EXPECT_FALSE(remote.next_tick().has_value());
}

TEST_F(ControlPlaneTest, APingIsAnswered) {
  ControlMessage ping = made(FrameType::kPing, {});
  ping.asks = true;
  plane.received(3, ping, now);
  ASSERT_EQ(host.sent.size(), 1u);
  EXPECT_FALSE(host.sent[0].message.asks);
  EXPECT_EQ(notified_ranks(FrameType::kPing), (Ranks{3}));
}

TEST_F(ControlPlaneTest, AStoppedPeerGetsNoRequestsAfterFourSecondsUntilItAnswers) {
  for (int asked = 0; asked < 100; ++asked) {
    plane.stalled(kCall, 1, now);
    plane.survey({kWorld, 9}, now);
    after(milliseconds(1000));  // the survey has ended
    if (asked < 20) notice(2, {.state = State::kRunning});
  }
  const Ranks asked = notified_ranks(FrameType::kNotice);
  EXPECT_EQ(std::count(asked.begin(), asked.end(), 1), 8);   // two a second
  EXPECT_EQ(std::count(asked.begin(), asked.end(), 2), 24);  // one a second
  notice(1, {.state = State::kRunning});
  for (int i = 0; i < 20; ++i) plane.stalled(kCall, 1, now);  // a rank of many groups may request often
  EXPECT_EQ(notified_ranks(FrameType::kNotice).size(), 20u);
}

// ---- pending connections, messages of earlier worlds and invalid messages

TEST_F(ControlPlaneTest, MessagesOfAnotherEpochHaveNoEffect) {
  for (const uint32_t epoch : {kEpoch - 1, kEpoch + 1}) {
    for (const FrameType type :
         {FrameType::kNotice, FrameType::kDead, FrameType::kCancel, FrameType::kPing, FrameType::kGoodbye}) {
      ControlMessage m = made(type, kCall, {.state = State::kRunning, .digest = 0xbb});
      m.epoch = epoch;
      m.asks = true;
      m.end = {Code::kTimeout, 2, "old"};
      plane.received(1, m, now);
    }
  }
  EXPECT_TRUE(host.sent.empty() && host.ended.empty() && host.died.empty() && host.exited.empty());
}

TEST_F(ControlPlaneTest, AGroupThatIsNotKnownHereIsAnsweredWithNothing) {
  cancel(1, kLate, {}, {kUnknownGroup, 5});
  notice(2, {.state = State::kRunning, .digest = 1}, true, {kUnknownGroup, 5});
  notice(3, {.state = State::kRunning, .digest = 1}, false, {kUnknownGroup, 5});
  EXPECT_EQ(host.sent.at(0).message.report.state, State::kUnknown);
  EXPECT_EQ(notified_ranks(FrameType::kNotice), (Ranks{1, 2}));
  EXPECT_TRUE(host.ended.empty());
}

TEST_F(ControlPlaneTest, NonsenseIsIgnored) {
  for (const Rank invalid : {-1, 0, 4, 1'000'000}) {
    cancel(invalid, kLate);
    dead(invalid, 1);
    goodbye(invalid);
    plane.lost(invalid, "reset", now);
    dead(1, invalid == 0 ? -5 : invalid);
  }
  cancel(1, kLate, {}, {kWorld, 0});
  cancel(2, kLate, {}, {kSub, 4});
  ControlMessage odd = made(FrameType::kData);
  plane.received(1, odd, now);
  EXPECT_TRUE(host.sent.empty() && host.ended.empty() && host.died.empty() && host.exited.empty());
}

TEST_F(ControlPlaneTest, ACancelWithoutAnErrorOrAValidRankIsAnAbortByItsSender) {
  cancel(1, {Code::kOk, 77, "?"});
  EXPECT_EQ(host.ended.at(0).why.code, Code::kAborted);
  EXPECT_EQ(host.ended.at(0).why.by, 1);
}

// Messages of random contents from random ranks: with any input, each call that ends has one
// failure report in time, and no rank is reported dead twice.
TEST(ControlPlaneFuzz, EachEndedCallHasOneReportWhateverArrives) {
  std::mt19937 random(1);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  const auto any_rank = [&] { return static_cast<Rank>(below(6)) - 1; };
  const auto any_message = [&] {
    static constexpr FrameType kTypes[] = {FrameType::kNotice, FrameType::kCancel, FrameType::kPing};
    ControlMessage m;
    m.type = kTypes[below(3)];
    if (below(100) == 0) m.type = static_cast<FrameType>(below(12));
    m.epoch = below(20) == 0 ? kEpoch - 1 : kEpoch;
    m.call = {below(4) == 0 ? below(3) : kWorld, below(8)};
    m.asks = below(2) == 0;
    m.asks_where = below(2) == 0;
    m.end = {static_cast<Code>(below(14)), any_rank(), "?"};
    m.report.state = static_cast<State>(below(6));
    m.report.digest = below(3);
    m.report.where_follows = below(4) == 0;
    return m;
  };
  std::size_t failure_reports = 0;
  for (int world = 0; world < 500; ++world) {
    Host host;
    ControlPlane plane(0, {false, true, false, false}, kEpoch, host);
    TimePoint now = TimePoint{} + std::chrono::hours(1);
    for (int i = 0; i < 200; ++i, now += milliseconds(below(8))) {
      const ControlMessage m = any_message();
      host.rank_status.state = static_cast<State>(1 + below(5));
      plane.received(any_rank(), m, now);
      if (below(4) == 0) plane.stalled(m.call, any_rank(), now);
      if (below(20) == 0) plane.survey(m.call, now);
      if (below(20) == 0) plane.located(m.call, "here", now);
      if (below(4) == 0) plane.tick(now);
    }
    plane.tick(now + ControlPlane::kWaitLimit);
    std::map<CallId, int> balance;
    for (const Host::Ended& one : host.ended) balance[one.call] += 1;
    for (const Host::Ended& one : host.failure_reports) balance[one.call] -= 1;
    for (const auto& [call, count] : balance) EXPECT_EQ(count, 0) << call.group << '#' << call.sequence;
    EXPECT_EQ(host.failure_reports.size(), balance.size()) << "a call has two failure reports";
    EXPECT_LE(host.died.size() + host.exited.size(), 3u);
    failure_reports += host.failure_reports.size();
  }
  EXPECT_GT(failure_reports, 1000u);
}

TEST_F(ControlPlaneTest, AFloodOfCallsIsConcludedAndForgotten) {
  const uint64_t many = 5000;
  for (uint64_t sequence = 1; sequence <= many; ++sequence) {
    cancel(1, kLate, {}, {kWorld, sequence});
    host.sent.clear();
  }
  EXPECT_EQ(host.failure_reports.size(), many - 1024) << "no more than this many are open";
  after(ControlPlane::kWaitLimit);
  EXPECT_EQ(host.failure_reports.size(), many);
  cancel(1, kLate, {}, {kWorld, many});
  EXPECT_EQ(host.ended.size(), many) << "remembered";
  cancel(1, kLate, {}, {kWorld, 1});
  EXPECT_EQ(host.ended.size(), many + 1) << "long ago";
}

}  // namespace
}  // namespace pc
