// Where a library is searched, and which one is used.
#include "gpu/nccl/search.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "fake_library.h"

namespace pc::nccl::testing {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

SearchEnvironment around(Variables variables, std::vector<std::string> wheels = {}, std::string loaded = "") {
  return {[variables = std::move(variables)](std::string_view name) {
            const auto found = variables.find(name);
            return found == variables.end() ? std::string() : found->second;
          },
          std::move(wheels), [loaded = std::move(loaded)] { return loaded; }};
}

std::vector<std::string> texts(const SearchEnvironment& here) {
  std::vector<std::string> list;
  for (const Candidate& each : candidates(here)) list.push_back(each.how + " " + each.path);
  return list;
}

TEST(NcclSearch, a_loaded_library_is_tried_first_and_the_loader_last) {
  const std::vector<std::string> expected = {
      "already loaded /torch/libnccl.so.2",
      "wheel /site/nvidia/nccl/lib/libnccl.so.2",
      "wheel /user/nvidia/nccl/lib/libnccl.so.2",
      "NCCL_HOME /opt/nccl/lib/libnccl.so.2",
      "NCCL_HOME /opt/nccl/lib64/libnccl.so.2",
      "NCCL_HOME /opt/nccl/lib/x86_64-linux-gnu/libnccl.so.2",
      "NCCL_HOME /opt/nccl/lib/aarch64-linux-gnu/libnccl.so.2",
      "CUDA_HOME /usr/local/cuda/lib/libnccl.so.2",
      "CUDA_HOME /usr/local/cuda/lib64/libnccl.so.2",
      "CUDA_HOME /usr/local/cuda/lib/x86_64-linux-gnu/libnccl.so.2",
      "CUDA_HOME /usr/local/cuda/lib/aarch64-linux-gnu/libnccl.so.2",
      "loader libnccl.so.2",
  };
  EXPECT_EQ(texts(around({{"CUDA_HOME", "/usr/local/cuda"}, {"NCCL_HOME", "/opt/nccl"}},
                         {"/site/nvidia/nccl", "/user/nvidia/nccl"}, "/torch/libnccl.so.2")),
            expected);
}

TEST(NcclSearch, with_nothing_around_there_is_the_loader) {
  EXPECT_EQ(texts(around({})), std::vector<std::string>{"loader libnccl.so.2"});
}

TEST(NcclSearch, what_the_user_names_is_the_only_candidate) {
  const std::vector<Candidate> list = candidates(
      around({{"PYCOLLECTIVE_NCCL_LIB", "/mine.so"}, {"NCCL_HOME", "/opt/nccl"}}, {"/site"}, "/torch.so"));
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].path, "/mine.so");
  EXPECT_TRUE(list[0].explicitly);
}

// A temporary folder of the test, for libraries under NCCL's own name.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / ("nccl." + name + "." + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_ / "lib");
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }
  std::string library() const { return (path_ / "lib" / "libnccl.so.2").string(); }
  const Folder& holds(const char* file) const {
    std::filesystem::copy_file(file, library());
    return *this;
  }

 private:
  std::filesystem::path path_;
};

TEST(NcclLibrary, the_first_that_works_is_taken_and_the_others_are_remembered) {
  const Folder none("none"), broken("broken"), good("good");
  std::ofstream(broken.library()) << "this is no library";
  good.holds(FAKE_NCCL_21903);
  const Result<Library> library = Library::open(around({}, {none.path(), broken.path(), good.path()}));
  ASSERT_TRUE(library.is_ok()) << library.status().message();
  EXPECT_EQ(library.value().path(), good.library());
  EXPECT_EQ(library.value().to_string(), "NCCL 2.19.3 from " + good.library() + " (wheel)");
  ASSERT_EQ(library.value().tried().size(), 2u);
  EXPECT_EQ(library.value().tried()[0].why, "no such file");
  EXPECT_EQ(library.value().tried()[1].path, broken.library());
  EXPECT_NE(library.value().tried()[1].why.find("too short"), std::string::npos);
}

