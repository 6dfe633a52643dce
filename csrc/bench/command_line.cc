#include "bench/command_line.h"

#include <algorithm>
#include <span>
#include <utility>

#include "bench/flags.h"
#include "bench/patterns.h"
#include "bench/raw_nccl.h"
#include "gpu/nccl/types.h"
#include "kernels/reduce.h"

namespace pc::bench {
namespace {

// ---- reading single flags

// Returns the flag with this name. If the flag requires a device, records it in `words`.
Result<const Flag*> find_flag(Words& words, const std::string& name, const std::string& word) {
  const std::span<const Flag> all = flags();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Flag& flag) { return name == flag.name || name == flag.brief; });
  if (found == all.end()) return invalid_argument("there is no option " + word);
  if (found->set == nullptr)
    return invalid_argument(std::string(found->name) +
                            " of nccl-tests is not here: " + std::string(found->refusal));
  if (found->device == GoesWith::kCpu && words.cpu_flag == nullptr) words.cpu_flag = &*found;
  if (found->device == GoesWith::kCuda && words.gpu_flag == nullptr) words.gpu_flag = &*found;
  return &*found;
}

// Reads "-b 8", "-b8", "--minbytes 8", "--minbytes=8", or "allreduce" without --ops. Removes what
// it reads from the front of `rest`.
Status read_flag(Words& words, std::span<const std::string>& rest) {
  const std::string word = rest.front();
  rest = rest.subspan(1);
  if (!word.starts_with("-")) return set_operations(words, word);
  const bool brief = !word.starts_with("--");
  const std::size_t end =
      brief ? std::min<std::size_t>(2, word.size()) : std::min(word.find('='), word.size());
  PC_ASSIGN_OR_RETURN(const Flag* const flag, find_flag(words, word.substr(0, end), word));
  const bool attached = end < word.size();
  if (!flag->has_value)
    return attached ? invalid_argument(std::string(flag->name) + " takes no value") : flag->set(words, "");
  std::string value;
  if (attached) {
    value = word.substr(brief ? end : end + 1);
  } else if (rest.empty()) {
    return invalid_argument(word + " needs a value");
  } else {
    value = rest.front();
    rest = rest.subspan(1);
  }
  const Status set = flag->set(words, value);
  return set.is_ok() ? set : invalid_argument(std::string(flag->name) + ": " + set.message());
}

Result<Words> read_flags(const std::vector<std::string>& words) {
  Words read;
  for (std::span<const std::string> rest = words; !rest.empty();) PC_TRY(read_flag(read, rest));
  return read;
}

// ---- combining the flags

// defaults of nccl-tests: the first size, which is also the last, and the step
constexpr uint64_t kNcclSize = 32 << 20, kNcclStep = 1 << 20;

Status put_sizes(Words& words) {
  std::vector<uint64_t>& sizes = words.sizes;
  const bool range = words.first || words.last || words.step || words.factor;
  if (range && !sizes.empty())
    return invalid_argument("--sizes lists them; -b, -e, -i and -f are another way to say it");
  if (words.step && words.factor) return invalid_argument("-i and -f: only one of them");
  if (!range && sizes.empty()) sizes = {8, 64 << 10, 1 << 20, 16 << 20};
  if (!range) return Status::ok();
  const uint64_t first = words.first.value_or(kNcclSize), last = words.last.value_or(kNcclSize);
  if (first > last) {
    return invalid_argument("-b: " + std::to_string(first) + " bytes are more than the " +
                            std::to_string(last) + " of -e (each is 32M if it is not given)");
  }
  const uint64_t step = words.step.value_or(kNcclStep);
  if (!words.factor && (last - first) / step >= 1'000'000)
    return invalid_argument("-i: more than a million sizes");
  for (uint64_t nbytes = first; nbytes <= last;
       nbytes = words.factor ? nbytes * *words.factor : nbytes + step)
    sizes.push_back(nbytes);
  return Status::ok();
}

template <class T>
std::vector<T> all_of(int count) {
  std::vector<T> all;
  for (int i = 0; i < count; ++i) all.push_back(static_cast<T>(i));
  return all;
}

