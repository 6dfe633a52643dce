// A profile is used as it was written, or refused as a whole with file and line. The machine is
// what /proc and /sys report.
#include "tuning/profile.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace pc {
namespace {

namespace fs = std::filesystem;

const std::vector<MachineFact> kHere = {{"cpu", "Test CPU (R)"}, {"cores", "2"}, {"kernel", "6.1"}};
const std::string kMachine =
    "pycollective-profile = 1\n"
    "[machine]\n"
    "cpu = Test CPU (R)\n"
    "cores = 2\n"
    "kernel = 6.1\n";

// A temporary folder of the test.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "profile-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }
  std::string write(const std::string& name, const std::string& text) const {
    const fs::path file = path_ / name;
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return file.string();
  }
  std::string root() const { return path_.string() + "/"; }

 private:
  fs::path path_;
};

TEST(Profile, is_taken_without_changes) {
  const Result<Tuning> read =
      parse_profile("# by hand\n\n" + kMachine +
                        "\n[ranks 2]\n"
                        "combined_at_once = 256k\n"
                        "  in_place_from=inf\n"
                        "tcp = allreduce:0-64k:recursive_doubling;allreduce:64k-inf:ring\n"
                        "# nothing for 3\n"
                        "[ranks 3]\n"
                        "[ranks 4]\n"
                        "ring = 8m",
                    "here", kHere);
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  const Tuning& tuning = read.value();
  shm::Limits two = shm::usual_limits(2);
  two.combined_at_once = 256 * 1024;
  two.in_place_from = shm::kNever;
  EXPECT_EQ(shm::limits_for(tuning.limits(), 2), two);
  EXPECT_EQ(shm::limits_for(tuning.limits(), 3), shm::usual_limits(3));
  EXPECT_EQ(shm::limits_for(tuning.limits(), 4).ring, 8UL << 20);
  EXPECT_EQ(tuning.text_of(4), "ring=8m");
  const SelectionTable usual = SelectionTable::defaults();
  const auto chosen = [&](const GroupShape& group) {
    return tuning.selection(usual, group).choose(Collective::kAllreduce, 40 * 1024, group).algorithm->name;
  };
  EXPECT_EQ(chosen({2, 1}), "recursive_doubling");
  EXPECT_EQ(chosen({2, 2}), "ring");  // measurements over loopback do not apply to a network
  EXPECT_EQ(chosen({3, 1}), "ring");
}

TEST(Profile, that_was_written_reads_back) {
  Tuning tuning;
  ASSERT_TRUE(tuning.set(4, "ring", "8m").is_ok());
  ASSERT_TRUE(tuning.set(2, "tcp", "allreduce:0-64k:ring").is_ok());
  ASSERT_TRUE(tuning.set(2, "most_chunk", "256k").is_ok());
  const std::string text = profile_text(tuning, kHere, "two\nlines\n\nand \x01 more");
  EXPECT_EQ(text.substr(0, text.find("py")), "# two\n# lines\n#\n# and ? more\n");
  const Result<Tuning> read = parse_profile(text, "here", kHere);
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  EXPECT_EQ(read.value().limits(), tuning.limits());
  EXPECT_EQ(read.value().to_string(), "2:tcp=allreduce:0-64k:ring|2:most_chunk=256k|4:ring=8m");
  EXPECT_EQ(Tuning::parse(read.value().to_string()).value().settings(), read.value().settings());
}

struct Wrong {
  std::string text;
  int line;
  std::string says;
};

TEST(Profile, every_line_that_means_nothing_is_refused_by_file_and_line) {
  const std::string two = kMachine + "[ranks 2]\n";
  for (const Wrong& wrong : std::vector<Wrong>{
           {"", 0, "no line 'pycollective-profile = 1'"},
           {"# nothing\n", 1, "no line 'pycollective-profile = 1'"},
           {"cpu = Test CPU (R)\n", 1, "the first line"},
           {"[machine]\n", 1, "the first line"},
           {"pycollective-profile = 2\n", 1, "of another version"},
           {"pycollective-profile = 1\n", 1, "does not say cpu"},
           {"pycollective-profile = 1\nring = 8m\n", 2, "[machine] comes first"},
           {"pycollective-profile = 1\n[ranks 2]\n", 2, "[machine] comes first"},
           {"pycollective-profile = 1\n[machine]\ncores = 2\n", 3, "'cores' is not what comes here: cpu"},
           {"pycollective-profile = 1\n[machine]\ncpu = Test CPU (R)\n[ranks 2]\n", 4, "does not say cores"},
           {kMachine + "colour = blue\n", 6, "[machine] is complete"},
           {kMachine + "[machine]\n", 6, "is no section"},
           {kMachine + "[rank 2]\n", 6, "is no section"},
           {kMachine + "[ranks two]\n", 6, "is no section"},
           {kMachine + "[ranks 2\n", 6, "is no section"},
           {kMachine + "[ranks 2 ]\n", 6, "is no section"},
           {kMachine + "[ranks ]\n", 6, "is no section"},
           {kMachine + "[ranks 1]\n", 6, "is not tuned"},
           {kMachine + "[ranks 65536]\n", 6, "is not tuned"},
           {kMachine + "[ranks 99999999999]\n", 6, "is no section"},
           {two + "[ranks 2]\n", 7, "twice"},
           {two + "ring\n", 7, "is not like key = value"},
           {two + "= 8m\n", 7, "is not like key = value"},
           {two + "rings = 8m\n", 7, "no limit is called 'rings'"},
           {two + "ring = eight\n", 7, "is no size"},
           {two + "ring =\n", 7, "is no size"},
           {two + "ring = -8\n", 7, "is no size"},
           {two + "ring = 8m 4m\n", 7, "is no size"},
           {two + "ring = 100000000000000000000\n", 7, "is no size"},
           {two + "ring = 1k\n", 7, "ring cannot be 1024"},
           {two + "ring = 1g\n", 7, "ring cannot be"},
           {two + "ring = inf\n", 7, "ring cannot be"},
           {two + "ring = 1000000\n", 7, "a multiple of 65536"},
           {two + "ring = 8m\nring = 4m\n", 8, "ring is set twice"},
           {two + "tcp = allreduce:0-64k:magic\n", 7, "there is no 'magic'"},
           {two + "tcp = \n\nfoo:1-2:ring\n", 9, "is not like key = value"},
           {two + "least_chunk = 256k\nmost_chunk = 64k\n", 8, "more than most_chunk"},
           {two + "ring = 8m\r\n", 7, "printable"},
           {two + std::string("ring\0 = 8m\n", 11), 7, "printable"},
           {two + "# \xc3\xbc\n", 7, "printable"},
       }) {
    const Result<Tuning> read = parse_profile(wrong.text, "dir/file", kHere);
    ASSERT_FALSE(read.is_ok()) << wrong.text;
    const std::string place = "dir/file:" + std::to_string(wrong.line) + ": ";
    EXPECT_EQ(read.status().message().substr(0, place.size()), place)
        << wrong.text << read.status().message();
    EXPECT_NE(read.status().message().find(wrong.says), std::string::npos)
        << wrong.text << read.status().message();
  }
}

