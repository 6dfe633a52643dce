// What happens to a message that is cancelled, by one side or both, in any order of events: its
// memory is free immediately, the other half ends, and the link is still usable.
#include <memory>

#include "link_pair.h"
#include "wire/link.h"

namespace pc {
namespace {

constexpr std::byte kPoison{0xDD};

// ---- Operations that the peer has not been notified of.

TEST(LinkCancel, WhatThePeerDoesNotKnowIsWithdrawnWithoutATrace) {
  LinkPair pair(kSmall);
  Recorder doomed;
  std::vector<std::byte> small(8), large(4096), got(4096);
  pair.a.link.post_send({p2p(1), small, &doomed, 1, description_of(p2p(1))});
  pair.a.link.post_send({p2p(2), large, &doomed, 2, description_of(p2p(2))});
  pair.a.link.post_recv({p2p(3), got, 4096, nullptr, &doomed, 3});
  pair.a.link.post_recv({p2p(4), std::span(got).first(8), 8, nullptr, &doomed, 4});
  pair.a.send(p2p(5), small, 5);  // of another queue, and not cancelled
  EXPECT_TRUE(pair.a.link.cancel(&doomed, kInterrupted));
  pair.settle();
  EXPECT_TRUE(doomed.done.empty());
  EXPECT_EQ(pair.a.sends.code(5), Code::kOk);
  EXPECT_EQ(pair.b.link.counts().unexpected, 1u);
  EXPECT_EQ(pair.b.link.counts().requests, 0u);
  for (uint64_t i = 0; i < 200; ++i) {  // credit and REQUESTs are returned
    pair.a.link.post_send({p2p(1), small, &doomed, 1, description_of(p2p(1))});
    for (uint64_t j = 0; j < 2 * kSmall.max_requests; ++j)
      pair.a.link.post_send({p2p(2, j), large, &doomed, 2, description_of(p2p(2, j))});
    EXPECT_TRUE(pair.a.link.cancel(&doomed, kInterrupted));
  }
  EXPECT_FALSE(LinkPair::take(pair.a));
  pair.a.send(p2p(1), small, 1);
  ASSERT_TRUE(LinkPair::take(pair.a));
  EXPECT_EQ(pair.a.wire.back().header.type, FrameType::kData) << "its credit is gone";
  pair.a.send(p2p(2), large, 2);
  pair.b.recv(p2p(1), std::span(got).first(8), 1);
  pair.b.recv(p2p(2), got, 2);
  pair.settle();
  EXPECT_EQ(pair.b.recvs.code(1), Code::kOk);
  EXPECT_EQ(pair.b.recvs.code(2), Code::kOk);
}

TEST(LinkCancel, WithdrawnOperationsMakeRoomForOthers) {
  LinkPair pair(kSmall);
  Recorder doomed;
  std::vector<std::byte> large(4096), got(4096);
  for (uint64_t i = 0; i < kSmall.max_requests; ++i) {
    pair.a.link.post_send({p2p(1, i), large, &doomed, i, description_of(p2p(1, i))});
    pair.b.link.post_recv({p2p(2, i), got, 4096, nullptr, &doomed, i});
  }
  pair.a.send(p2p(3), large, 3);  // held back: no REQUEST is left
  EXPECT_TRUE(pair.a.link.cancel(&doomed, kInterrupted) && pair.b.link.cancel(&doomed, kInterrupted));
  pair.b.recv(p2p(4), got, 4);
  pair.settle();
  EXPECT_EQ(pair.b.link.counts().requests, 1u);
  pair.a.send(p2p(4), large, 4);
  LinkPair::take(pair.a);
  EXPECT_EQ(pair.a.wire.back().header.type, FrameType::kData) << "its receive was not cleared early";
}

TEST(LinkCancel, ASmallReceiveIsWithdrawnEvenAfterAllFramesWentOut) {
  LinkPair pair(kSmall);
  std::vector<std::byte> data(8), got(8);
  pair.b.recv(p2p(1), got, 1);
  pair.settle();
  EXPECT_TRUE(pair.b.link.cancel(&pair.b.recvs, kInterrupted));
  pair.a.send(p2p(1), data, 1);
  pair.settle();
  EXPECT_TRUE(pair.b.recvs.done.empty());
  EXPECT_EQ(pair.b.link.counts().unexpected, 1u);
}

// ---- Point-to-point: the other half is notified.

TEST(LinkCancel, TheOtherSideEndsWithTheReasonAndNamesTheRankThatGaveUp) {
  const std::pair<Code, Code> kReasons[] = {{Code::kInterrupted, Code::kPeerInterrupted},
                                            {Code::kTimeout, Code::kTimeout},
                                            {Code::kPeerFailure, Code::kAborted}};
  for (const auto& [reason, expected] : kReasons) {
    for (const bool by_sender : {true, false}) {
      LinkPair pair(kSmall);
      std::vector<std::byte> data(4096), got(4096);
      pair.b.recv(p2p(3, 7), got, 1);
      pair.a.send(p2p(3, 7), data, 1);
      for (int i = 0; i < 2; ++i) LinkPair::take(pair.a), LinkPair::take(pair.b);
      LinkPair::deliver(pair.b, pair.a), LinkPair::deliver(pair.a, pair.b);
      LinkPair::take(pair.a);
      Side& quits = by_sender ? pair.a : pair.b;
      EXPECT_FALSE(quits.link.cancel(by_sender ? &quits.sends : &quits.recvs, Status(reason, "")));
      pair.settle();
      const Recorder& other = by_sender ? pair.b.recvs : pair.a.sends;
      ASSERT_EQ(other.code(1), expected);
      const Status& status = other.done.at(1).status;
      EXPECT_EQ(status.peer(), by_sender ? 0 : 1);
      EXPECT_NE(status.message().find(by_sender ? "rank 0 gave up sending message 7 of tag 3"
                                                : "rank 1 gave up receiving message 7 of tag 3"),
                std::string::npos)
          << status.message();
      EXPECT_TRUE((by_sender ? quits.sends : quits.recvs).done.empty())
          << "what is cancelled does not complete";
      expect_at_rest(pair, kSmall);
    }
  }
}

TEST(LinkCancel, AnEagerMessageThatIsOutCompletesItsJourney) {
  LinkPair pair(kSmall);
  const std::vector<std::byte> data = bytes(100);
  std::vector<std::byte> doomed = data, got(100);
  pair.a.send(p2p(1), doomed);
  LinkPair::take(pair.a);
  EXPECT_FALSE(pair.a.link.cancel(&pair.a.sends, kInterrupted));
  std::fill(doomed.begin(), doomed.end(), kPoison);
  pair.b.recv(p2p(1), got, 1);
  pair.settle();
  EXPECT_EQ(pair.b.recvs.code(1), Code::kOk);
  EXPECT_EQ(got, data);
  expect_at_rest(pair, kSmall);
}

TEST(LinkCancel, WhatWasGivenUpBeforeTheOtherHalfIsPostedEndsItThen) {
  for (const bool by_sender : {true, false}) {
    LinkPair pair(kSmall);
    std::vector<std::byte> data(4096), got(4096);
    by_sender ? pair.a.send(p2p(1), data) : pair.b.recv(p2p(1), got);
    pair.settle();
    Side& quits = by_sender ? pair.a : pair.b;
    EXPECT_FALSE(quits.link.cancel(by_sender ? &quits.sends : &quits.recvs, kInterrupted));
    pair.settle();
    EXPECT_EQ(quits.link.counts().withdrawn, 1u) << "until it is answered";
    by_sender ? pair.b.recv(p2p(1), got, 1) : pair.a.send(p2p(1), data, 1);
    EXPECT_EQ(by_sender ? pair.b.recvs.code(1) : pair.a.sends.code(1), Code::kPeerInterrupted);
    pair.settle();
    expect_at_rest(pair, kSmall);
  }
}

TEST(LinkCancel, WhatIsRememberedIsBoundedByTheRequests) {
  LinkPair pair(kSmall);
  std::vector<std::byte> data(4096), got(4096);
  for (uint64_t i = 0; i < 100; ++i) {
    pair.a.send(p2p(1, i), data, i);
    pair.a.recv(p2p(2, i), got, i);
    pair.settle();
    const bool unannounced_send = pair.a.link.cancel(&pair.a.sends, kInterrupted);
    EXPECT_EQ(unannounced_send, i >= kSmall.max_requests) << "beyond it the peer is not notified";
    EXPECT_EQ(pair.a.link.cancel(&pair.a.recvs, kInterrupted), i >= kSmall.max_requests);
    pair.settle();
  }
  EXPECT_EQ(pair.b.link.counts().requests, kSmall.max_requests);
  EXPECT_EQ(pair.b.link.counts().clears, kSmall.max_requests);
  for (uint64_t i = 0; i < kSmall.max_requests; ++i) {
    pair.b.recv(p2p(1, i), got, i);
    pair.b.send(p2p(2, i), data, i);
  }
  pair.settle();
  expect_at_rest(pair, kSmall);
}

// ---- One point-to-point message. Its halves are posted and cancelled in every order, with all
//      steps in between.

struct Half {
  Side& side;
  const bool sends, consumes = false;
  Recorder sink = {};
  std::unique_ptr<Consumer> consumer = {};
  uint64_t attempt = 0;
  std::vector<std::byte> memory = {};
  bool posted = false, over = false;  // over: completed, or cancelled after the peer was notified
  Code code = Code::kOk;