// Returns OK, or the reason why the operation cannot be measured with this type and reduction.
Status can_measure(const Options& options, const Operation& operation, DType dtype, ReduceOp op) {
  const std::string cell = std::string(name_of(dtype)) + " with " + std::string(name_of(op));
  if (options.on_gpus() && options.backend == GpuBackend::kNccl) PC_TRY(nccl::reduced(dtype, {op}).status());
  if (!can_reduce(dtype, op)) return invalid_argument("cannot reduce " + cell);
  if (!has_pattern(dtype) || !has_pattern(op))
    return invalid_argument("there is no benchmark that reduces " + cell);
  if (op != ReduceOp::kAvg || operation.averages()) return Status::ok();
  return invalid_argument(std::string(operation.name) + " has no avg, which is over all ranks");
}

// Adds the requested cases, in place or out of place. An operation that cannot run in place is
// measured out of place. On GPUs a single case covers both.
void put_places(Words& words, Case what) {
  std::vector<Case>& cases = words.cases;
  what.root = words.root;
  what.in_place = words.in_place && what.operation->in_place();
  what.out_of_place = !what.in_place || (words.out_of_place && what.operation->moves_data());
  if (what.in_place && what.out_of_place && !words.on_gpus()) {
    cases.push_back(what);
    cases.back().out_of_place = false;
    what.in_place = false;
  }
  cases.push_back(what);
}

// "all" selects only the combinations that can be measured; a named type or operation must be
// measurable.
Status put_cases(Words& words) {
  const bool all = words.dtypes.empty() || words.ops.empty();
  if (words.dtypes.empty()) words.dtypes = all_of<DType>(kDTypeCount);
  if (words.ops.empty()) words.ops = all_of<ReduceOp>(kReduceOpCount);
  for (const Operation* operation : words.operations) {
    if (!operation->moves_data()) {
      put_places(words, {operation, DType::kU8, ReduceOp::kSum, {}});
      continue;
    }
    for (const DType dtype : words.dtypes) {
      for (const ReduceOp op : operation->reduces() ? words.ops : std::vector{ReduceOp::kSum}) {
        const Status can = operation->reduces() ? can_measure(words, *operation, dtype, op) : Status::ok();
        if (!can.is_ok() && !all) return can;
        if (can.is_ok()) put_places(words, {operation, dtype, op, {}});
      }
    }
  }
  return words.cases.empty() ? invalid_argument("nothing to measure: none of these datatypes can be measured")
                             : Status::ok();
}

// Returns true if a list of arrays can be reduced or sent in one call (docs/gpu.md), which is
// possible in place only.
bool takes_lists(const Operation& operation) {
  return operation.collective == Collective::kAllreduce || operation.collective == Collective::kReduce ||
         operation.collective == Collective::kBroadcast;
}

Status put_device(Words& words) {
  const Options& options = words;
  if (!words.in_place && !words.out_of_place) {
    words.in_place = true;
    words.out_of_place = options.on_gpus();
  }
  if (!options.on_gpus())
    return words.gpu_flag == nullptr
               ? Status::ok()
               : invalid_argument(std::string(words.gpu_flag->name) + " goes with --device cuda");
  if (words.cpu_flag != nullptr)
    return invalid_argument(std::string(words.cpu_flag->name) + " does not go with --device cuda");
  if (options.aggregated > 1) words.out_of_place = false;
  const bool graph = options.graph_launches != 0, staged = options.backend == GpuBackend::kStaged;
  const std::pair<bool, const char*> kContradictions[] = {
      {options.threads != 0 && options.ranks, "-t and -n: only one of them"},
      {options.threads != 0 && options.shares_gpu,
       "--allow-shared-gpu: NCCL takes ranks of one process for ranks of one host, so not with -t"},
      {graph && options.blocking, "-G and -z: what goes into a graph is not waited for"},
      {graph && staged, "-G: calls that go through the host cannot go into a CUDA graph"},
      {staged && options.raw, "--raw compares with NCCL: not with --way staged"}};
  for (const auto& [is_so, why] : kContradictions)
    if (is_so) return invalid_argument(why);
  return Status::ok();
}