TEST(NcclLibrary, a_named_one_that_does_not_open_is_an_error_without_a_fallback) {
  const Folder good("fallback");
  good.holds(FAKE_NCCL_21903);
  const Result<Library> library =
      Library::open(around({{"PYCOLLECTIVE_NCCL_LIB", "/nowhere/libnccl.so.2"}}, {good.path()}));
  ASSERT_FALSE(library.is_ok());
  EXPECT_EQ(library.status().code(), Code::kUnsupported);
  EXPECT_EQ(library.status().message(),
            "NCCL cannot be used: PYCOLLECTIVE_NCCL_LIB=/nowhere/libnccl.so.2: no such file. Nothing else is "
            "tried while that variable is set");
}

TEST(NcclLibrary, no_libnccl_is_no_nccl) {
  const Result<Library> library = Library::open(named("libc.so.6"));
  ASSERT_FALSE(library.is_ok());
  EXPECT_NE(library.status().message().find("that is no NCCL"), std::string::npos);
}

// The results of a separate process: libraries that other tests have opened stay mapped, and the
// loader would return them.
class Findings {
 public:
  Findings() { ::testing::GTEST_FLAG(death_test_style) = "threadsafe"; }
  void require(bool fine, const std::string& what) {
    if (!fine && wrong_.empty()) wrong_ = what;
  }
  [[noreturn]] void end(std::initializer_list<const Folder*> folders) const {
    for (const Folder* each : folders) std::filesystem::remove_all(each->path());
    std::fprintf(stderr, "%s", wrong_.empty() ? "all is well" : wrong_.c_str());
    std::_Exit(wrong_.empty() ? 0 : 1);
  }

 private:
  std::string wrong_;
};

[[noreturn]] void look_where_there_is_none(Findings& here, const Folder& empty) {
  SearchEnvironment around = process_environment({empty.path()});
  around.variable = [](std::string_view) { return std::string(); };
  around.loaded = [] { return std::string("/gone.so"); };
  const Result<Library> library = Library::open(around);
  if (library.is_ok()) here.end({&empty});  // this machine's loader has one
  here.require(library.status().code() == Code::kUnsupported, "it is another error");
  for (const std::string& part :
       {std::string("pip install nvidia-nccl-cu13"), std::string("PYCOLLECTIVE_NCCL_LIB"),
        std::string("already loaded: /gone.so: no such file"), "wheel: " + empty.library() + ": no such file",
        std::string("loader: libnccl.so.2: ")}) {
    here.require(library.status().message().find(part) != std::string::npos, library.status().message());
  }
  here.end({&empty});
}

TEST(NcclLibraryDeathTest, if_there_is_none_the_error_says_what_was_looked_at_and_what_helps) {
  Findings here;
  const Folder empty("empty");
  EXPECT_EXIT(look_where_there_is_none(here, empty), ::testing::ExitedWithCode(0), "all is well");
}

[[noreturn]] void share_and_open_another(Findings& here, const Folder& one, const Folder& two) {
  here.require(process_environment().loaded().empty(), "one is loaded before");
  void* const framework = ::dlopen(one.library().c_str(), RTLD_NOW | RTLD_LOCAL);
  here.require(framework != nullptr, "it does not open");
  here.require(process_environment().loaded() == one.library(), process_environment().loaded());
  SearchEnvironment around = process_environment({two.path()});
  around.variable = [](std::string_view) { return std::string(); };
  const Result<Library> shared = Library::open(around);
  here.require(shared.is_ok() && shared.value().how() == "already loaded", "it is not shared");
  here.require(mapped_copies().size() == 1 && warning_about(mapped_copies()).empty(), "a warning too many");
  here.require(Library::open(named(two.library())).is_ok(), "the second does not open");
  const std::string warning = warning_about(mapped_copies());
  here.require(warning.find("2 different NCCL") == 0 && warning.find(one.library()) != std::string::npos &&
                   warning.find(two.library()) != std::string::npos,
               "warning: " + warning);
  here.end({&one, &two});
}

TEST(NcclLibraryDeathTest, a_copy_that_is_loaded_is_shared_and_a_second_one_is_reported) {
  Findings here;
  const Folder one("one"), two("two");
  one.holds(FAKE_NCCL_22703);
  two.holds(FAKE_NCCL_22809);
  EXPECT_EXIT(share_and_open_another(here, one, two), ::testing::ExitedWithCode(0), "all is well");
}

}  // namespace
}  // namespace pc::nccl::testing