  void post(const MessageId& id, const std::vector<std::byte>& data) {
    if (posted || over) return;
    memory = sends ? data : std::vector<std::byte>(data.size(), std::byte{1});
    posted = true;
    ++attempt;
    if (sends) return side.link.post_send({id, memory, &sink, attempt, description_of(id)});
    if (consumes) consumer = std::make_unique<Consumer>(memory);
    side.link.post_recv(
        {id, consumes ? std::span<std::byte>() : memory, memory.size(), consumer.get(), &sink, attempt});
  }
  // Moves the operation's memory to `withdrawn_memory`, where nothing may write any more.
  void cancel(std::vector<std::vector<std::byte>>& withdrawn_memory) {
    look();
    if (!posted) return;
    over = !side.link.cancel(&sink, kInterrupted);
    posted = false;
    code = Code::kAborted;
    std::fill(memory.begin(), memory.end(), kPoison);
    withdrawn_memory.push_back(std::move(memory));
  }
  void look() {
    if (!posted || !sink.has(attempt)) return;
    code = sink.code(attempt);
    posted = false;
    over = true;
  }
};

void expect_undisturbed(const std::vector<std::vector<std::byte>>& withdrawn_memory) {
  for (const std::vector<std::byte>& memory : withdrawn_memory) {
    EXPECT_TRUE(std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == kPoison; }));
  }
}