TEST(Profile, of_another_machine_is_refused_and_says_what_differs) {
  for (std::size_t i = 0; i < kHere.size(); ++i) {
    std::vector<MachineFact> other = kHere;
    other[i].value += " other";
    const Result<Tuning> read = parse_profile(kMachine, "p", other);
    ASSERT_FALSE(read.is_ok());
    EXPECT_EQ(read.status().code(), Code::kUnsupported);
    EXPECT_EQ(read.status().message(),
              "p:" + std::to_string(i + 3) +
                  ": it was measured on another machine: " + std::string(kHere[i].name) + " is '" +
                  kHere[i].value + "' there and '" + other[i].value + "' here");
  }
}

TEST(Profile, that_is_refused_leaves_the_defaults_and_a_reason_and_one_that_is_not_there_an_error) {
  const Folder folder;
  const Logger quiet(LogLevel::kError);
  const std::string good = folder.write("good", profile_text({}, machine_facts(), "")),
                    bad = folder.write("bad", "nonsense\n");
  EXPECT_EQ(load_profile(good, quiet).value().origin, good);
  const Result<Profile> refused = load_profile(bad, quiet);
  ASSERT_TRUE(refused.is_ok());
  EXPECT_EQ(refused.value().origin.find("refused: " + bad + ":1: "), 0U) << refused.value().origin;
  EXPECT_TRUE(refused.value().tuning.settings().empty());
  EXPECT_EQ(load_profile("off", quiet).value().origin, "");
  const Result<Profile> missing = load_profile(folder.root() + "missing", quiet);
  EXPECT_EQ(missing.status().code(), Code::kInvalidArgument);
  const std::string large = folder.write("large", std::string(100'000, '\n'));
  EXPECT_NE(load_profile(large, quiet).value().origin.find("larger"), std::string::npos);
  EXPECT_NE(load_profile(folder.root(), quiet).value().origin.find("refused"),
            std::string::npos);  // a folder
}

TEST(Machine, is_what_proc_and_sys_say) {
  const Folder folder;
  folder.write(
      "proc/cpuinfo",
      "processor\t: 0\nmodel name\t: Good   CPU\t@ 1GHz\nflags\t\t: fpu hypervisor\n\nmodel name\t: other\n");
  folder.write("proc/sys/kernel/osrelease", "6.18.44-generic\n");
  folder.write("sys/devices/system/cpu/online", "0-3,8\n");
  const std::string caches = "sys/devices/system/cpu/cpu0/cache/index";
  for (const auto& [index, level, type, size] : {std::tuple{"0", "1", "Instruction", "64K"},
                                                 {"1", "1", "Data", "48K"},
                                                 {"2", "2", "Unified", "1024K"}}) {
    folder.write(caches + index + "/level", level);
    folder.write(caches + index + "/type", type);
    folder.write(caches + index + "/size", size);
  }
  using Facts = std::vector<MachineFact>;
  EXPECT_EQ(machine_facts(folder.root()), (Facts{{"cpu", "Good CPU @ 1GHz"},
                                                 {"cores", "5"},
                                                 {"l1d", "48K"},
                                                 {"l2", "1024K"},
                                                 {"l3", "unknown"},
                                                 {"kernel", "6.18"},
                                                 {"virtual", "yes"}}));
  folder.write("sys/fs/cgroup/cpuset.cpus.effective", "1-3\n");
  folder.write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(machine_facts(folder.root())[1].value, "3");
  folder.write("sys/fs/cgroup/cpu.max", "250000 100000\n");
  EXPECT_EQ(machine_facts(folder.root())[1].value, "2");
}

TEST(Machine, that_says_nothing_is_unknown) {
  const Folder folder;
  for (const MachineFact& fact : machine_facts(folder.root()))
    EXPECT_EQ(fact.value, fact.name == "virtual" ? "no" : "unknown") << fact.name;
  folder.write("proc/cpuinfo", "CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n");
  EXPECT_EQ(machine_facts(folder.root())[0].value, "0x41 0xd0c");
}

}  // namespace
}  // namespace pc
