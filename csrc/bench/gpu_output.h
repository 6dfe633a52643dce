// The table of nccl-tests, column for column, or its values as lines of JSON.
#pragma once

#include <string>
#include <vector>

#include "bench/measure_on_gpu.h"
#include "bench/options.h"
#include "comm/runtime.h"

namespace pc::bench {

// What is the same in all rows.
struct GpuScene {
  std::string gpu;   // rank 0's: "NVIDIA H100 80GB HBM3"
  std::string nccl;  // "2.28.9"; empty: no call goes there
  std::string nccl_from;
  Rank size = 1;
};
// A rank's own, in the words of nccl-tests. Collective.
Result<std::vector<std::string>> device_lines(Communicator& group, const Gpu& gpu, const std::string& host);

std::string gpu_table_line(const GpuRow& row, bool host_time);
std::string raw_line(const GpuRow& row);  // what ours takes longer than NCCL's own call
std::string gpu_json_line(const GpuRow& row, const GpuScene& scene, const Route& route);

// On standard output of one rank; the others only count.
class GpuOutput {
 public:
  GpuOutput(const Options& options, GpuScene scene, bool prints)
      : options_(options),
        scene_(std::move(scene)),
        prints_(prints) {}
  void open(const std::vector<std::string>& devices);
  Status begin(const Case& what, const Route& route);
  Status add(const GpuRow& row, const Route& route);
  Status close();
  Status verdict() const;  // whether all results are right, NCCL's own among them

 private:
  void line(const std::string& text) const;
  Status flush() const;

  const Options& options_;
  const GpuScene scene_;
  const bool prints_;
  uint64_t wrong_ = 0, raw_wrong_ = 0, halves_ = 0;
  double busbw_ = 0;                      // the sum of those of all halves
  const Operation* operation_ = nullptr;  // of the last heading
  std::string way_;                       // likewise
};

}  // namespace pc::bench
