// The exchange of one call among one rank of each domain. In every round these ranks run a plan on
// one part of the array. The plans use the number and the digest of the call, so they report
// mismatches and failures as any plan does.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/plan/plan_run.h"
#include "engine/shm/inter_domain_exchange.h"

namespace pc::shm {

struct ChosenPlan {
  const Algorithm* algorithm = nullptr;
  uint32_t split = 1;
};
// Chooses the plan that an inter-domain group of `size` ranks runs. A pure function of what all
// ranks know.
using ChoosePlan = std::function<ChosenPlan(Collective, uint64_t nbytes, Rank size, bool fixed_order)>;

class InterGroup final : public InterDomainExchange {
 public:
  // None of the arguments is owned. `notifier` is completed with `token` whenever take() has
  // something to do.
  InterGroup(Transport& transport, PlanCache& plans, const ChoosePlan& choose,
             const std::vector<std::vector<Rank>>& inter_groups, CompletionSink* notifier, uint64_t token)
      : transport_(transport),
        plans_(plans),
        choose_(choose),
        inter_groups_(inter_groups),
        notifier_(notifier),
        token_(token) {
    idle_.reserve(kMostIdle);  // so that end(), which must not throw, can add runs without an allocation
  }
  InterGroup(const InterGroup&) = delete;
  InterGroup& operator=(const InterGroup&) = delete;
  ~InterGroup() override {
    if (is_active()) end(Status(Code::kAborted, "dropped by its owner before it was done"));
  }

  struct Part {
    Collective collective = Collective::kAllreduce;
    DType dtype = DType::kU8;
    Reduction op;
    Rank root = 0;  // index of the root's domain
    bool fixed_order = false;
    uint32_t contributions = 1;  // number of contributions that each rank has already combined
  };
  // `ranks` holds one rank of each domain, in the order of the domains, as group ranks. It is empty
  // if this rank is in no inter-domain group of the call. The span must stay valid until the call
  // has ended. `launch` is that of the whole call. Must not be called while an exchange is in
  // progress.
  void prepare(const Part& part, const Launch& launch, std::span<const Rank> ranks, Rank own_domain);

  bool has_capacity() const override { return begun_ - taken_ < kMost; }
  bool is_active() const override { return begun_ != taken_; }
  void exchange(uint32_t round, std::span<std::byte> memory) override;
  Result<bool> take(uint32_t round) override;
  void end(const Status& why) override;
  Rank waits_for() const override;
  std::span<const Rank> parts_of(Rank member) const override {
    return inter_groups_[static_cast<std::size_t>(member)];
  }
  std::size_t own_part() const override { return static_cast<std::size_t>(launch_.rank); }

 private:
  // The largest number of rounds in flight: enough to hide the round-trip time.
  static constexpr uint32_t kMost = 8;
  static constexpr std::size_t kMostIdle = 16;
  struct Slot {
    std::unique_ptr<PlanRun> run;
    Scratch scratch;
  };
  Slot& slot(uint32_t round) { return slots_[round % kMost]; }
  Request request_for(std::span<std::byte> memory) const;
  Result<std::unique_ptr<PlanRun>> run_for(const Request& request, const ChosenPlan& plan);
  void keep(std::unique_ptr<PlanRun> run);

  Transport& transport_;
  PlanCache& plans_;
  const ChoosePlan& choose_;
  const std::vector<std::vector<Rank>>& inter_groups_;  // by index of the rank in its domain
  CompletionSink* const notifier_;
  const uint64_t token_;
  Part part_;
  Launch launch_;                // this rank's launch in the inter-domain group
  std::span<const Rank> ranks_;  // ranks of the group, by domain
  std::vector<Rank> worlds_;     // world ranks, by domain
  std::array<Slot, kMost> slots_;
  uint32_t begun_ = 0, taken_ = 0;  // number of rounds
  bool prepared_ = false;           // prepare() was called, and end() was not called since
  std::vector<std::unique_ptr<PlanRun>> idle_;
  Status failure_;
};

}  // namespace pc::shm