// Sends large and small messages in both directions, and checks that nothing is left.
void expect_good_as_new(LinkPair& pair, uint64_t sequence) {
  for (const std::size_t nbytes : {100u, 3000u}) {
    const std::vector<std::byte> data = bytes(nbytes, 77);
    std::vector<std::byte> at_a(nbytes), at_b(nbytes);
    const MessageId id = p2p(1, sequence + nbytes);
    pair.a.send(id, data, id.sequence), pair.b.send(id, data, id.sequence);
    pair.a.recv(id, at_a, id.sequence), pair.b.recv(id, at_b, id.sequence);
    pair.settle();
    for (const Side* side : {&pair.a, &pair.b}) {
      EXPECT_EQ(side->sends.code(id.sequence), Code::kOk);
      EXPECT_EQ(side->recvs.code(id.sequence), Code::kOk);
    }
    EXPECT_TRUE(at_a == data && at_b == data);
  }
  expect_at_rest(pair, kSmall);
}

class Exchange {
 public:
  Exchange(std::size_t nbytes, std::size_t most_out) : data_(bytes(nbytes)) { pair_.a.most_out = most_out; }

  void event(char which) {
    switch (which) {
      case 's': return send_.post(kId, data_);
      case 'r': return recv_.post(kId, data_);
      case 'S': return send_.cancel(withdrawn_memory_);
      default: return recv_.cancel(withdrawn_memory_);
    }
  }
  void step(uint32_t which) { pair_.step(which, false); }
  // Posts what can still be posted. Then every half ends, and the two agree.
  void finish() {
    for (int round = 0; round < 2; ++round) {
      pair_.settle();
      send_.look(), recv_.look();
      send_.post(kId, data_), recv_.post(kId, data_);
    }
    pair_.settle();
    send_.look(), recv_.look();
    ASSERT_TRUE(send_.over && recv_.over);
    if (recv_.code == Code::kOk) {
      EXPECT_EQ(recv_.memory, data_);
    }
    for (const Half* half : {&send_, &recv_}) {
      EXPECT_TRUE(half->code == Code::kOk || half->code == Code::kAborted ||
                  half->code == Code::kPeerInterrupted)
          << static_cast<int>(half->code);
    }
    if (recv_.code == Code::kPeerInterrupted) {
      EXPECT_EQ(send_.code, Code::kAborted);
    }
    if (send_.code == Code::kPeerInterrupted) {
      EXPECT_EQ(recv_.code, Code::kAborted);
    }
    expect_at_rest(pair_, kSmall);
    expect_undisturbed(withdrawn_memory_);
  }

