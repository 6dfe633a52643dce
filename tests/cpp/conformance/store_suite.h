// The contract of every store. A store joins with one INSTANTIATE_TEST_SUITE_P and a function that
// opens it twice.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "store/store.h"

namespace pc::testing {

struct OpenedStore {
  std::shared_ptr<void> keep;         // a server, if there is one
  std::shared_ptr<Store> one, other;  // two clients of the same store
};
struct StoreCase {
  std::string name;
  std::function<OpenedStore()> open;
};
inline void PrintTo(const StoreCase& each, std::ostream* to) { *to << each.name; }

class StoreSuite : public ::testing::TestWithParam<StoreCase> {
 protected:
  OpenedStore opened_ = GetParam().open();
  Store& one_ = *opened_.one;
  Store& other_ = *opened_.other;
  static Deadline soon() { return Deadline::after(10); }
  static Deadline at_once() { return Deadline::after(0.02); }
  // When the user's call ends. The limit for reaching the store is separate.
  static StoreDeadline in(double seconds) { return {Deadline::after(seconds), 10}; }
};

TEST_P(StoreSuite, what_one_end_sets_the_other_gets) {
  ASSERT_TRUE(one_.set("a", "value", soon()).is_ok());
  EXPECT_EQ(other_.get("a", soon()).value(), "value");
  ASSERT_TRUE(other_.set("a", "", soon()).is_ok());
  EXPECT_EQ(one_.get("a", soon()).value(), "");
}

TEST_P(StoreSuite, values_are_bytes_and_may_be_large) {
  std::string value(kMaxValueBytes, '\0');
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 7 + i / 251);
  const std::string key("k\0\n\xff", 4);
  ASSERT_TRUE(one_.set(key, value, soon()).is_ok());
  EXPECT_TRUE(other_.get(key, soon()).value() == value);
}

TEST_P(StoreSuite, a_get_waits_for_the_key) {
  std::string seen;
  std::thread waiter([&] { seen = other_.get("later", soon()).value(); });
  ASSERT_TRUE(one_.set("something else", "x", soon()).is_ok());
  ASSERT_TRUE(one_.set("later", "here", soon()).is_ok());
  waiter.join();
  EXPECT_EQ(seen, "here");
}

TEST_P(StoreSuite, a_key_that_is_there_is_found_without_any_time_to_wait) {
  ASSERT_TRUE(one_.set("there", "value", soon()).is_ok());
  for (const double seconds : {0.0, 0.0, 1e-9, 0.001, 0.01}) {
    EXPECT_TRUE(other_.wait("there", in(seconds)).is_ok()) << seconds;
    EXPECT_EQ(other_.get("there", in(seconds)).value(), "value") << seconds;
    const Status missing = other_.get("missing", in(seconds)).status();
    EXPECT_EQ(missing.code(), Code::kTimeout) << seconds;
    EXPECT_NE(missing.message().find("'missing': no rank has set it"), std::string::npos)
        << missing.message();
  }
  EXPECT_EQ(other_.pop("missing", in(0)).status().code(), Code::kTimeout);
  EXPECT_EQ(other_.pop("there", in(0)).value(), "value");
  EXPECT_EQ(one_.wait("there", in(0)).code(), Code::kTimeout);
}

TEST_P(StoreSuite, what_waits_for_nothing_needs_no_time) {
  for (int i = 1; i < 4; ++i) {
    EXPECT_TRUE(one_.set("key", "value", in(0)).is_ok());
    EXPECT_EQ(one_.add("count", 1, in(0)).value(), i);
    EXPECT_TRUE(one_.erase("key", in(0)).is_ok());
  }
}

TEST_P(StoreSuite, one_end_serves_several_threads_while_one_of_them_waits) {
  std::string seen;
  std::thread waiter([&] { seen = one_.get("later", soon()).value(); });
  ASSERT_TRUE(one_.set("later", "here", soon()).is_ok());
  waiter.join();
  EXPECT_EQ(seen, "here");
}