Status check_on_gpu(const Options& options, const Case& what) {
  const Operation& operation = *what.operation;
  const std::string name(operation.name);
  if (!operation.moves_data()) return invalid_argument("--device cuda does not measure " + name);
  if (!operation.collective && options.graph_launches != 0)
    return invalid_argument("-G: messages cannot go into a CUDA graph");
  if (options.aggregated > 1 && !takes_lists(operation))
    return invalid_argument("-m: " + name + " takes no list of arrays; allreduce, broadcast and reduce do");
  if (options.aggregated > 1 && !what.in_place) return invalid_argument("-m: a list of arrays goes in place");
  if (options.raw && !has_raw(operation))
    return invalid_argument("--raw: NCCL's own " + name + " is not timed");
  return Status::ok();
}

}  // namespace

Result<Options> parse(const std::vector<std::string>& words) {
  PC_ASSIGN_OR_RETURN(Words read, read_flags(words));
  PC_TRY(put_device(read));
  PC_TRY(put_sizes(read));
  PC_TRY(put_cases(read));
  for (const Case& what : read.cases)
    if (read.on_gpus()) PC_TRY(check_on_gpu(read, what));
  return Options(read);
}

std::string usage() {
  std::string names;
  for (const Operation& operation : operations()) {
    names += names.empty() ? "" : operation.name == "alltoall" ? ",\n                         " : ",";
    names += operation.name;
  }
  return R"(usage: pycollective-bench [options]
Measures collectives between processes and verifies what they give. Under a launcher (mpirun, srun,
torchrun, pycollective run) its processes are the ranks, else n are started on this host.
  -n, --ranks N          how many to start (2)
  LIST, --ops LIST       of )" +
         names + R"(,
                         or all (allreduce)
  --in-place, --out-of-place, --both
                         whether the result replaces the input (in place, where it can)
  --group RANKS|even-odd these ranks of the world alone, or both halves at the same time
  -b, --minbytes SIZE    smallest size: 8, 64K, 16M, 1G (32M)
  -e, --maxbytes SIZE    largest size (32M)
  -i, --stepbytes SIZE   from one size to the next (1M)
  -f, --stepfactor N     likewise, as a factor
  --sizes LIST           instead of these (8,64K,1M,16M)
  -d, --datatype LIST    float32, bfloat16, int64, ..., all (float32)
  -o, --op LIST          sum, prod, min, max, avg, all (sum)
  -r, --root RANK        the same in all calls, or rotate: another one in each (rotate)
  -w, --warmup_iters N   calls before the timed ones (5 to 100, by size)
  --iters N              timed calls (20 to 1000, by size)
  -c, --check 0|1        verify the result (1)
  --json                 one object per line instead of the table
  --explain              say what the columns mean
  --ceilings             instead of collectives what this machine can do at best: memcpy, a += b,
                         loopback TCP one way, waking a thread
  --transport auto|tcp|shm, --tune RULES, --timeout_s S
                         as PYCOLLECTIVE_TRANSPORT, PYCOLLECTIVE_TUNE, PYCOLLECTIVE_TIMEOUT_S
  --device cpu|cuda      where the arrays lie (cpu). On GPUs, where each row has both places:
    --way auto|nccl|staged  by NCCL where it can go, or so or not at all, or through the host (auto)
    --raw                times NCCL's own calls alternately with ours, verifies and compares both
    --copy               times the driver's own copy of as many bytes beside each row
    --gpus LIST          of this host's ranks, round-robin (local rank modulo how many there are)
    --allow-shared-gpu   tells NCCL that each rank is on another host, so that they may share one
    -t, --nthreads N     ranks are so many threads of one process, instead of -n
    -m, --agg_iters N    calls in one group (1)
    -G, --cudagraph N    captures the timed calls, and launches the graph so often (0: no graph)
    -z, --blocking 0|1   waits for each call and for the other ranks (0)
    -C, --report_cputime 0|1  until the calls are queued, instead of until they have ended (0)
    -a, --average N      of the ranks' times: 0 rank 0's, 1 the mean, 2 the least, 3 the most (1)
    -N, --run_cycles N   all rows so often (1; 0: without end)
)";
}

}  // namespace pc::bench