 private:
  const MessageId kId = p2p(1);
  const std::vector<std::byte> data_;
  LinkPair pair_{kSmall};
  Half send_{pair_.a, true}, recv_{pair_.b, false};
  std::vector<std::vector<std::byte>> withdrawn_memory_;
};

// The moves between two events; the numbers are steps of LinkPair::step().
const std::vector<std::vector<uint32_t>> kMoves = {
    {},        {0},          {1},       {0, 2},       {0, 4},          {1, 3},          {0, 1, 2},
    {0, 1, 3}, {0, 1, 2, 3}, {1, 3, 0}, {1, 3, 0, 4}, {1, 3, 0, 0, 2}, {1, 3, 0, 0, 0}, {0, 2, 1, 3, 0, 4}};

TEST(LinkCancel, EveryOrderOfEventsEndsBothHalvesAndLeavesNothing) {
  const char* const kOrders[] = {"sS",   "rR",   "srS",  "rsS",  "sSr",  "srR",  "rsR",  "rRs", "srSR",
                                 "srRS", "rsSR", "rsRS", "sSrR", "rRsS", "sSsr", "rRrs", "sSrs"};
  for (const char* order : kOrders) {
    // eager; rendezvous in one segment; rendezvous in three segments
    for (const std::size_t nbytes : {100u, 700u, 3000u}) {
      std::size_t combinations = 1;
      for (std::size_t i = 0; i < 3 && order[i] != 0; ++i) combinations *= kMoves.size();
      for (std::size_t i = 0; i < combinations; ++i) {
        SCOPED_TRACE(::testing::Message() << order << " of " << nbytes << " bytes, moves " << i);
        Exchange exchange(nbytes, 1 + i % 4);
        std::size_t rest = i;
        for (const char* event = order; *event != 0; ++event) {
          exchange.event(*event);
          for (const uint32_t step : kMoves[rest % kMoves.size()]) exchange.step(step);
          rest /= kMoves.size();
        }
        exchange.finish();
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

// ---- Collectives: nothing is sent to the peer, which is notified otherwise and does the same.

TEST(LinkCancel, MessagesOfADiscardedCollectiveAreDrainedAndTheirCreditReturned) {
  LinkPair pair(kSmall);
  std::vector<std::byte> small(500), large(4096), got(4096);
  uint64_t token = 0;
  for (uint64_t sequence = 1; sequence <= 50; ++sequence) {
    if (sequence % 2 == 0) pair.b.link.discard(0, sequence);
    for (uint32_t i = 0; i < 4; ++i) {
      pair.a.send(collective(sequence, i), small, ++token);
      EXPECT_EQ(pair.a.link.counts().unanswered, 0u) << "its credit is gone";
    }
    pair.a.send(collective(sequence, 4), large, ++token);
    pair.settle();
    pair.b.link.discard(0, sequence);
    pair.settle();
    EXPECT_EQ(pair.a.sends.done.size(), token) << "REQUESTs are answered";
    expect_at_rest(pair, kSmall);
  }
  pair.b.recv(collective(51), std::span(got).first(500), 1);
  pair.a.send(collective(51), small, ++token);
  pair.settle();
  EXPECT_EQ(pair.b.recvs.code(1), Code::kOk) << "nothing of an earlier collective may be found left over";
}

// The sender acted as the root of #1 and the receiver did not agree. That is reported, and ends
// nothing.
TEST(LinkCancel, AMessageThatAnEarlierCallLeftBehindIsReportedOnceAndDiscarded) {
  for (const int which : {0, 1, 2, 3}) {
    const std::size_t nbytes = which % 2 == 0 ? 8 : 4096;
    LinkPair pair(kSmall);
    std::vector<std::byte> left(8), data(nbytes), got(nbytes);
    if (which < 2) {  // it arrives while the receiver is already in #2
      pair.b.recv(collective(2), got, 2);
      pair.a.send(collective(1), left, 1);
      pair.a.send(collective(2), data, 2);
      pair.settle();
    } else {
      pair.a.send(collective(1), left, 1);
      pair.settle();
      pair.b.recv(collective(2), got, 2);
    }
    ASSERT_TRUE(pair.b.recvs.has(kLateMismatchToken));
    EXPECT_EQ(pair.b.recvs.code(kLateMismatchToken), Code::kMismatch);
    EXPECT_EQ(pair.b.recvs.done.at(kLateMismatchToken).found.sequence, 1u);
    pair.a.send(collective(1, 1), left, 3);  // another message of #1
    if (which >= 2) pair.a.send(collective(2), data, 2);
    pair.settle();
    EXPECT_EQ(pair.b.recvs.code(2), Code::kOk);
    pair.b.recv(collective(3), got, 3);  // nothing is reported again: a token completes once
    pair.a.send(collective(3), data, 4);
    pair.settle();
    EXPECT_EQ(pair.b.recvs.code(3), Code::kOk);
    expect_at_rest(pair, kSmall);
  }
}

TEST(LinkCancel, AWatermarkIsForOneGroupAndNotForPointToPoint) {
  LinkPair pair(kSmall);
  std::vector<std::byte> data(8), got(8);
  pair.b.link.discard(0, 5);
  pair.a.send(collective(5, 0, 0), data, 0);
  pair.a.send(collective(5, 0, 1), data, 1);
  pair.a.send(p2p(1, 5), data, 2);
  pair.a.send(collective(6, 0, 0), data, 3);
  pair.settle();
  EXPECT_EQ(pair.b.link.counts().unexpected, 3u);
  pair.b.recv(collective(5, 0, 0), got, 0);
  EXPECT_EQ(pair.b.recvs.code(0), Code::kAborted) << "it has ended: nothing would come";
}

TEST(LinkCancel, ACollectiveIsDiscardedByCancellingWhatThePeerKnows) {
  LinkPair pair(kSmall);
  std::vector<std::byte> data(4096), got(4096);
  pair.b.recv(collective(1), got);
  pair.settle();
  pair.a.send(collective(1), data);
  LinkPair::take(pair.a);
  EXPECT_FALSE(pair.b.link.cancel(&pair.b.recvs, kInterrupted));
  std::fill(got.begin(), got.end(), kPoison);
  pair.settle();  // DATA arrives before discard() is called
  EXPECT_FALSE(LinkPair::take(pair.b)) << "nothing is written about it";
  pair.b.link.discard(0, 1);
  expect_undisturbed({got});
  expect_at_rest(pair, kSmall);
}

// Two sides make the calls of two groups. Each posts and ends its calls at any time. A call that
// one side has abandoned is abandoned by the other side sooner or later, or never begun there.
// Messages of no collective are mixed in at random.
class Calls {
 public:
  explicit Calls(uint32_t seed) : random_(seed) {
    pair_.a.most_out = 1 + random_() % 5;
    pair_.b.most_out = 1 + random_() % 5;
    for (uint32_t group = 0; group < kGroups; ++group) {
      for (std::vector<Call>& calls : calls_[group]) calls = std::vector<Call>(kCalls);
      for (std::size_t i = 0; i < kCalls; ++i) {
        for (std::size_t n = random_() % 12; n > 0; --n) {
          kinds_[group][i].push_back({random_() % 2 == 0, kSizes[random_() % 6]});
        }
      }
    }
  }

  void run() {
    for (int i = 0; i < 20000 && !done(); ++i) {
      for (auto moves = random_() % 6; moves > 0; --moves) {
        pair_.step(static_cast<uint32_t>(random_() % 6), random_() % 2 == 0);
      }
      act(static_cast<uint32_t>(random_() % kGroups), random_() % 2);
    }
    EXPECT_TRUE(done()) << "no progress";
    pair_.settle();
    expect_at_rest(pair_, kSmall);
    expect_good_as_new(pair_, 1);
    expect_undisturbed(withdrawn_memory_);
  }

 private:
  static constexpr uint32_t kGroups = 2;
  static constexpr std::size_t kCalls = 8;
  static constexpr std::size_t kSizes[] = {0, 8, 400, 700, 2000, 3000};
  struct Kind {
    bool from_a;
    std::size_t nbytes;
  };
  struct Call {
    enum { kAhead, kRunning, kDone, kGivenUp } state = kAhead;
    Recorder sink;
    std::vector<std::vector<std::byte>> memory;
  };
  Side& side(std::size_t i) { return i == 0 ? pair_.a : pair_.b; }
  bool done() const { return next_[0][0] + next_[0][1] + next_[1][0] + next_[1][1] == 4 * kCalls; }

  void act(uint32_t group, std::size_t index) {
    std::size_t& next = next_[group][index];
    if (next == kCalls) return;
    Call& call = calls_[group][index][next];
    const bool other_gave_up = calls_[group][1 - index][next].state == Call::kGivenUp;
    if (call.state == Call::kAhead && (!other_gave_up || random_() % 2 == 0)) {
      begin(call, group, index, next);
    } else if (call.sink.done.size() == call.memory.size() && call.state == Call::kRunning) {
      call.state = Call::kDone;
      ++next;
    } else if (other_gave_up || random_() % 40 == 0) {
      give_up(call, group, index, next++);
    }
  }
  void begin(Call& call, uint32_t group, std::size_t index, std::size_t number) {
    const std::vector<Kind>& kinds = kinds_[group][number];
    call.state = Call::kRunning;
    for (const Kind& kind : kinds) call.memory.emplace_back(kind.nbytes);
    for (uint32_t i = 0; i < kinds.size(); ++i) {
      const MessageId id = collective(number + 1, i, group);
      if (kinds[i].from_a == (index == 0)) {
        side(index).link.post_send({id, call.memory[i], &call.sink, i, description_of(id)});
      } else {
        side(index).link.post_recv({id, call.memory[i], call.memory[i].size(), nullptr, &call.sink, i});
      }
    }
  }
  void give_up(Call& call, uint32_t group, std::size_t index, std::size_t number) {
    static_cast<void>(side(index).link.cancel(&call.sink, kInterrupted));
    for (std::vector<std::byte>& memory : call.memory) {
      std::fill(memory.begin(), memory.end(), kPoison);
      withdrawn_memory_.push_back(std::move(memory));
    }
    call.state = Call::kGivenUp;
    for (auto moves = random_() % 3; moves > 0; --moves) pair_.step(random_);
    side(index).link.discard(group, number + 1);
  }

  std::mt19937 random_;
  LinkPair pair_{kSmall};
  std::array<std::array<std::vector<Kind>, kCalls>, kGroups> kinds_;
  std::array<std::array<std::vector<Call>, 2>, kGroups> calls_;
  std::array<std::array<std::size_t, 2>, kGroups> next_ = {};
  std::vector<std::vector<std::byte>> withdrawn_memory_;
};

TEST(LinkCancel, RandomCollectivesThatAreGivenUpLeaveNothing) {
  for (uint32_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Calls(seed).run();
    if (::testing::Test::HasFailure()) return;
  }
}

// Many messages at once, so that credit, REQUESTs and CLEARs run out.
void give_up_at_random(uint32_t seed) {
  std::mt19937 random(seed);
  LinkPair pair(kSmall);
  pair.a.most_out = 1 + random() % 5;
  pair.b.most_out = 1 + random() % 5;
  struct Message {
    MessageId id;
    std::vector<std::byte> data;
    Half send, recv;
  };
  std::deque<Message> all;
  for (uint64_t i = 0; i < 40; ++i) {
    const std::size_t nbytes = random() % 2 == 0 ? random() % 512 : random() % 4000;
    const bool from_a = random() % 2 == 0;
    all.push_back({p2p(static_cast<uint32_t>(i % 3), i), bytes(nbytes, seed),
                   Half{from_a ? pair.a : pair.b, true},
                   Half{from_a ? pair.b : pair.a, false, random() % 2 == 0}});
  }
  std::vector<std::vector<std::byte>> withdrawn_memory;
  for (int i = 0; i < 600; ++i) {
    Message& message = all[random() % all.size()];
    Half& half = random() % 2 == 0 ? message.send : message.recv;
    half.look();
    random() % 3 == 0 ? half.cancel(withdrawn_memory) : half.post(message.id, message.data);
    for (auto moves = random() % 4; moves > 0; --moves) {
      pair.step(static_cast<uint32_t>(random() % 6), random() % 2 == 0);
    }
  }
  for (int round = 0; round < 3; ++round) {
    for (Message& message : all) {
      for (Half* half : {&message.send, &message.recv}) {
        half->look();
        half->post(message.id, message.data);
      }
    }
    pair.settle();
  }
  for (Message& message : all) {
    message.send.look(), message.recv.look();
    EXPECT_TRUE(message.send.over && message.recv.over) << message.id.sequence;
    if (message.recv.code == Code::kOk) {
      EXPECT_EQ(message.recv.memory, message.data);
    }
  }
  expect_at_rest(pair, kSmall);
  expect_good_as_new(pair, 100000);
  expect_undisturbed(withdrawn_memory);
}

TEST(LinkCancel, RandomMessagesThatAreGivenUpLeaveNothing) {
  for (uint32_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    give_up_at_random(seed);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace pc
