// How a call ends for all: which ranks are notified, when the failure report is complete, what the
// cause is, what requests find.
#include "control_plane_host.h"

namespace pc {
namespace {

// ---- a call ends for all

TEST_F(ControlPlaneTest, ARankThatGivesUpNotifiesEveryMember) {
  plane.gave_up(kCall, {Code::kTimeout, 0, "late"}, now);
  ASSERT_EQ(host.sent.size(), 3u);
  EXPECT_EQ(host.sent[0].message.end.code, Code::kTimeout);
  EXPECT_EQ(host.sent[0].message.end.by, 0);
  EXPECT_EQ(host.sent[0].message.end.text, "late");
  EXPECT_EQ(host.sent[0].message.report.digest, 0xaau);
  EXPECT_EQ(notified_ranks(FrameType::kCancel), (Ranks{1, 2, 3}));
  EXPECT_TRUE(host.ended.empty()) << "it has ended here already";
  plane.gave_up(kCall, {Code::kTimeout, 0, "again"}, now);
  EXPECT_TRUE(host.sent.empty());
}

TEST_F(ControlPlaneTest, ACancelEndsTheCallAndIsForwardedToEveryMemberOnce) {
  cancel(2, kLate);
  ASSERT_EQ(host.ended.size(), 1u);
  EXPECT_EQ(host.ended[0].call, kCall);
  EXPECT_EQ(host.ended[0].why.text, kLate.text);
  ASSERT_EQ(host.sent.size(), 3u);
  EXPECT_EQ(host.sent[0].message.end.by, 2);
  EXPECT_EQ(host.sent[0].message.report.state, State::kGivenUp) << "as it stands after the end";
  EXPECT_EQ(notified_ranks(FrameType::kCancel), (Ranks{1, 2, 3}));
  cancel(1, kLate);
  EXPECT_EQ(host.ended.size(), 1u);
  EXPECT_TRUE(host.sent.empty());
}

TEST_F(ControlPlaneTest, OnlyMembersOfTheGroupAreNotified) {
  cancel(3, kLate, {}, {kSub, 1});
  EXPECT_EQ(notified_ranks(FrameType::kCancel), (Ranks{3}));
}

TEST_F(ControlPlaneTest, ARankThatHasNotMadeTheCallRequestsItsProgramPosition) {
  host.rank_status = {.state = State::kNotMade};
  cancel(2, kLate);
  EXPECT_EQ(host.position_requests, 1);
  EXPECT_TRUE(host.sent.at(0).message.report.where_follows);
}

TEST_F(ControlPlaneTest, TheReportComesOnceAllHaveReported) {
  cancel(2, kLate, {.state = State::kGivenUp, .site = "two"});
  cancel(1, kLate, {.state = State::kDone, .site = "one"});
  EXPECT_TRUE(host.failure_reports.empty());
  cancel(3, kLate, {.state = State::kNotMade, .site = "three"});
  ASSERT_EQ(host.failure_reports.size(), 1u);
  EXPECT_EQ(host.failure_reports[0].call, kCall);
  EXPECT_EQ(host.failure_reports[0].why.code, Code::kTimeout);
  EXPECT_EQ(host.failure_reports[0].why.by, 2);
  const std::vector<RankStatus>& rows = host.failure_reports[0].statuses;
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
  ASSERT_EQ(host.failure_reports.size(), 1u);
  EXPECT_EQ(host.failure_reports[0].statuses[0].rank, 3);
  EXPECT_EQ(host.failure_reports[0].statuses[1].rank, 0);
}

TEST_F(ControlPlaneTest, TheWaitForOthersEnds) {
  cancel(2, kLate);
  EXPECT_EQ(plane.next_tick(), now + ControlPlane::kWaitLimit);
  after(ControlPlane::kWaitLimit - milliseconds(1));
  EXPECT_TRUE(host.failure_reports.empty());
  after(milliseconds(1));
  ASSERT_EQ(host.failure_reports.size(), 1u);
  EXPECT_EQ(host.failure_reports[0].statuses[1].report.state, State::kUnknown);
  EXPECT_EQ(host.failure_reports[0].statuses[2].report.state, State::kGivenUp);
}

TEST_F(ControlPlaneTest, APlaceThatIsBeingFoundOutIsWaitedForAndReplacesTheRow) {
  cancel(2, kLate);
  cancel(1, kLate);
  cancel(3, kLate, {.state = State::kNotMade, .where_follows = true});
  EXPECT_TRUE(host.failure_reports.empty());
  notice(3, {.state = State::kNotMade, .where = "load.py:7"});
  ASSERT_EQ(host.failure_reports.size(), 1u);
  EXPECT_EQ(host.failure_reports[0].statuses[3].report.where, "load.py:7");
}

TEST_F(ControlPlaneTest, NoRankWaitsForADeadRankOrOneThatHasLeft) {
  cancel(2, kLate);
  plane.survey({kWorld, 6}, now);
  notice(2, {}, false, {kWorld, 6});
  goodbye(3);
  EXPECT_TRUE(host.failure_reports.empty() && host.surveys.empty());
  plane.lost(1, "reset", now);
  ASSERT_EQ(host.failure_reports.size(), 1u);
  EXPECT_EQ(host.failure_reports[0].statuses[1].report.state, State::kUnknown);
  EXPECT_EQ(host.surveys.size(), 1u);
  cancel(2, kLate, {}, {kWorld, 7});
  EXPECT_EQ(host.failure_reports.size(), 2u);
}

TEST_F(ControlPlaneTest, AGoodbyeMayBeWhatCompletesTheReport) {
  cancel(2, kLate);
  cancel(1, kLate);
  goodbye(3);
  EXPECT_EQ(host.failure_reports.size(), 1u);
}

TEST_F(ControlPlaneTest, WhatADeadRankHadReportedIsKept) {
  cancel(2, kLate, {.state = State::kNotMade, .site = "before", .where_follows = true});
  plane.lost(2, "reset", now);
  cancel(1, kLate);
  cancel(3, kLate);
  ASSERT_EQ(host.failure_reports.size(), 1u);
  EXPECT_EQ(host.failure_reports[0].statuses[2].report.site, "before");
}

TEST_F(ControlPlaneTest, AClosedEpisodeStaysClosed) {
  cancel(2, kLate);
  after(ControlPlane::kWaitLimit);
  host.sent.clear();
  cancel(3, kLate);
  plane.gave_up(kCall, kLate, now);
  notice(1, {.state = State::kNotMade});
  after(ControlPlane::kWaitLimit);
  EXPECT_EQ(host.failure_reports.size(), 1u);
  EXPECT_EQ(host.ended.size(), 1u);
  EXPECT_TRUE(host.sent.empty());
}

TEST_F(ControlPlaneTest, AnUnknownGroupGivesAnEmptyReport) {
  plane.gave_up({kUnknownGroup, 1}, kLate, now);
  ASSERT_EQ(host.failure_reports.size(), 1u);
  EXPECT_TRUE(host.failure_reports[0].statuses.empty());
}

// ---- causes

TEST_F(ControlPlaneTest, TheFirstCauseStays) {
  cancel(2, kLate);
  plane.gave_up(kCall, {Code::kSystem, 0, "no"}, now);
  cancel(1, {Code::kInterrupted, 1, "Ctrl-C"});
  cancel(3, kLate);
  EXPECT_EQ(host.failure_reports.at(0).why.code, Code::kTimeout);
}

TEST_F(ControlPlaneTest, DisagreementOutranksOtherCauses) {
  cancel(2, kLate);
  cancel(1, {Code::kMismatch, 1, "another call"});
  cancel(3, {Code::kMismatch, 3, "a later one"});
  EXPECT_EQ(host.failure_reports.at(0).why.code, Code::kMismatch);
  EXPECT_EQ(host.failure_reports.at(0).why.by, 1);

  plane.gave_up({kSub, 1}, kLate, now);
  plane.gave_up({kSub, 1}, {Code::kMismatch, 0, "seen here"}, now);
  cancel(3, kLate, {}, {kSub, 1});
  EXPECT_EQ(host.failure_reports.at(1).why.text, "seen here");
}

TEST_F(ControlPlaneTest, ATimeoutOfRanksThatDisagreeIsReportedAsDisagreement) {
  cancel(2, kLate, {.state = State::kGivenUp, .digest = 0xaa});
  cancel(1, kLate, {.state = State::kDone, .digest = 0xbb});
  cancel(3, kLate, {.state = State::kNotMade});
  EXPECT_EQ(host.failure_reports.at(0).why.code, Code::kMismatch);
  EXPECT_EQ(host.failure_reports.at(0).why.by, 2);
  EXPECT_NE(host.failure_reports.at(0).why.text.find(kLate.text), std::string::npos);
}

TEST_F(ControlPlaneTest, DigestsThatSayNothingAreNoDisagreement) {
  cancel(2, kLate, {.state = State::kGivenUp, .digest = 0});
  cancel(1, kLate, {.state = State::kNotMade, .digest = 0xbb});
  cancel(3, kLate, {.state = State::kLeaving, .digest = 0xcc});
  EXPECT_EQ(host.failure_reports.at(0).why.code, Code::kTimeout);
}

TEST_F(ControlPlaneTest, CtrlCStaysCtrlC) {
  cancel(2, {Code::kInterrupted, 2, "Ctrl-C"}, {.state = State::kGivenUp, .digest = 0xaa});
  cancel(1, kLate, {.state = State::kGivenUp, .digest = 0xbb});
  cancel(3, kLate);
  EXPECT_EQ(host.failure_reports.at(0).why.code, Code::kInterrupted);
}

// ---- requests

TEST_F(ControlPlaneTest, AStalledRankRequestsAReportFromTheRankItWaitsFor) {
  plane.stalled(kCall, 2, now);
  ASSERT_EQ(host.sent.size(), 1u);
  EXPECT_TRUE(host.sent[0].message.asks);
  EXPECT_FALSE(host.sent[0].message.asks_where);
  EXPECT_EQ(host.sent[0].message.report.digest, 0xaau);
  EXPECT_EQ(notified_ranks(FrameType::kNotice), (Ranks{2}));
  for (const Rank invalid : {-1, 0, 4}) plane.stalled(kCall, invalid, now);
  EXPECT_TRUE(host.sent.empty());
}

TEST_F(ControlPlaneTest, ARankAnswersARequestWithItsReport) {
  notice(1, {.state = State::kRunning, .digest = 0xaa}, true);
  ASSERT_EQ(host.sent.size(), 1u);
  EXPECT_EQ(host.sent[0].message.report.state, State::kRunning);
  EXPECT_FALSE(host.sent[0].message.asks) << "or it would never end";
  EXPECT_EQ(notified_ranks(FrameType::kNotice), (Ranks{1}));
  EXPECT_EQ(host.position_requests, 0);
  host.rank_status = {.state = State::kNotMade};
  ControlMessage m = made(FrameType::kNotice);
  m.asks = m.asks_where = true;
  plane.received(1, m, now);
  EXPECT_EQ(host.position_requests, 1);
  EXPECT_TRUE(host.sent.at(0).message.report.where_follows);
}

TEST_F(ControlPlaneTest, ALostCancelIsMendedByAsking) {
  for (const bool closed : {false, true}) {
    const CallId call{kWorld, closed ? 6u : 5u};
    cancel(2, kLate, {}, call);
    if (closed) after(ControlPlane::kWaitLimit);
    host.sent.clear();
    notice(1, {.state = State::kRunning}, true, call);
    ASSERT_EQ(host.sent.size(), 1u);
    EXPECT_EQ(host.sent[0].message.end.text, kLate.text);
    EXPECT_EQ(notified_ranks(FrameType::kCancel), (Ranks{1}));
  }
}

TEST_F(ControlPlaneTest, AskingFindsDisagreement) {
  notice(1, {.state = State::kRunning, .digest = 0xbb}, true);
  ASSERT_EQ(host.ended.size(), 1u);
  EXPECT_EQ(host.ended[0].why.code, Code::kMismatch);
  EXPECT_EQ(host.ended[0].why.by, 0);
  EXPECT_EQ(notified_ranks(FrameType::kCancel), (Ranks{1, 2, 3}));
}

TEST_F(ControlPlaneTest, AnAnswerFindsDisagreementAsWell) {
  notice(1, {.state = State::kDone, .digest = 0xbb});
  EXPECT_EQ(host.ended.at(0).why.code, Code::kMismatch);
  EXPECT_EQ(notified_ranks(FrameType::kCancel), (Ranks{1, 2, 3}));
}

TEST_F(ControlPlaneTest, ARankThatHasMadeNoCallDisagreesWithNoRank) {
  notice(1, {.state = State::kNotMade, .digest = 0xbb});
  notice(1, {.state = State::kRunning, .digest = 0});
  host.rank_status.digest = 0;
  notice(1, {.state = State::kRunning, .digest = 0xbb});
  host.rank_status = {.state = State::kNotMade, .digest = 0xaa};
  notice(1, {.state = State::kRunning, .digest = 0xbb});
  EXPECT_TRUE(host.ended.empty() && host.sent.empty());
}

TEST_F(ControlPlaneTest, ARankInShutdownHasExitedForTheOthers) {
  notice(1, {.state = State::kLeaving, .digest = 0xbb}, true);
  EXPECT_EQ(host.ended.at(0).why.code, Code::kPeerExited);
  EXPECT_EQ(host.ended.at(0).why.by, 1);
  after(ControlPlane::kWaitLimit);
  EXPECT_EQ(host.failure_reports.at(0).why.code, Code::kPeerExited);
}

TEST_F(ControlPlaneTest, InShutdownARunningCallOfAnotherRankIsAMismatch) {
  host.rank_status.state = State::kLeaving;
  notice(1, {.state = State::kRunning, .digest = 0xbb}, true);
  EXPECT_EQ(host.ended.at(0).why.code, Code::kMismatch);
  EXPECT_EQ(host.ended.at(0).why.by, 0);
}

TEST_F(ControlPlaneTest, ASurveyGathersWhereAllStand) {
  plane.survey(kCall, now);
  EXPECT_TRUE(host.sent.at(0).message.asks && host.sent.at(0).message.asks_where);
  EXPECT_EQ(notified_ranks(FrameType::kNotice), (Ranks{1, 2, 3}));
  notice(1, {.state = State::kRunning, .digest = 0xaa});
  notice(2, {.state = State::kNotMade, .where_follows = true});
  notice(3, {.state = State::kRunning, .digest = 0xaa});
  EXPECT_TRUE(host.surveys.empty());
  notice(2, {.state = State::kNotMade, .where = "read.py:9"});
  ASSERT_EQ(host.surveys.size(), 1u);
  EXPECT_EQ(host.surveys[0].statuses.at(2).report.where, "read.py:9");
  EXPECT_EQ(host.surveys[0].statuses.at(0).report.state, State::kRunning);
  EXPECT_FALSE(plane.next_tick().has_value());
}

TEST_F(ControlPlaneTest, ASurveyEndsWithOurWaitLimit) {
  plane.survey(kCall, now);
  notice(1, {.state = State::kRunning});
  after(ControlPlane::kWaitLimit);
  ASSERT_EQ(host.surveys.size(), 1u);
  EXPECT_EQ(host.surveys[0].statuses.at(2).report.state, State::kUnknown);
  plane.survey(kCall, now);
  after(ControlPlane::kWaitLimit);
  EXPECT_EQ(host.surveys.size(), 2u) << "may be asked again";
}

TEST_F(ControlPlaneTest, ASurveyOfACallThatWasGivenUpIsDropped) {
  plane.survey(kCall, now);
  cancel(2, kLate);
  plane.survey(kCall, now);
  after(ControlPlane::kWaitLimit);
  plane.survey(kCall, now);
  after(ControlPlane::kWaitLimit);
  EXPECT_TRUE(host.surveys.empty());
  EXPECT_EQ(host.failure_reports.size(), 1u);
}

TEST_F(ControlPlaneTest, ASurveyOfWhatAPeerIsDoingAsksThatPeerAlone) {
  const CallId doing = CallId::position_query(kWorld, 0, 2);
  cancel(2, kLate);  // of a call, which is unrelated
  after(ControlPlane::kWaitLimit);
  host.sent.clear();
  plane.survey(doing, now);
  EXPECT_TRUE(host.sent.at(0).message.asks && host.sent.at(0).message.asks_where);
  EXPECT_EQ(notified_ranks(FrameType::kNotice), (Ranks{2}));
  notice(2, {.state = State::kRunning, .call = "recv"}, false, doing);
  ASSERT_EQ(host.surveys.size(), 1u);
  ASSERT_EQ(host.surveys[0].statuses.size(), 2u);
  EXPECT_EQ(host.surveys[0].statuses[1].rank, 2);
  EXPECT_EQ(host.surveys[0].statuses[1].report.call, "recv");
}

TEST_F(ControlPlaneTest, ThePositionIsReportedOnlyToTheRequester) {
  const CallId doing = CallId::position_query(kWorld, 3, 0);
  notice(3, {.state = State::kNotMade}, true, doing);
  EXPECT_EQ(notified_ranks(FrameType::kNotice), (Ranks{3}));
  host.sent.clear();
  plane.located(doing, "here", now);
  EXPECT_EQ(host.sent.at(0).message.report.where, "here");
  EXPECT_EQ(notified_ranks(FrameType::kNotice), (Ranks{3}));
}

TEST_F(ControlPlaneTest, AReceiverIsNotifiedThatItsPeerLeaves) {
  plane.stalled({kWorld, CallId::kPresence}, 2, now);
  EXPECT_EQ(notified_ranks(FrameType::kNotice), (Ranks{2}));
  notice(2, {.state = State::kLeaving}, false, {kWorld, CallId::kPresence});
  EXPECT_EQ(host.leaving, (Ranks{2}));
  notice(1, {.state = State::kRunning, .digest = 0xbb}, true, {kWorld, CallId::kPresence});
  EXPECT_TRUE(host.ended.empty()) << "it is no call, so no rank can disagree about it";
}

TEST_F(ControlPlaneTest, ARankThatMakesACallAfterItWasGivenUpIsLateEvenIfItReportsInTime) {
  host.rank_status = {.state = State::kNotMade};
  cancel(2, kLate);
  host.rank_status = {.state = State::kGivenUp, .digest = 0xaa};  // this rank makes the call late
  notice(1, {.state = State::kNotMade, .where_follows = true});
  notice(1, {.state = State::kGivenUp, .digest = 0xaa});  // and so does rank 1
  notice(3, {.state = State::kGivenUp, .digest = 0xaa});
  ASSERT_EQ(host.failure_reports.size(), 1u);
  std::vector<bool> late;
  for (const RankStatus& rank_status : host.failure_reports[0].statuses)
    late.push_back(rank_status.entered_late);
  EXPECT_EQ(late, (std::vector<bool>{true, true, false, false}));
}

TEST_F(ControlPlaneTest, ARankThatEntersShutdownInsteadIsNotLate) {
  cancel(2, kLate);
  notice(1, {.state = State::kNotMade, .where_follows = true});
  notice(1, {.state = State::kLeaving});
  notice(3, {.state = State::kGivenUp, .digest = 0xaa});
  ASSERT_EQ(host.failure_reports.size(), 1u);
  EXPECT_FALSE(host.failure_reports[0].statuses.at(1).entered_late);
  EXPECT_EQ(host.failure_reports[0].statuses.at(1).report.state, State::kLeaving);
}

TEST_F(ControlPlaneTest, PositionQueriesCannotBeGivenUpNorConcernOtherRanks) {
  cancel(3, kLate, {}, CallId::position_query(kWorld, 3, 0));
  notice(2, {.state = State::kRunning, .digest = 0xbb}, true, CallId::position_query(kWorld, 3, 0));
  notice(2, {.state = State::kRunning, .digest = 0xbb}, true, CallId::position_query(kSub, 2, 0));
  // does not concern this rank
  notice(3, {.state = State::kNotMade}, true, CallId::position_query(kWorld, 3, 2));
  notice(3, {.state = State::kNotMade}, true, CallId::position_query(kWorld, 3, 3));
  notice(3, {.state = State::kNotMade}, true, {kWorld, ~uint64_t{0}});
  cancel(3, kLate, {}, {kWorld, CallId::kPresence});
  EXPECT_TRUE(host.ended.empty());
  for (const Host::Sent& sent : host.sent)
    EXPECT_EQ(sent.message.report.state, State::kUnknown) << "reported nothing";
  after(ControlPlane::kWaitLimit);
  EXPECT_TRUE(host.failure_reports.empty() && host.surveys.empty());
}

TEST_F(ControlPlaneTest, OurPositionIsReportedToAllMembersWhenItIsKnown) {
  host.rank_status = {.state = State::kNotMade, .where_follows = true};
  plane.located(kCall, "here", now);
  ASSERT_EQ(host.sent.size(), 3u);
  EXPECT_EQ(host.sent[0].message.report.where, "here");
  EXPECT_FALSE(host.sent[0].message.report.where_follows || host.sent[0].message.asks);
  EXPECT_EQ(notified_ranks(FrameType::kNotice), (Ranks{1, 2, 3}));
}

}  // namespace
}  // namespace pc
