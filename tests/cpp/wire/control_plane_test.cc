// One ControlPlane, rank 0 of a world of four, whose peers are played by the test.
#include "wire/control_plane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace pc {
namespace {

using State = CallReport::State;
using std::chrono::milliseconds;

constexpr uint32_t kEpoch = 7;
constexpr uint32_t kWorld = 0, kSub = 1, kUnknownGroup = 99;
constexpr CallId kCall{kWorld, 5};
const CallEnd kLate{Code::kTimeout, 2, "timed out after 3 s"};

struct Host final : ControlHost {
  struct Sent {
    Rank to;
    ControlMessage message;
  };
  struct Ended {
    CallId call;
    CallEnd why;
    std::vector<Standing> standings;  // of a verdict or survey
  };
  std::map<uint32_t, std::vector<Rank>> groups = {{kWorld, {0, 1, 2, 3}}, {kSub, {3, 0}}};
  CallReport standing{.state = State::kRunning, .digest = 0xaa, .call = "allreduce"};
  std::vector<Sent> sent;
  std::vector<Ended> ended, verdicts, surveys;
  std::vector<Rank> died, exited, excluded_by;
  std::vector<std::string> causes;
  int where_asked = 0;

  std::span<const Rank> members(uint32_t group) override { return groups[group]; }
  CallReport report(const CallId&, bool find_where) override {
    CallReport now = standing;
    now.where_follows |= find_where && now.state == State::kNotMade;
    where_asked += find_where;
    return now;
  }
  void send(Rank peer, const ControlMessage& message) override { sent.push_back({peer, message}); }
  void end_call(const CallId& call, const CallEnd& why) override {
    ended.push_back({call, why, {}});
    if (standing.state == State::kRunning) standing.state = State::kGivenUp;
  }
  void verdict(const CallId& call, const CallEnd& why, std::vector<Standing> standings) override {
    verdicts.push_back({call, why, std::move(standings)});
  }
  void surveyed(const CallId& call, std::vector<Standing> standings) override {
    surveys.push_back({call, {}, std::move(standings)});
  }
  void peer_died(Rank peer, const std::string& cause) override {
    died.push_back(peer);
    causes.push_back(cause);
  }
  void peer_exited(Rank peer) override { exited.push_back(peer); }
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
  void dead(Rank from, Rank who, const std::string& cause = "killed") {
    ControlMessage m = made(FrameType::kDead, {});
    m.end = {Code::kPeerFailure, who, cause};
    plane.received(from, m, now);
  }
  void goodbye(Rank from) { plane.received(from, made(FrameType::kGoodbye, {}), now); }

