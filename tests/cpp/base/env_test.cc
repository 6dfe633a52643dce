#include "base/env.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace pc {
namespace {

// Sets one variable and restores its former value.
class Environment {
 public:
  Environment(Env variable, const char* value) : name_(describe(variable).name) {
    const char* before = std::getenv(name_.c_str());
    if (before != nullptr) before_ = before;
    had_one_ = before != nullptr;
    value != nullptr ? ::setenv(name_.c_str(), value, 1) : ::unsetenv(name_.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() { had_one_ ? ::setenv(name_.c_str(), before_.c_str(), 1) : ::unsetenv(name_.c_str()); }

 private:
  std::string name_, before_;
  bool had_one_ = false;
};

TEST(Env, unset_and_empty_variables_have_their_default) {
  for (const char* value : {static_cast<const char*>(nullptr), ""}) {
    const Environment log(Env::kLog, value), timeout(Env::kTimeoutS, value),
        transport(Env::kTransport, value);
    EXPECT_FALSE(env_is_set(Env::kLog));
    EXPECT_EQ(env_text(Env::kLog).value(), "warn");
    EXPECT_EQ(env_seconds(Env::kTimeoutS).value(), 600);
    EXPECT_EQ(env_text(Env::kTransport).value(), "auto");
  }
}

TEST(Env, values_are_read_each_time) {
  for (const char* value : {"7", "8"}) {
    const Environment rank(Env::kRank, value);
    EXPECT_TRUE(env_is_set(Env::kRank));
    EXPECT_EQ(env_integer(Env::kRank).value(), value[0] - '0');
  }
  const Environment timeout(Env::kTimeoutS, "0.25");
  EXPECT_EQ(env_seconds(Env::kTimeoutS).value(), 0.25);
  const Environment tune(Env::kTune, "allreduce:0-inf:ring");
  EXPECT_EQ(env_text(Env::kTune).value(), "allreduce:0-inf:ring");
}

TEST(Env, a_malformed_value_is_refused_by_name_value_and_what_is_allowed) {
  const Environment log(Env::kLog, "loud");
  EXPECT_EQ(env_text(Env::kLog).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(env_text(Env::kLog).status().message(),
            "PYCOLLECTIVE_LOG='loud' is not allowed: it must be error, warn, info or debug");
  const Environment port(Env::kPort, "70000");
  EXPECT_EQ(env_integer(Env::kPort).status().message(),
            "PYCOLLECTIVE_PORT='70000' is not allowed: it must be an integer from 1 to 65535");
  for (const char* value : {"x", "1x", " 1", "1.5", "-1", "99999999999999999999", "0x10", "+1"}) {
    const Environment rank(Env::kRank, value);
    EXPECT_EQ(env_integer(Env::kRank).status().code(), Code::kInvalidArgument) << value;
  }
  for (const char* value : {"nan", "inf", "-1", "0", "10m", "1e400"}) {
    const Environment timeout(Env::kTimeoutS, value);
    EXPECT_EQ(env_seconds(Env::kTimeoutS).status().code(), Code::kInvalidArgument) << value;
  }
}

TEST(Env, a_missing_variable_without_default_says_what_sets_it) {
  const Environment rank(Env::kRank, nullptr), store(Env::kStore, nullptr);
  EXPECT_EQ(
      env_integer(Env::kRank).status().message(),
      "PYCOLLECTIVE_RANK is not set: it must be an integer from 0 to 2147483647, and the launcher sets it");
  EXPECT_EQ(env_text(Env::kStore).status().code(), Code::kInvalidArgument);
  const Environment tune(Env::kTune, nullptr), port(Env::kPort, nullptr);
  EXPECT_EQ(env_text(Env::kTune).value(), "");
  EXPECT_EQ(env_integer(Env::kPort).status().message(),
            "PYCOLLECTIVE_PORT is not set: it must be an integer from 1 to 65535");
}

TEST(Env, every_row_is_complete_and_its_default_is_allowed) {
  for (const EnvVariable& row : environment_table()) {
    EXPECT_TRUE(row.name.starts_with("PYCOLLECTIVE_")) << row.name;
    EXPECT_FALSE(row.meaning.empty()) << row.name;
    EXPECT_FALSE(row.since.empty()) << row.name;
    EXPECT_EQ(row.type == EnvType::kChoice, !row.choices.empty()) << row.name;
    if (row.fallback.empty()) continue;
    const Environment unset(row.id, nullptr);
    EXPECT_TRUE(row.type == EnvType::kInteger   ? env_integer(row.id).is_ok()
                : row.type == EnvType::kSeconds ? env_seconds(row.id).is_ok()
                                                : env_text(row.id).is_ok())
        << row.name;
  }
}

TEST(Env, the_page_in_docs_is_the_one_written_from_the_table) {
  std::ifstream file(PYCOLLECTIVE_DOCS "/environment.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), environment_markdown()) << "write environment_markdown() to docs/environment.md";
}

}  // namespace
}  // namespace pc
