// What a link does with the messages of a group that its rank has closed: it keeps none of them,
// and answers what the other side waits for.
#include <vector>

#include "link_pair.h"
#include "wire/link.h"

namespace pc {
namespace {

TEST(LinkClosedGroups, NothingIsKeptOfAClosedGroupWhetherItArrivedBeforeOrArrivesAfter) {
  LinkPair pair(kSmall);
  std::vector<std::byte> small(8), large(4096), got(8);
  uint64_t token = 0;
  for (const bool is_closed : {false, true}) {
    if (is_closed) pair.b.link.close_group(1);
    const uint64_t sequence = is_closed ? 2 : 1;
    pair.a.send(collective(sequence, 0, 1), small, ++token);
    pair.a.send(collective(sequence, 1, 1), large, ++token);
    pair.a.send(MessageId{{1, StreamClass::kPointToPoint, 7}, sequence, 0, 1}, small, ++token);
    pair.a.send(MessageId{{1, StreamClass::kPointToPoint, 8}, sequence, 0, 1}, large, ++token);
    pair.settle();
    EXPECT_EQ(pair.b.link.counts().unexpected, is_closed ? 0u : 2u);
  }
  EXPECT_EQ(pair.a.sends.done.size(), token) << "REQUESTs are answered";
  expect_at_rest(pair, kSmall);
  pair.a.send(collective(1, 0, 2), small, ++token);
  pair.b.recv(collective(1, 0, 2), got, 1);
  pair.settle();
  EXPECT_EQ(pair.b.recvs.code(1), Code::kOk) << "other groups go on";
  for (uint32_t group = 3; group < 300; ++group) {  // for any number of closed groups
    pair.b.link.discard(group, 1);
    pair.b.link.close_group(group);
    pair.a.send(collective(2, 0, group), small, ++token);
    pair.settle();
    ASSERT_EQ(pair.b.link.counts().unexpected, 0u) << group;
  }
}

TEST(LinkClosedGroups, WhatWasGivenUpInAGroupIsAnsweredWhenItIsClosed) {
  for (const bool is_closed_first : {false, true}) {
    LinkPair pair(kSmall);
    std::vector<std::byte> large(4096), got(4096);
    const MessageId there{{1, StreamClass::kPointToPoint, 7}, 1, 0, 1},
        back{{1, StreamClass::kPointToPoint, 8}, 1, 0, 1};
    pair.a.send(there, large);
    pair.a.recv(back, got);
    pair.settle();
    if (is_closed_first) pair.b.link.close_group(1);
    static_cast<void>(pair.a.link.cancel(&pair.a.sends, kInterrupted));
    static_cast<void>(pair.a.link.cancel(&pair.a.recvs, kInterrupted));
    pair.settle();
    if (!is_closed_first) pair.b.link.close_group(1);
    pair.settle();
    expect_at_rest(pair, kSmall);
    EXPECT_EQ(pair.a.link.counts().unanswered, 0u);
  }
}

}  // namespace
}  // namespace pc
