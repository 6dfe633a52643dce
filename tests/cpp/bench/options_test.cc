// How the command line is parsed.
#include "bench/command_line.h"

#include <gtest/gtest.h>

#include <sstream>

#include "kernels/reduce.h"

namespace pc::bench {
namespace {

Result<Options> parsed(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return parse(words);
}
Options read(const std::string& line) {
  Result<Options> options = parsed(line);
  EXPECT_TRUE(options.is_ok()) << line << ": " << options.status().to_string();
  return options.is_ok() ? std::move(options).value() : Options();
}
std::string why_not(const std::string& line) {
  const Result<Options> options = parsed(line);
  EXPECT_FALSE(options.is_ok()) << line;
  return options.status().message();
}
using Sizes = std::vector<uint64_t>;

TEST(BenchOptions, without_flags_it_is_allreduce_of_float32_sums) {
  const Options options = read("");
  EXPECT_EQ(options.sizes, (Sizes{8, 64 << 10, 1 << 20, 16 << 20}));
  ASSERT_EQ(options.cases.size(), 1u);
  EXPECT_EQ(options.cases[0].operation->name, "allreduce");
  EXPECT_EQ(options.cases[0].dtype, DType::kF32);
  EXPECT_EQ(options.cases[0].op, ReduceOp::kSum);
  EXPECT_EQ(options.cases[0].root, std::nullopt);
  EXPECT_TRUE(options.checks);
  EXPECT_FALSE(options.ranks || options.json || options.explain || options.help);
}

TEST(BenchOptions, sizes_are_counted_as_in_nccl_tests) {
  EXPECT_EQ(read("-b 8 -e 64 -f 2").sizes, (Sizes{8, 16, 32, 64}));
  EXPECT_EQ(read("-b 8 -e 60 -f 2").sizes, (Sizes{8, 16, 32}));
  EXPECT_EQ(read("-b 1K -e 4K -i 1K").sizes, (Sizes{1024, 2048, 3072, 4096}));
  EXPECT_EQ(read("-b 30M").sizes, (Sizes{30 << 20, 31 << 20, 32 << 20}));
  EXPECT_EQ(read("-e 32M").sizes, (Sizes{32 << 20}));
  EXPECT_EQ(read("-b 1G -e 1G").sizes, (Sizes{1 << 30}));
  EXPECT_EQ(read("--sizes 8,64k,1M").sizes, (Sizes{8, 64 << 10, 1 << 20}));
}

TEST(BenchOptions, values_follow_their_flags_in_every_usual_way) {
  for (const char* const line :
       {"-b 8 -e 8", "-b8 -e8", "--minbytes 8 --maxbytes 8", "--minbytes=8 --maxbytes=8"}) {
    EXPECT_EQ(read(line).sizes, (Sizes{8})) << line;
  }
}

TEST(BenchOptions, every_flag_arrives) {
  const Options options = read(
      "-n 3 -w 7 --iters 9 -c 0 -r 2 -o max -d half --ops reduce --json --explain --tune x --transport tcp "
      "--timeout_s 1.5");
  EXPECT_EQ(options.ranks, 3);
  EXPECT_EQ(options.warm_up, 7u);
  EXPECT_EQ(options.iterations, 9u);
  EXPECT_FALSE(options.checks);
  ASSERT_EQ(options.cases.size(), 1u);
  EXPECT_EQ(options.cases[0].operation->name, "reduce");
  EXPECT_EQ(options.cases[0].dtype, DType::kF16);
  EXPECT_EQ(options.cases[0].op, ReduceOp::kMax);
  EXPECT_EQ(options.cases[0].root, 2);
  EXPECT_TRUE(options.json && options.explain);
  EXPECT_EQ(options.tune, "x");
  EXPECT_EQ(options.transport, "tcp");
  EXPECT_EQ(options.timeout_s, 1.5);
  EXPECT_EQ(read("-n 2 --ranks 4").ranks, 4);
  EXPECT_TRUE(read("-h").help);
}

TEST(BenchOptions, every_datatype_has_a_name_that_can_be_moved) {
  const Options all = read("--ops broadcast -d all");
  ASSERT_EQ(all.cases.size(), static_cast<std::size_t>(kDTypeCount));
  for (const Case& what : all.cases) {
    const Options one = read("--ops broadcast -d " + std::string(name_of(what.dtype)));
    EXPECT_EQ(one.cases.at(0).dtype, what.dtype);
  }
}

TEST(BenchOptions, all_means_all_that_can_be_reduced) {
  for (const Case& what : read("-d all -o all").cases) EXPECT_TRUE(can_reduce(what.dtype, what.op));
  EXPECT_EQ(read("-d int32 -o all").cases.size(), 4u);
  EXPECT_EQ(read("-d float32,int32 -o sum,max --ops allreduce,broadcast").cases.size(), 6u);
  EXPECT_EQ(read("-d all -o all --ops barrier").cases.size(), 1u);
}

TEST(BenchOptions, what_cannot_be_meant_is_refused_and_named) {
  const std::vector<std::pair<std::string, std::string>> kRefused = {
      {"-b", "-b needs a value"},
      {"-X 3", "no option -X"},
      {"8", "no operation '8'"},
      {"--min 8", "no option --min"},
      {"-", "no option -"},
      {"--", "no option --"},
      {"--json=1", "--json takes no value"},
      {"-b 0", "--minbytes: '0' is not a size"},
      {"-b -8", "'-8' is not a size"},
      {"-b 8X", "'8X' is not a size"},
      {"-b K", "'K' is not a size"},
      {"-b 2000G", "'2000G' is not a size"},
      {"-f 1", "--stepfactor: '1' is not a number from 2"},
      {"-b 8 -e 4", "-b: 8 bytes are more than the 4 of -e"},
      {"-b 64M", "of -e (each is 32M"},
      {"-i 8 -f 2", "-i and -f"},
      {"-b 1 -e 1G -i 1", "more than a million sizes"},
      {"--sizes 8 -e 64", "--sizes lists them"},
      {"--sizes 8,,9", "'' is not a size"},
      {"--iters 0", "--iters: '0' is not a number from 1"},
      {"-c 2", "--check: '2' is not a number from 0 to 1"},
      {"-n 0", "--ranks: '0'"},
      {"--ops sum", "no operation 'sum'"},
      {"-o band", "'band' is not one of sum, prod, min, max, avg"},
      {"-d float31", "no datatype 'float31'"},
      {"-d bool", "no benchmark that reduces bool with sum"},
      {"-d bytes", "cannot reduce bytes with sum"},
      {"-d int32 -o avg", "cannot reduce int32 with avg"},
      {"-d bool -o all", "nothing to measure"},
      {"-r all", "--root: 'all' is not a number"},
      {"--transport rdma", "no transport 'rdma'"},
      {"--ops scan -o avg", "scan has no avg"},
      {"--group", "--group needs a value"},
      {"--group=", "names no ranks"},
      {"--both=1", "--both takes no value"},
      {"--timeout_s 0", "not a positive number of seconds"},
      {"--timeout_s nan", "not a positive number of seconds"},
  };
  for (const auto& [line, why] : kRefused)
    EXPECT_NE(why_not(line).find(why), std::string::npos) << why_not(line);
}

TEST(BenchOptions, a_result_replaces_the_input_unless_that_is_not_wanted_or_cannot_be) {
  const auto places = [](const std::string& line) {
    std::string text;
    for (const Case& what : read(line).cases) {
      EXPECT_NE(what.in_place, what.out_of_place);
      text += what.in_place ? "i" : "o";
    }
    return text;
  };
  EXPECT_EQ(places("--ops allreduce,alltoall,barrier"), "ioi");
  EXPECT_EQ(places("--ops allreduce,alltoall,barrier --in-place"), "ioi");
  EXPECT_EQ(places("--ops allreduce,alltoall,barrier --out-of-place"), "ooo");
  EXPECT_EQ(places("--ops allreduce,alltoall,barrier --both"), "iooi");
}

TEST(BenchOptions, all_operations_are_measured_at_once_and_an_average_only_where_there_is_one) {
  EXPECT_EQ(read("--ops all").cases.size(), operations().size());
  EXPECT_EQ(read("--ops scan,exscan -o all").cases.size(), 8u);
  EXPECT_EQ(read("--ops allreduce -o all").cases.size(), 5u);
}

TEST(BenchOptions, every_transport_can_be_requested) {
  for (const char* const name : {"auto", "tcp", "shm"})
    EXPECT_EQ(read("--transport " + std::string(name)).transport, name);
}

TEST(BenchOptions, a_group_must_be_of_ranks_that_are_there) {
  EXPECT_TRUE(check(read("--group 0,2"), 3).is_ok());
  EXPECT_NE(check(read("--group 0,2"), 2).message().find("'2' is not a number from 0 to 1"),
            std::string::npos);
  EXPECT_NE(check(read("--group 0,0"), 2).message().find("twice"), std::string::npos);
  EXPECT_FALSE(check(read("--group even-odd"), 1).is_ok());
  EXPECT_TRUE(check(read("--group even-odd --ops reduce -r 0"), 3).is_ok());
  EXPECT_FALSE(check(read("--group even-odd --ops reduce -r 1"), 3).is_ok());  // one odd rank
}

TEST(BenchOptions, a_root_must_be_there_and_a_launcher_counts_the_ranks) {
  EXPECT_TRUE(check(read("--ops reduce -r 1"), 2).is_ok());
  EXPECT_FALSE(check(read("--ops reduce -r 2"), 2).is_ok());
  EXPECT_TRUE(check(read("--ops allreduce -r 2"), 2).is_ok());  // allreduce has no root
  EXPECT_TRUE(check(read("-n 3"), 3).is_ok());
  EXPECT_FALSE(check(read("-n 3"), 2).is_ok());
}

TEST(BenchOptions, small_sizes_are_repeated_more_often_and_flags_decide) {
  EXPECT_EQ(effort(read(""), 8).iterations, 1000u);
  EXPECT_EQ(effort(read(""), 8).warm_up, 100u);
  EXPECT_EQ(effort(read(""), 1 << 30).iterations, 20u);
  EXPECT_EQ(effort(read(""), 1 << 30).warm_up, 5u);
  EXPECT_EQ(effort(read("--iters 3 -w 0"), 8).iterations, 3u);
  EXPECT_EQ(effort(read("--iters 3 -w 0"), 8).warm_up, 0u);
}

TEST(BenchOptions, on_gpus_the_flags_of_nccl_tests_arrive) {
  const Options options = read(
      "allreduce,broadcast --device cuda --way nccl --raw --copy -t 4 -m 3 -G 2 -C 1 -a 3 -N 0 -g 1 --gpus "
      "1,0 -T "
      "9");
  EXPECT_EQ(options.cases.size(), 2u);
  EXPECT_EQ(options.cases[1].operation->name, "broadcast");
  EXPECT_TRUE(options.on_gpus() && options.raw && options.copy && options.host_time);
  EXPECT_EQ(options.backend, GpuBackend::kNccl);
  EXPECT_EQ(options.average, Average::kMost);
  EXPECT_EQ(options.threads, 4u);
  EXPECT_EQ(options.aggregated, 3u);
  EXPECT_EQ(options.graph_launches, 2u);
  EXPECT_EQ(options.cycles, 0u);
  EXPECT_EQ(options.gpus, (std::vector<int>{1, 0}));
  EXPECT_EQ(options.timeout_s, 9);
  EXPECT_FALSE(read("--device cpu").on_gpus());
}

TEST(BenchOptions, on_gpus_a_row_has_both_places_unless_one_is_requested_or_a_list_is_in_place) {
  const auto places = [](const std::string& line) {
    std::string text;
    for (const Case& what : read("--device cuda " + line).cases)
      text += std::string(what.in_place ? "i" : "") + (what.out_of_place ? "o" : "") + " ";
    return text;
  };
  EXPECT_EQ(places("allreduce,alltoall"), "io o ");
  EXPECT_EQ(places("allreduce,alltoall --both"), "io o ");
  EXPECT_EQ(places("allreduce,alltoall --in-place"), "i o ");
  EXPECT_EQ(places("allreduce,alltoall --out-of-place"), "o o ");
  EXPECT_EQ(places("allreduce -m 2"), "i ");
}

TEST(BenchOptions, what_makes_no_sense_on_gpus_is_refused_with_the_reason) {
  const std::pair<const char*, const char*> kRefused[] = {
      {"-m 2", "--agg_iters goes with --device cuda"},
      {"--device gpu", "there is no device 'gpu', there are cpu and cuda"},
      {"--device cuda --way ipc", "there is no way 'ipc'"},
      {"--device cuda --ceilings", "--ceilings does not go with --device cuda"},
      {"--device cuda --group 0", "--group does not go with"},
      {"--device cuda --ops barrier", "does not measure barrier"},
      {"--device cuda --ops sendrecv -G 2", "messages cannot go into a CUDA graph"},
      {"--device cuda --ops sendrecv -m 2", "sendrecv takes no list of arrays"},
      {"--device cuda --ops allgather -m 2", "-m: allgather takes no list"},
      {"--device cuda -m 2 --out-of-place", "goes in place"},
      {"--device cuda --ops gather --raw", "NCCL's own gather is not timed"},
      {"--device cuda --way staged --raw", "--raw compares with NCCL"},
      {"--device cuda --way staged -G 1", "cannot go into a CUDA graph"},
      {"--device cuda -G 1 -z 1", "-G and -z"},
      {"--device cuda -t 2 -n 2", "-t and -n: only one of them"},
      {"--device cuda -t 2 --allow-shared-gpu", "not with -t"},
      {"--device cuda -g 2", "a rank has one GPU"},
      {"--device cuda -R 1", "--local_register of nccl-tests is not here: arrays are not registered"},
      {"--device cuda --way nccl -o min", "NCCL cannot reduce float32 with min"},
  };
  for (const auto& [line, why] : kRefused)
    EXPECT_NE(why_not(line).find(why), std::string::npos) << line << ": " << why_not(line);
}

TEST(BenchOptions, of_all_reductions_only_those_of_nccl_go_by_it_alone) {
  for (const Case& what : read("--device cuda --way nccl -d all -o all").cases)
    EXPECT_TRUE(what.dtype != DType::kI16 && (what.op != ReduceOp::kMin || what.dtype != DType::kF32));
}

TEST(BenchOptions, usage_names_every_operation) {
  for (const Operation& operation : operations())
    EXPECT_NE(usage().find(operation.name), std::string::npos) << operation.name;
}

}  // namespace
}  // namespace pc::bench
