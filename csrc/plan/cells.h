// The memory of all ranks while their plans run on data. Every chunk is one number. In an input,
// the upper 48 bits of each number are random and the lower 16 bits hold a 1, so that a sum counts
// its contributions. Numbers are added mod 2^64; a missing, doubled or misplaced contribution
// changes the result. Inputs are computed when they are read and never stored: a ring of 10,240
// ranks takes 840 MB, all of it output.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "plan/contracts.h"

namespace pc {

class Cells {
 public:
  static constexpr uint64_t kMostNbytes = uint64_t{4} << 30;
  explicit Cells(const Plan& any);  // `any` is any plan of the call
  static Status fits(const Plan& any);

  // The memory of one rank.
  class Memory {
   public:
    uint64_t read(Area area, uint32_t chunk) const {
      if (area == Area::kOutput) return values_[place(chunk)];
      return area == Area::kScratch ? scratch_[chunk] : contribution(base_, chunk);
    }
    uint64_t& write(Area area, uint32_t chunk) {
      return area == Area::kScratch ? scratch_[chunk] : values_[place(chunk)];
    }

   private:
    friend class Cells;
    std::size_t place(uint32_t chunk) const {
      return output_.stride == 1 ? chunk - output_.first : output_.place(chunk);
    }
    bool filled_ = false;
    uint64_t base_ = 0;
    Held output_;
    uint64_t* values_ = nullptr;  // the output, inside outputs_
    std::vector<uint64_t> scratch_;
  };
  Memory& of(const Plan& plan);

  static uint64_t count(uint64_t cell) { return cell & 0xffff; }
  // Returns true if `cell` is the sum of all ranks' contributions. Requires a collective that
  // reduces.
  bool is_total(uint64_t cell, uint32_t chunk) const { return totals_[chunk] == cell; }
  // Compares the output of the plan's rank to the contract, computed from the inputs alone. For a
  // scan this is cheapest if it is called for the ranks in order.
  Status check_result(const Plan& plan);

 private:
  static uint64_t mixed(uint64_t x) {  // splitmix64's finalizer (Steele, Lea, Flood, 2014)
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }
  static uint64_t base(Rank rank) { return mixed((static_cast<uint64_t>(rank) + 1) * 0x9e3779b97f4a7c15ULL); }
  static uint64_t contribution(uint64_t base, uint32_t chunk) {
    return (mixed(base + chunk) & ~uint64_t{0xffff}) | 1;
  }
  static uint64_t contribution(Rank rank, uint32_t chunk) { return contribution(base(rank), chunk); }
  static uint64_t never_written(uint64_t base, std::size_t place) { return mixed(~base - place); }
  void add(std::vector<uint64_t>& sums, Rank rank) const;
  void subtract(std::vector<uint64_t>& sums, Rank rank) const;
  void move_window(Contributors to);

  uint32_t chunks_;
  std::vector<Memory> ranks_;
  std::unique_ptr<uint64_t[]> outputs_;  // of all ranks, one after the other; each is filled on first use
  std::vector<uint64_t> totals_;         // [chunk], the sum over all ranks
  // [chunk], the sum over the ranks in `window_`: the result of one rank of a scan
  std::vector<uint64_t> sums_;
  Contributors window_;
};

}  // namespace pc