  // Who was sent a message of this type since the last time that anybody asked.
  std::vector<Rank> told(FrameType type) {
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

// ---- a call ends for all

TEST_F(ControlPlaneTest, WhoGivesUpTellsEveryMember) {
  plane.gave_up(kCall, {Code::kTimeout, 0, "late"}, now);
  ASSERT_EQ(host.sent.size(), 3u);
  EXPECT_EQ(host.sent[0].message.end.code, Code::kTimeout);
  EXPECT_EQ(host.sent[0].message.end.by, 0);
  EXPECT_EQ(host.sent[0].message.end.text, "late");
  EXPECT_EQ(host.sent[0].message.report.digest, 0xaau);
  EXPECT_EQ(told(FrameType::kCancel), (Ranks{1, 2, 3}));
  EXPECT_TRUE(host.ended.empty()) << "it has ended here already";
  plane.gave_up(kCall, {Code::kTimeout, 0, "again"}, now);
  EXPECT_TRUE(host.sent.empty());
}

TEST_F(ControlPlaneTest, WhoLearnsOfItEndsItAndTellsEveryMemberOnce) {
  cancel(2, kLate);
  ASSERT_EQ(host.ended.size(), 1u);
  EXPECT_EQ(host.ended[0].call, kCall);
  EXPECT_EQ(host.ended[0].why.text, kLate.text);
  ASSERT_EQ(host.sent.size(), 3u);
  EXPECT_EQ(host.sent[0].message.end.by, 2);
  EXPECT_EQ(host.sent[0].message.report.state, State::kGivenUp) << "as it stands after the end";
  EXPECT_EQ(told(FrameType::kCancel), (Ranks{1, 2, 3}));
  cancel(1, kLate);
  EXPECT_EQ(host.ended.size(), 1u);
  EXPECT_TRUE(host.sent.empty());
}

TEST_F(ControlPlaneTest, OnlyMembersOfTheGroupAreTold) {
  cancel(3, kLate, {}, {kSub, 1});
  EXPECT_EQ(told(FrameType::kCancel), (Ranks{3}));
}

TEST_F(ControlPlaneTest, WhoHasNotMadeTheCallStartsFindingOutWhereItIs) {
  host.standing = {.state = State::kNotMade};
  cancel(2, kLate);
  EXPECT_EQ(host.where_asked, 1);
  EXPECT_TRUE(host.sent.at(0).message.report.where_follows);
}

TEST_F(ControlPlaneTest, TheVerdictComesOnceAllHaveReported) {
  cancel(2, kLate, {.state = State::kGivenUp, .site = "two"});
  cancel(1, kLate, {.state = State::kDone, .site = "one"});
  EXPECT_TRUE(host.verdicts.empty());
  cancel(3, kLate, {.state = State::kNotMade, .site = "three"});
  ASSERT_EQ(host.verdicts.size(), 1u);
  EXPECT_EQ(host.verdicts[0].call, kCall);
  EXPECT_EQ(host.verdicts[0].why.code, Code::kTimeout);
  EXPECT_EQ(host.verdicts[0].why.by, 2);
  const std::vector<Standing>& rows = host.verdicts[0].standings;
  ASSERT_EQ(rows.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(rows[i].rank, static_cast<Rank>(i));
  EXPECT_EQ(rows[0].report.state, State::kGivenUp);
  EXPECT_EQ(rows[0].report.call, "allreduce");
  EXPECT_EQ(rows[1].report.state, State::kDone);
  EXPECT_EQ(rows[2].report.site, "two");
  EXPECT_EQ(rows[3].report.state, State::kNotMade);
  EXPECT_FALSE(plane.next_tick().has_value());
}

TEST_F(ControlPlaneTest, RowsAreInTheOrderOfTheMembers) {
  cancel(3, kLate, {.state = State::kGivenUp}, {kSub, 1});
  ASSERT_EQ(host.verdicts.size(), 1u);
  EXPECT_EQ(host.verdicts[0].standings[0].rank, 3);
  EXPECT_EQ(host.verdicts[0].standings[1].rank, 0);
}

TEST_F(ControlPlaneTest, ThePatienceWithOthersEnds) {
  cancel(2, kLate);
  EXPECT_EQ(plane.next_tick(), now + ControlPlane::kPatience);
  after(ControlPlane::kPatience - milliseconds(1));
  EXPECT_TRUE(host.verdicts.empty());
  after(milliseconds(1));
  ASSERT_EQ(host.verdicts.size(), 1u);
  EXPECT_EQ(host.verdicts[0].standings[1].report.state, State::kUnknown);
  EXPECT_EQ(host.verdicts[0].standings[2].report.state, State::kGivenUp);
}

TEST_F(ControlPlaneTest, APlaceThatIsBeingFoundOutIsWaitedForAndReplacesTheRow) {
  cancel(2, kLate);
  cancel(1, kLate);
  cancel(3, kLate, {.state = State::kNotMade, .where_follows = true});
  EXPECT_TRUE(host.verdicts.empty());
  notice(3, {.state = State::kNotMade, .where = "load.py:7"});
  ASSERT_EQ(host.verdicts.size(), 1u);
  EXPECT_EQ(host.verdicts[0].standings[3].report.where, "load.py:7");
}

TEST_F(ControlPlaneTest, NobodyWaitsForTheDeadOrTheGone) {
  cancel(2, kLate);
  plane.survey({kWorld, 6}, now);
  notice(2, {}, false, {kWorld, 6});
  goodbye(3);
  EXPECT_TRUE(host.verdicts.empty() && host.surveys.empty());
  plane.lost(1, "reset", now);
  ASSERT_EQ(host.verdicts.size(), 1u);
  EXPECT_EQ(host.verdicts[0].standings[1].report.state, State::kUnknown);
  EXPECT_EQ(host.surveys.size(), 1u);
  cancel(2, kLate, {}, {kWorld, 7});
  EXPECT_EQ(host.verdicts.size(), 2u);
}

TEST_F(ControlPlaneTest, AGoodbyeMayBeWhatCompletesTheVerdict) {
  cancel(2, kLate);
  cancel(1, kLate);
  goodbye(3);
  EXPECT_EQ(host.verdicts.size(), 1u);
}

TEST_F(ControlPlaneTest, WhatTheDeadHadReportedIsKept) {
  cancel(2, kLate, {.state = State::kNotMade, .site = "before", .where_follows = true});
  plane.lost(2, "reset", now);
  cancel(1, kLate);
  cancel(3, kLate);
  ASSERT_EQ(host.verdicts.size(), 1u);
  EXPECT_EQ(host.verdicts[0].standings[2].report.site, "before");
}

TEST_F(ControlPlaneTest, AClosedEpisodeStaysClosed) {
  cancel(2, kLate);
  after(ControlPlane::kPatience);
  host.sent.clear();
  cancel(3, kLate);
  plane.gave_up(kCall, kLate, now);
  notice(1, {.state = State::kNotMade});
  after(ControlPlane::kPatience);
  EXPECT_EQ(host.verdicts.size(), 1u);
  EXPECT_EQ(host.ended.size(), 1u);
  EXPECT_TRUE(host.sent.empty());
}

TEST_F(ControlPlaneTest, AGroupThatIsGoneGivesAnEmptyVerdict) {
  plane.gave_up({kUnknownGroup, 1}, kLate, now);
  ASSERT_EQ(host.verdicts.size(), 1u);
  EXPECT_TRUE(host.verdicts[0].standings.empty());
}

// ---- causes

TEST_F(ControlPlaneTest, TheFirstCauseStays) {
  cancel(2, kLate);
  plane.gave_up(kCall, {Code::kSystem, 0, "no"}, now);
  cancel(1, {Code::kInterrupted, 1, "Ctrl-C"});
  cancel(3, kLate);
  EXPECT_EQ(host.verdicts.at(0).why.code, Code::kTimeout);
}

TEST_F(ControlPlaneTest, DisagreementOutranksOtherCauses) {
  cancel(2, kLate);
  cancel(1, {Code::kMismatch, 1, "another call"});
  cancel(3, {Code::kMismatch, 3, "a later one"});
  EXPECT_EQ(host.verdicts.at(0).why.code, Code::kMismatch);
  EXPECT_EQ(host.verdicts.at(0).why.by, 1);

  plane.gave_up({kSub, 1}, kLate, now);
  plane.gave_up({kSub, 1}, {Code::kMismatch, 0, "seen here"}, now);
  cancel(3, kLate, {}, {kSub, 1});
  EXPECT_EQ(host.verdicts.at(1).why.text, "seen here");
}

TEST_F(ControlPlaneTest, ATimeoutOfRanksThatDisagreeIsToldAsDisagreement) {
  cancel(2, kLate, {.state = State::kGivenUp, .digest = 0xaa});
  cancel(1, kLate, {.state = State::kDone, .digest = 0xbb});
  cancel(3, kLate, {.state = State::kNotMade});
  EXPECT_EQ(host.verdicts.at(0).why.code, Code::kMismatch);
  EXPECT_EQ(host.verdicts.at(0).why.by, 2);
  EXPECT_NE(host.verdicts.at(0).why.text.find(kLate.text), std::string::npos);
}

TEST_F(ControlPlaneTest, DigestsThatSayNothingAreNoDisagreement) {
  cancel(2, kLate, {.state = State::kGivenUp, .digest = 0});
  cancel(1, kLate, {.state = State::kNotMade, .digest = 0xbb});
  cancel(3, kLate, {.state = State::kLeaving, .digest = 0xcc});
  EXPECT_EQ(host.verdicts.at(0).why.code, Code::kTimeout);
}

TEST_F(ControlPlaneTest, CtrlCStaysCtrlC) {
  cancel(2, {Code::kInterrupted, 2, "Ctrl-C"}, {.state = State::kGivenUp, .digest = 0xaa});
  cancel(1, kLate, {.state = State::kGivenUp, .digest = 0xbb});
  cancel(3, kLate);
  EXPECT_EQ(host.verdicts.at(0).why.code, Code::kInterrupted);
}

// ---- asking

TEST_F(ControlPlaneTest, WhoStallsAsksWhomItWaitsFor) {
  plane.stalled(kCall, 2, now);
  ASSERT_EQ(host.sent.size(), 1u);
  EXPECT_TRUE(host.sent[0].message.asks);
  EXPECT_FALSE(host.sent[0].message.asks_where);
  EXPECT_EQ(host.sent[0].message.report.digest, 0xaau);
  EXPECT_EQ(told(FrameType::kNotice), (Ranks{2}));
  for (const Rank nobody : {-1, 0, 4}) plane.stalled(kCall, nobody, now);
  EXPECT_TRUE(host.sent.empty());
}

TEST_F(ControlPlaneTest, WhoIsAskedAnswersWithWhereItStands) {
  notice(1, {.state = State::kRunning, .digest = 0xaa}, true);
  ASSERT_EQ(host.sent.size(), 1u);
  EXPECT_EQ(host.sent[0].message.report.state, State::kRunning);
  EXPECT_FALSE(host.sent[0].message.asks) << "or it would never end";
  EXPECT_EQ(told(FrameType::kNotice), (Ranks{1}));
  EXPECT_EQ(host.where_asked, 0);
  host.standing = {.state = State::kNotMade};
  ControlMessage m = made(FrameType::kNotice);
  m.asks = m.asks_where = true;
  plane.received(1, m, now);
  EXPECT_EQ(host.where_asked, 1);
  EXPECT_TRUE(host.sent.at(0).message.report.where_follows);
}

TEST_F(ControlPlaneTest, ALostCancelIsMendedByAsking) {
  for (const bool closed : {false, true}) {
    const CallId call{kWorld, closed ? 6u : 5u};
    cancel(2, kLate, {}, call);
    if (closed) after(ControlPlane::kPatience);
    host.sent.clear();
    notice(1, {.state = State::kRunning}, true, call);
    ASSERT_EQ(host.sent.size(), 1u);
    EXPECT_EQ(host.sent[0].message.end.text, kLate.text);
    EXPECT_EQ(told(FrameType::kCancel), (Ranks{1}));
  }
}

TEST_F(ControlPlaneTest, AskingFindsDisagreement) {
  notice(1, {.state = State::kRunning, .digest = 0xbb}, true);
  ASSERT_EQ(host.ended.size(), 1u);
  EXPECT_EQ(host.ended[0].why.code, Code::kMismatch);
  EXPECT_EQ(host.ended[0].why.by, 0);
  EXPECT_EQ(told(FrameType::kCancel), (Ranks{1, 2, 3}));
}

TEST_F(ControlPlaneTest, AnAnswerFindsDisagreementAsWell) {
  notice(1, {.state = State::kDone, .digest = 0xbb});
  EXPECT_EQ(host.ended.at(0).why.code, Code::kMismatch);
  EXPECT_EQ(told(FrameType::kCancel), (Ranks{1, 2, 3}));
}

TEST_F(ControlPlaneTest, WhoHasMadeNoCallDisagreesWithNobody) {
  notice(1, {.state = State::kNotMade, .digest = 0xbb});
  notice(1, {.state = State::kRunning, .digest = 0});
  host.standing.digest = 0;
  notice(1, {.state = State::kRunning, .digest = 0xbb});
  host.standing = {.state = State::kNotMade, .digest = 0xaa};
  notice(1, {.state = State::kRunning, .digest = 0xbb});
  EXPECT_TRUE(host.ended.empty() && host.sent.empty());
}

TEST_F(ControlPlaneTest, WhoIsInShutdownHasExitedForTheOthers) {
  notice(1, {.state = State::kLeaving, .digest = 0xbb}, true);
  EXPECT_EQ(host.ended.at(0).why.code, Code::kPeerExited);
  EXPECT_EQ(host.ended.at(0).why.by, 1);
  after(ControlPlane::kPatience);
  EXPECT_EQ(host.verdicts.at(0).why.code, Code::kPeerExited);
}

TEST_F(ControlPlaneTest, InShutdownTheOthersAreThoseWhoDisagree) {
  host.standing.state = State::kLeaving;
  notice(1, {.state = State::kRunning, .digest = 0xbb}, true);
  EXPECT_EQ(host.ended.at(0).why.code, Code::kMismatch);
  EXPECT_EQ(host.ended.at(0).why.by, 0);
}

TEST_F(ControlPlaneTest, ASurveyGathersWhereAllStand) {
  plane.survey(kCall, now);
  EXPECT_TRUE(host.sent.at(0).message.asks && host.sent.at(0).message.asks_where);
  EXPECT_EQ(told(FrameType::kNotice), (Ranks{1, 2, 3}));
  notice(1, {.state = State::kRunning, .digest = 0xaa});
  notice(2, {.state = State::kNotMade, .where_follows = true});
  notice(3, {.state = State::kRunning, .digest = 0xaa});
  EXPECT_TRUE(host.surveys.empty());
  notice(2, {.state = State::kNotMade, .where = "read.py:9"});
  ASSERT_EQ(host.surveys.size(), 1u);
  EXPECT_EQ(host.surveys[0].standings.at(2).report.where, "read.py:9");
  EXPECT_EQ(host.surveys[0].standings.at(0).report.state, State::kRunning);
  EXPECT_FALSE(plane.next_tick().has_value());
}

TEST_F(ControlPlaneTest, ASurveyEndsWithOurPatience) {
  plane.survey(kCall, now);
  notice(1, {.state = State::kRunning});
  after(ControlPlane::kPatience);
  ASSERT_EQ(host.surveys.size(), 1u);
  EXPECT_EQ(host.surveys[0].standings.at(2).report.state, State::kUnknown);
  plane.survey(kCall, now);
  after(ControlPlane::kPatience);
  EXPECT_EQ(host.surveys.size(), 2u) << "may be asked again";
}

TEST_F(ControlPlaneTest, ASurveyOfACallThatWasGivenUpIsDropped) {
  plane.survey(kCall, now);
  cancel(2, kLate);
  plane.survey(kCall, now);
  after(ControlPlane::kPatience);
  plane.survey(kCall, now);
  after(ControlPlane::kPatience);
  EXPECT_TRUE(host.surveys.empty());
  EXPECT_EQ(host.verdicts.size(), 1u);
}

TEST_F(ControlPlaneTest, OurPositionIsToldToAllMembersWhenItIsKnown) {
  host.standing = {.state = State::kNotMade, .where_follows = true};
  plane.located(kCall, "here", now);
  ASSERT_EQ(host.sent.size(), 3u);
  EXPECT_EQ(host.sent[0].message.report.where, "here");
  EXPECT_FALSE(host.sent[0].message.report.where_follows || host.sent[0].message.asks);
  EXPECT_EQ(told(FrameType::kNotice), (Ranks{1, 2, 3}));
}

// ---- death and departure

TEST_F(ControlPlaneTest, ADeathIsToldToAllOnce) {
  plane.lost(2, "reset", now);
  plane.lost(2, "reset", now);
  EXPECT_EQ(host.died, (Ranks{2}));
  EXPECT_EQ(host.causes.at(0), "reset");
  EXPECT_EQ(host.sent.at(0).message.end.by, 2);
  EXPECT_EQ(host.sent.at(0).message.end.text, "reset");
  EXPECT_EQ(told(FrameType::kDead), (Ranks{1, 2, 3})) << "the dead too: it may live after all";
}

TEST_F(ControlPlaneTest, ADeathThatIsToldIsPassedOnOnce) {
  dead(1, 2);
  EXPECT_EQ(host.died, (Ranks{2}));
  EXPECT_EQ(host.causes.at(0), "killed (rank 1 says so)");
  EXPECT_EQ(host.sent.at(0).message.end.text, "killed");
  EXPECT_EQ(told(FrameType::kDead), (Ranks{1, 2, 3}));
  dead(3, 2);
  plane.lost(2, "reset", now);
  EXPECT_EQ(host.died.size(), 1u);
  EXPECT_TRUE(host.sent.empty());
}

TEST_F(ControlPlaneTest, TheDeadAreNotHeardAnyMoreNorSpokenTo) {
  plane.lost(2, "reset", now);
  host.sent.clear();
  cancel(2, kLate);
  dead(2, 1);
  goodbye(2);
  notice(2, {}, true);
  EXPECT_TRUE(host.ended.empty() && host.exited.empty() && host.sent.empty());
  EXPECT_EQ(host.died, (Ranks{2}));
  plane.gave_up(kCall, kLate, now);
  EXPECT_EQ(told(FrameType::kCancel), (Ranks{1, 3}));
}

TEST_F(ControlPlaneTest, WhomTheOthersHoldForDeadLearnsIt) {
  dead(1, 0, "no heartbeat");
  EXPECT_EQ(host.excluded_by, (Ranks{1}));
  EXPECT_EQ(host.causes.at(0), "no heartbeat");
  EXPECT_TRUE(host.died.empty() && host.sent.empty());
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
  plane.say_goodbye(now);
  EXPECT_EQ(told(FrameType::kGoodbye), (Ranks{1, 2, 3}));
  plane.gave_up(kCall, kLate, now);
  plane.lost(1, "reset", now);
  notice(2, {}, true);
  plane.say_goodbye(now);
  after(ControlPlane::kPatience);
  EXPECT_TRUE(host.sent.empty());
  EXPECT_EQ(host.verdicts.size(), 1u);
}

// ---- time

TEST_F(ControlPlaneTest, AnIdleWorldOfOneHostNeverWakes) {
  EXPECT_FALSE(plane.next_tick().has_value());
  after(std::chrono::hours(1));
  EXPECT_TRUE(host.sent.empty());
  EXPECT_FALSE(plane.next_tick().has_value());
  EXPECT_EQ(plane.silent_s(1, now), 0);
}

TEST_F(ControlPlaneTest, PeersOnOtherHostsHaveHeartbeats) {
  ControlPlane far(0, {false, true, false, false}, kEpoch, host);
  for (int beat = 0; beat < 3; ++beat) {
    far.tick(now);
    far.tick(now);
    EXPECT_TRUE(host.sent.at(0).message.asks);
    EXPECT_EQ(told(FrameType::kPing), (Ranks{1}));
    EXPECT_EQ(far.next_tick(), now + ControlPlane::kHeartbeat);
    now += ControlPlane::kHeartbeat;
    EXPECT_EQ(far.silent_s(1, now), 0.5);
    EXPECT_EQ(far.silent_s(2, now), 0);
    far.received(1, made(FrameType::kPing), now);
    EXPECT_EQ(far.silent_s(1, now), 0);
  }
}

TEST_F(ControlPlaneTest, AStoppedPeerGetsFewPingsAndOthersAgainWhenItAnswers) {
  ControlPlane far(0, {false, true, false, false}, kEpoch, host);
  for (int beat = 0; beat < 100; ++beat, now += ControlPlane::kHeartbeat) far.tick(now);
  EXPECT_EQ(told(FrameType::kPing).size(), 8u);
  EXPECT_FALSE(far.next_tick().has_value());
  EXPECT_EQ(far.silent_s(1, now), 50);
  for (int answer = 0; answer < 20; ++answer) far.received(1, made(FrameType::kPing), now);
  EXPECT_EQ(far.silent_s(1, now), 0);
  far.tick(now);
  EXPECT_EQ(told(FrameType::kPing), (Ranks{1}));
  far.lost(1, "reset", now);
  EXPECT_FALSE(far.next_tick().has_value());
}

TEST_F(ControlPlaneTest, APingIsAnswered) {
  ControlMessage ping = made(FrameType::kPing, {});
  ping.asks = true;
  plane.received(3, ping, now);
  ASSERT_EQ(host.sent.size(), 1u);
  EXPECT_FALSE(host.sent[0].message.asks);
  EXPECT_EQ(told(FrameType::kPing), (Ranks{3}));
}

TEST_F(ControlPlaneTest, WhoWasAskedAndDoesNotAnswerIsSilent) {
  plane.stalled(kCall, 1, now);
  after(milliseconds(2000));
  plane.stalled(kCall, 1, now);
  EXPECT_EQ(plane.silent_s(1, now), 2);
  EXPECT_EQ(plane.silent_s(2, now), 0);
  notice(1, {.state = State::kRunning});
  after(milliseconds(2000));
  EXPECT_EQ(plane.silent_s(1, now), 0);
  plane.survey({kWorld, 9}, now);
  after(milliseconds(1000));
  EXPECT_EQ(plane.silent_s(3, now), 1);
  EXPECT_EQ(plane.silent_s(-1, now) + plane.silent_s(0, now) + plane.silent_s(4, now), 0);
}

// ---- strangers, ghosts and nonsense

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
  EXPECT_EQ(told(FrameType::kNotice), (Ranks{1, 2}));
  EXPECT_TRUE(host.ended.empty());
}

TEST_F(ControlPlaneTest, NonsenseIsIgnored) {
  for (const Rank nobody : {-1, 0, 4, 1'000'000}) {
    cancel(nobody, kLate);
    dead(nobody, 1);
    goodbye(nobody);
    plane.lost(nobody, "reset", now);
    dead(1, nobody == 0 ? -5 : nobody);
  }
  cancel(1, kLate, {}, {kWorld, 0});
  notice(1, {.state = State::kRunning, .digest = 0xbb}, true, {kWorld, 0});
  cancel(2, kLate, {}, {kSub, 4});
  ControlMessage odd = made(FrameType::kData);
  plane.received(1, odd, now);
  EXPECT_TRUE(host.sent.empty() && host.ended.empty() && host.died.empty() && host.exited.empty());
}

TEST_F(ControlPlaneTest, OddReasonsAreMadeSense) {
  cancel(1, {Code::kOk, 77, "?"});
  EXPECT_EQ(host.ended.at(0).why.code, Code::kAborted);
  EXPECT_EQ(host.ended.at(0).why.by, 1);
}

// Messages of random contents from random ranks: whatever comes, each call that ends has one verdict in time, and nobody
// dies twice.
TEST(ControlPlaneFuzz, NoMessagesWhateverBreakAPromise) {
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
  std::size_t verdicts = 0;
  for (int world = 0; world < 500; ++world) {
    Host host;
    ControlPlane plane(0, {false, true, false, false}, kEpoch, host);
    TimePoint now = TimePoint{} + std::chrono::hours(1);
    for (int i = 0; i < 200; ++i, now += milliseconds(below(8))) {
      const ControlMessage m = any_message();
      host.standing.state = static_cast<State>(1 + below(5));
      plane.received(any_rank(), m, now);
      if (below(4) == 0) plane.stalled(m.call, any_rank(), now);
      if (below(20) == 0) plane.survey(m.call, now);
      if (below(20) == 0) plane.located(m.call, "here", now);
      if (below(4) == 0) plane.tick(now);
    }
    plane.tick(now + ControlPlane::kPatience);
    std::map<CallId, int> balance;
    for (const Host::Ended& one : host.ended) balance[one.call] += 1;
    for (const Host::Ended& one : host.verdicts) balance[one.call] -= 1;
    for (const auto& [call, count] : balance) EXPECT_EQ(count, 0) << call.group << '#' << call.sequence;
    EXPECT_EQ(host.verdicts.size(), balance.size()) << "a call has two verdicts";
    EXPECT_LE(host.died.size() + host.exited.size(), 3u);
    verdicts += host.verdicts.size();
  }
  EXPECT_GT(verdicts, 1000u);
}

TEST_F(ControlPlaneTest, AFloodOfCallsIsConcludedAndForgotten) {
  const uint64_t many = 5000;
  for (uint64_t sequence = 1; sequence <= many; ++sequence) {
    cancel(1, kLate, {}, {kWorld, sequence});
    host.sent.clear();
  }
  EXPECT_EQ(host.verdicts.size(), many - 1024) << "no more than this many are open";
  after(ControlPlane::kPatience);
  EXPECT_EQ(host.verdicts.size(), many);
  cancel(1, kLate, {}, {kWorld, many});
  EXPECT_EQ(host.ended.size(), many) << "remembered";
  cancel(1, kLate, {}, {kWorld, 1});
  EXPECT_EQ(host.ended.size(), many + 1) << "long ago";
}

}  // namespace
}  // namespace pc