TEST_P(StoreSuite, an_expired_get_is_a_timeout_that_names_the_key_and_the_store_still_works) {
  const Result<std::string> missing = one_.get("no/rank/sets/this", at_once());
  ASSERT_FALSE(missing.is_ok());
  EXPECT_EQ(missing.status().code(), Code::kTimeout);
  EXPECT_NE(missing.status().message().find("no/rank/sets/this"), std::string::npos);
  ASSERT_TRUE(other_.set("no/rank/sets/this", "late", soon()).is_ok());
  ASSERT_TRUE(one_.set("b", "2", soon()).is_ok());
  EXPECT_EQ(one_.get("b", soon()).value(), "2");  // not the late response to the expired get
  EXPECT_EQ(one_.get("no/rank/sets/this", soon()).value(), "late");
}

TEST_P(StoreSuite, add_counts_every_call_once) {
  constexpr int kThreads = 4, kCalls = 50;
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i)
        failures += (t % 2 != 0 ? one_ : other_).add("n", 3, soon()).is_ok() ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(one_.add("n", -1, soon()).value(), 3 * kThreads * kCalls - 1);
  EXPECT_EQ(one_.get("n", soon()).value(), std::to_string(3 * kThreads * kCalls - 1));
}

TEST_P(StoreSuite, add_to_text_or_beyond_64_bits_is_refused_and_changes_nothing) {
  ASSERT_TRUE(one_.set("t", "12x", soon()).is_ok());
  EXPECT_EQ(one_.add("t", 1, soon()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(one_.get("t", soon()).value(), "12x");
  ASSERT_TRUE(one_.add("max", INT64_MAX, soon()).is_ok());
  EXPECT_EQ(one_.add("max", 1, soon()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(one_.add("max", 0, soon()).value(), INT64_MAX);
}

TEST_P(StoreSuite, all_keys_that_begin_alike_are_erased_and_no_other) {
  for (const char* key : {"a", "a/", "a/1", "a/2", "a0", "b/1"})
    ASSERT_TRUE(one_.set(key, "1", soon()).is_ok());
  EXPECT_TRUE(other_.erase_all("a/", soon()).is_ok());
  EXPECT_TRUE(other_.erase_all("nothing", soon()).is_ok());
  for (const char* key : {"a/", "a/1", "a/2"}) EXPECT_EQ(one_.add(key, 0, soon()).value(), 0) << key;
  for (const char* key : {"a", "a0", "b/1"}) EXPECT_EQ(one_.add(key, 0, soon()).value(), 1) << key;
}

TEST_P(StoreSuite, an_erased_key_is_gone_and_erasing_returns_whether_it_existed) {
  ASSERT_TRUE(one_.set("a", "1", soon()).is_ok());
  EXPECT_TRUE(other_.erase("a", soon()).value());
  EXPECT_FALSE(other_.erase("a", soon()).value());
  EXPECT_EQ(one_.get("a", at_once()).status().code(), Code::kTimeout);
}

TEST_P(StoreSuite, a_pop_takes_the_value_away_and_only_one_pop_gets_it) {
  std::atomic<int> got{0};
  std::vector<std::thread> poppers;
  for (int i = 0; i < 3; ++i) {
    poppers.emplace_back([&, i] {
      const Result<std::string> value = (i % 2 == 0 ? one_ : other_).pop("token", Deadline::after(0.5));
      if (value.is_ok() && value.value() == "it") ++got;
    });
  }
  ASSERT_TRUE(one_.set("token", "it", soon()).is_ok());
  for (std::thread& popper : poppers) popper.join();
  EXPECT_EQ(got, 1);
  EXPECT_EQ(other_.get("token", at_once()).status().code(), Code::kTimeout);
  ASSERT_TRUE(one_.set("there", "x", soon()).is_ok());
  EXPECT_EQ(other_.pop("there", at_once()).value(), "x");
}

TEST_P(StoreSuite, a_wait_ends_when_the_key_is_there_and_leaves_it) {
  EXPECT_EQ(one_.wait("later", at_once()).code(), Code::kTimeout);
  Status waited;
  std::thread waiter([&] { waited = other_.wait("later", soon()); });
  ASSERT_TRUE(one_.set("later", "x", soon()).is_ok());
  waiter.join();
  EXPECT_TRUE(waited.is_ok()) << waited.to_string();
  EXPECT_EQ(one_.get("later", soon()).value(), "x");
}

TEST_P(StoreSuite, a_look_says_whether_a_key_is_there_and_a_missing_one_is_no_error) {
  EXPECT_EQ(one_.try_get("a", soon()).value(), std::nullopt);
  EXPECT_FALSE(one_.check("a", soon()).value());
  ASSERT_TRUE(other_.set("a", "", soon()).is_ok());
  EXPECT_EQ(one_.try_get("a", in(0)).value(), "");
  EXPECT_TRUE(one_.check("a", in(0)).value());
}

TEST_P(StoreSuite, keys_are_listed_by_what_they_begin_with_and_in_order) {
  using Keys = std::vector<std::string>;
  EXPECT_EQ(one_.keys("k/", soon()).value(), Keys());
  for (const char* key : {"k/2", "k/", "k/10", "k", "l", "k/1"})
    ASSERT_TRUE(one_.set(key, "v", soon()).is_ok());
  EXPECT_EQ(other_.keys("k/", soon()).value(), (Keys{"k/", "k/1", "k/10", "k/2"}));
  EXPECT_EQ(other_.keys("", soon()).value(), (Keys{"k", "k/", "k/1", "k/10", "k/2", "l"}));
}

TEST_P(StoreSuite, more_keys_than_one_answer_holds_are_all_listed) {
  std::vector<std::string> expected;
  for (int i = 100; i < 420; ++i) expected.push_back("k/" + std::to_string(i) + std::string(4000, 'x'));
  for (const std::string& key : expected) ASSERT_TRUE(one_.set(key, "v", soon()).is_ok());
  EXPECT_TRUE(other_.keys("k/", soon()).value() == expected);
}

TEST_P(StoreSuite, compare_set_puts_a_value_only_in_place_of_the_expected_one) {
  EXPECT_EQ(one_.compare_set("k", "old", "new", soon()).value(), "old");
  EXPECT_FALSE(one_.check("k", soon()).value()) << "a missing key is set only if nothing is expected";
  EXPECT_EQ(one_.compare_set("k", "", "first", soon()).value(), "first");
  EXPECT_EQ(other_.compare_set("k", "", "second", soon()).value(), "first");
  EXPECT_EQ(other_.compare_set("k", "first", "", soon()).value(), "");
  EXPECT_EQ(one_.get("k", soon()).value(), "");
}

TEST_P(StoreSuite, what_is_appended_follows_what_is_there_and_wakes_those_that_wait) {
  std::string seen;
  std::thread waiter([&] { seen = other_.get("k", soon()).value(); });
  ASSERT_TRUE(one_.append("k", "a", soon()).is_ok());
  waiter.join();
  EXPECT_EQ(seen, "a");
  ASSERT_TRUE(other_.append("k", "bc", soon()).is_ok());
  EXPECT_EQ(one_.get("k", soon()).value(), "abc");
  EXPECT_EQ(one_.append("k", std::string(kMaxValueBytes, 'v'), soon()).code(), Code::kInvalidArgument);
  EXPECT_EQ(one_.get("k", soon()).value(), "abc");
}

TEST_P(StoreSuite, keys_and_values_beyond_the_limits_are_refused) {
  EXPECT_EQ(one_.set("", "x", soon()).code(), Code::kInvalidArgument);
  EXPECT_EQ(one_.get(std::string(kMaxKeyBytes + 1, 'k'), soon()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(one_.set("big", std::string(kMaxValueBytes + 1, 'v'), soon()).code(), Code::kInvalidArgument);
  EXPECT_EQ(one_.get("big", at_once()).status().code(), Code::kTimeout);
}

}  // namespace pc::testing
