// Which functions a library has, and which versions can be used at all.
#include "gpu/nccl/api.h"

#include <dlfcn.h>

#include <map>
#include <set>

#include "fake_library.h"

namespace pc::nccl::testing {
namespace {

TEST(NcclVersion, codes_of_both_styles_are_read) {
  EXPECT_EQ(version_from_code(2708), (Version{2, 7, 8}));
  EXPECT_EQ(version_from_code(2804), (Version{2, 8, 4}));
  EXPECT_EQ(version_from_code(20908), (Version{2, 9, 8}));
  EXPECT_EQ(version_from_code(22809), (Version{2, 28, 9}));
  EXPECT_EQ(text_of(version_from_code(23203)), "2.32.3");
  for (const int code : {2708, 2804, 20908, 21803, 22809, 23003})
    EXPECT_EQ(code_of(version_from_code(code)), code);
}

struct Expected {
  const char* path;
  Version version;
  std::set<Feature> features;
};

TEST(NcclApi, each_version_has_what_came_with_it_and_no_more) {
  using enum Feature;
  const Expected all[] = {
      {FAKE_NCCL_21803, {2, 18, 3}, {}},
      {FAKE_NCCL_21903, {2, 19, 3}, {kMemory}},
      {FAKE_NCCL_22703, {2, 27, 3}, {kMemory, kGroupedAbort, kFloat8, kShrink, kWindows, kName}},
      {FAKE_NCCL_22809,
       {2, 28, 9},
       {kMemory, kGroupedAbort, kFloat8, kShrink, kWindows, kName, kAlltoall, kRevoke}},
      {FAKE_NCCL_23003,
       {2, 30, 3},
       {kMemory, kGroupedAbort, kFloat8, kShrink, kWindows, kName, kAlltoall, kRevoke, kRanksShareDevice}},
  };
  for (const Expected& each : all) {
    const FakeLibrary library(each.path);
    EXPECT_EQ(library.api().version, each.version);
    for (int i = 0; i < kFeatureCount; ++i) {
      const Feature feature = static_cast<Feature>(i);
      EXPECT_EQ(library.api().supports(feature), each.features.contains(feature))
          << text_of(each.version) << ": " << describe(feature).name;
    }
    for (const Symbol& symbol : symbols())
      EXPECT_EQ(symbol.has(library.api()), each.version >= symbol.since) << symbol.name;
  }
}

// A library that reports a false version, or lacks a function.
struct Altered {
  int version = 0;
  std::string without;
};
int altered_version = 0;
ReturnCode say_altered_version(int* version) {
  *version = altered_version;
  return ReturnCode::kSuccess;
}
Result<Api> load_altered(const Altered& how) {
  static void* const library = ::dlopen(FAKE_NCCL_23003, RTLD_NOW | RTLD_LOCAL);
  altered_version = how.version;
  return load_api([&](const char* name) -> void* {
    if (name == how.without) return nullptr;
    if (name == std::string_view("ncclGetVersion")) return reinterpret_cast<void*>(say_altered_version);
    return ::dlsym(library, name);
  });
}

TEST(NcclApi, below_2_18_is_refused_with_the_line_that_mends_it) {
  for (const int version : {2708, 21701, 21800}) {
    const Result<Api> api = load_altered({version, ""});
    ASSERT_FALSE(api.is_ok());
    EXPECT_EQ(api.status().code(), Code::kUnsupported);
    EXPECT_NE(api.status().message().find(text_of(version_from_code(version))), std::string::npos);
    EXPECT_NE(api.status().message().find("pip install -U nvidia-nccl-cu13"), std::string::npos);
  }
  EXPECT_TRUE(load_altered({21801, ""}).is_ok());
}

TEST(NcclApi, a_symbol_that_is_there_before_its_time_is_not_used) {
  const Api api = load_altered({22702, ""}).value();
  EXPECT_EQ(api.comm_shrink, nullptr);
  EXPECT_EQ(api.all_to_all, nullptr);
  EXPECT_FALSE(api.supports(Feature::kShrink));
  const Status why = lacks(api, Feature::kShrink);
  EXPECT_EQ(why.code(), Code::kUnsupported);
  EXPECT_NE(why.message().find("NCCL 2.27.2 has no ncclCommShrink: that came with 2.27.3"),
            std::string::npos);
}

TEST(NcclApi, a_version_without_the_symbol_does_not_have_the_feature) {
  const Api api = load_altered({23003, "ncclGather"}).value();
  EXPECT_FALSE(api.supports(Feature::kAlltoall));
  EXPECT_TRUE(api.supports(Feature::kShrink));
}

TEST(NcclApi, what_lacks_a_function_that_all_have_is_refused_by_name) {
  const Result<Api> api = load_altered({22809, "ncclCommSplit"});
  ASSERT_FALSE(api.is_ok());
  EXPECT_EQ(api.status().message(), "it says that it is NCCL 2.28.9 and has no ncclCommSplit");
  EXPECT_NE(load_altered({22809, "ncclGetVersion"}).status().message().find("no NCCL"), std::string::npos);
}

TEST(NcclApi, codes_have_names_and_unknown_ones_keep_their_number) {
  EXPECT_EQ(text_of(ReturnCode::kInvalidUsage), "ncclInvalidUsage (5)");
  EXPECT_EQ(text_of(static_cast<ReturnCode>(99)), "an unknown code (99)");
  EXPECT_EQ(text_of(static_cast<ReturnCode>(-1)), "an unknown code (-1)");
}

TEST(NcclConfig, an_old_library_is_shown_the_prefix_alone) {
  const Config old = unset_config(21903, false), fresh = unset_config(22809, false);
  EXPECT_EQ(unset_config(21903, true).blocking, 1);
  EXPECT_EQ(old.size, 48u);
  EXPECT_EQ(old.version, 21800u);
  EXPECT_EQ(fresh.size, 72u);
  EXPECT_EQ(fresh.version, 22700u);
  for (const Config& each : {old, fresh}) {
    EXPECT_EQ(each.magic, 0xcafebeefu);
    EXPECT_EQ(each.blocking, 0);
    EXPECT_EQ(each.min_ctas, INT_MIN);
    EXPECT_EQ(each.traffic_class, INT_MIN);
    EXPECT_EQ(each.comm_name, nullptr);
  }
}

}  // namespace
}  // namespace pc::nccl::testing
