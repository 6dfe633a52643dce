#include "engine/flight_recorder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "engine/flight_text.h"

namespace pc {
namespace {

using Kind = CallRecord::Kind;
using State = CallRecord::State;
constexpr uint64_t kCalls = FlightRecorder::kCalls;

CallRecord collective(uint64_t sequence, uint32_t group = 0) {
  CallRecord call;
  call.kind = Kind::kCollective;
  call.collective = Collective::kAllreduce;
  call.dtype = DType::kF32;
  call.group = group;
  call.sequence = sequence;
  call.count = 1000;
  call.algorithm = "ring";
  call.site = "train.py:42 in step";
  call.began_ns = 1000;
  return call;
}

TEST(FlightRecorder, keeps_what_was_begun_and_how_it_ended) {
  FlightRecorder recorder;
  EXPECT_TRUE(recorder.all().empty());
  EXPECT_FALSE(recorder.find(0, 0));
  const uint64_t first = recorder.begin(collective(1));
  const uint64_t second = recorder.begin(collective(2));
  recorder.end(second, Code::kTimeout, 3000);
  ASSERT_EQ(recorder.all().size(), 2u);
  EXPECT_EQ(recorder.find(0, 1)->state, State::kRunning);
  EXPECT_EQ(recorder.find(0, 1)->ended_ns, 0);
  EXPECT_EQ(recorder.find(0, 2)->state, State::kFailed);
  EXPECT_EQ(recorder.find(0, 2)->result, Code::kTimeout);
  EXPECT_EQ(recorder.find(0, 2)->ended_ns, 3000);
  EXPECT_FALSE(recorder.last_done(0));
  recorder.end(first, Code::kOk, 4000);
  EXPECT_EQ(recorder.last_done(0)->sequence, 1u);
  EXPECT_STREQ(recorder.last_done(0)->site, "train.py:42 in step");
}

TEST(FlightRecorder, finds_collectives_and_shutdowns_of_the_group_and_no_messages) {
  FlightRecorder recorder;
  CallRecord call = collective(5, 1);
  recorder.end(recorder.begin(call), Code::kOk, 1);
  call.kind = Kind::kSend;
  call.sequence = 6;
  recorder.end(recorder.begin(call), Code::kOk, 1);
  call.kind = Kind::kShutdown;
  call.sequence = 7;
  recorder.end(recorder.begin(call), Code::kOk, 1);
  EXPECT_EQ(recorder.find(1, 5)->kind, Kind::kCollective);
  EXPECT_FALSE(recorder.find(1, 6));
  EXPECT_EQ(recorder.find(1, 7)->kind, Kind::kShutdown);
  EXPECT_FALSE(recorder.find(0, 5));
  EXPECT_EQ(recorder.last_done(1)->sequence, 5u);
  EXPECT_FALSE(recorder.last_done(0));
}

TEST(FlightRecorder, holds_the_last_1024_calls_oldest_first) {
  FlightRecorder recorder;
  uint64_t forgotten = 0;
  for (uint64_t i = 0; i < 3 * kCalls; ++i) {
    const uint64_t ticket = recorder.begin(collective(i));
    if (i == 2 * kCalls - 1) forgotten = ticket;
  }
  recorder.end(forgotten, Code::kTimeout, 1);  // its entry already belongs to another call
  const std::vector<CallRecord> calls = recorder.all();
  ASSERT_EQ(calls.size(), kCalls);
  for (uint64_t i = 0; i < kCalls; ++i) {
    EXPECT_EQ(calls[i].sequence, 2 * kCalls + i);
    EXPECT_EQ(calls[i].state, State::kRunning);
  }
  EXPECT_FALSE(recorder.find(0, 2 * kCalls - 1));
  EXPECT_TRUE(recorder.find(0, 2 * kCalls));
}

// Derives every field of a record from one number, so that a record mixed from two writes is
// detected.
CallRecord uniform(uint64_t number) {
  CallRecord call = collective(number, static_cast<uint32_t>(number));
  call.digest = call.count = number;
  call.began_ns = static_cast<int64_t>(number);
  return call;
}
bool is_uniform(const CallRecord& call) {
  const bool ended = call.state == State::kDone;
  return call.digest == call.sequence && call.count == call.sequence &&
         call.group == static_cast<uint32_t>(call.sequence) &&
         call.began_ns == static_cast<int64_t>(call.sequence) &&
         call.ended_ns == (ended ? static_cast<int64_t>(call.sequence) + 1 : 0);
}

TEST(FlightRecorder, readers_see_whole_records_while_threads_write) {
  FlightRecorder recorder;
  std::atomic<int> writing{3};
  std::vector<std::thread> writers;
  for (uint64_t w = 0; w < 3; ++w) {
    writers.emplace_back([&, w] {
      for (uint64_t i = 0; i < 20 * kCalls; ++i) {
        const uint64_t number = i * 3 + w;
        recorder.end(recorder.begin(uniform(number)), Code::kOk, static_cast<int64_t>(number) + 1);
      }
      --writing;
    });
  }
  uint64_t seen = 0, halves = 0;
  while (writing > 0) {
    for (const CallRecord& call : recorder.all()) {
      ++seen;
      halves += is_uniform(call) ? 0 : 1;
    }
    if (const std::optional<CallRecord> done = recorder.last_done(0)) halves += is_uniform(*done) ? 0 : 1;
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(halves, 0u) << "of " << seen;
  for (const CallRecord& call : recorder.all()) {
    EXPECT_TRUE(is_uniform(call) && call.state == State::kDone) << call.sequence;
  }
}

TEST(FlightText, a_line_says_what_where_and_how_it_ended) {
  constexpr int64_t kMs = 1'000'000;
  CallRecord call = collective(12);
  call.began_ns = 10 * kMs;
  EXPECT_EQ(line_of(call, 2510 * kMs),
            "#12 allreduce float32[1000] sum (ring), group 0, train.py:42 in step, running for 2.5 s");
  call.state = State::kDone;
  call.ended_ns = call.began_ns + 123'000;
  EXPECT_EQ(line_of(call, 0),
            "#12 allreduce float32[1000] sum (ring), group 0, train.py:42 in step, done after 0.123 ms");
  call.collective = Collective::kReduce;
  call.root_or_peer = 2;
  call.algorithm = call.site = nullptr;
  EXPECT_EQ(line_of(call, 0), "#12 reduce float32[1000] sum root 2, group 0, done after 0.123 ms");
  call.collective = Collective::kBarrier;
  EXPECT_EQ(line_of(call, 0), "#12 barrier, group 0, done after 0.123 ms");
  call.kind = Kind::kShutdown;
  EXPECT_EQ(line_of(call, 0), "#12 shutdown, group 0, done after 0.123 ms");
  call.kind = Kind::kRecv;
  call.tag = 7;
  call.state = State::kFailed;
  call.result = Code::kPeerFailure;
  EXPECT_EQ(line_of(call, 0),
            "recv float32[1000] from rank 2 tag 7, group 0, failed (peer failure) after 0.123 ms");
}

TEST(FlightText, json_has_every_field_and_escapes_texts) {
  EXPECT_EQ(json_of({}, 0), "[]");
  CallRecord call = collective(12);
  call.digest = 0xabc;
  call.site = "a\"b\\c\n\x01\xc3\xa9.py:1 in f";
  call.began_ns = 1'000'000'000;
  const std::string object =
      R"({"kind": "collective", "collective": "allreduce", "dtype": "float32", "op": "sum", "state": "running", )"
      R"("result": null, "root_or_peer": null, "group": 0, "tag": null, "sequence": 12, )"
      R"("digest": "0000000000000abc", "count": 1000, "algorithm": "ring", )"
      "\"site\": \"a\\\"b\\\\c\\u000a\\u0001\xc3\xa9.py:1 in f\", "
      R"("began_s": -1.500000000, "elapsed_s": 1.500000000})";
  EXPECT_EQ(json_of(std::vector{call}, 2'500'000'000), "[" + object + "]");
  EXPECT_EQ(json_of(std::vector{call, call}, 2'500'000'000), "[" + object + ",\n" + object + "]");

  call.kind = Kind::kSend;
  call.state = State::kDone;
  call.root_or_peer = 3;
  call.site = call.algorithm = nullptr;
  const std::string message = json_of(std::vector{call}, 0);
  for (const char* field :
       {R"("kind": "send", "collective": null, "dtype": "float32", "op": null)",
        R"("result": "ok", "root_or_peer": 3, "group": 0, "tag": 0)", R"("algorithm": null, "site": null)"}) {
    EXPECT_NE(message.find(field), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace pc
