#include "engine/shm/shared_executor.h"

#include <utility>
#include <vector>

#include "engine/shm/shared_run.h"

namespace pc::shm {

const Algorithm& shared_memory(Collective collective) {
  static const auto kRows =
      algorithms_without_plan("shared_memory", "the ranks of one host, through memory that they share",
                              "docs/shared-memory.md", /*fixed_order=*/true);
  return kRows[static_cast<std::size_t>(collective)];
}

std::string describe(Collective collective, uint64_t nbytes, Rank size, const Limits& limits) {
  Request request;
  request.collective = collective;
  request.in.count = request.out.count = nbytes;
  if (collective == Collective::kGather) request.in.count = nbytes / static_cast<uint64_t>(size);
  if (collective == Collective::kScatter) request.out.count = nbytes / static_cast<uint64_t>(size);
  Launch launch;
  launch.size = size;
  Traffic traffic;
  traffic.bind(request, launch, limits);
  if (traffic.in_rounds())
    return "in rounds of " + std::to_string(traffic.chunk_nbytes()) + " bytes through rings" +
           (traffic.passes_results_on() ? "; each rank combines one piece of the array and passes it on"
                                        : "");
  const bool is_inline = traffic.message_nbytes() <= kInlineNbytes;
  return "at once, " + std::string(is_inline ? "inside the slot that announces the call" : "through rings") +
         "; one exchange";
}

struct SharedExecutor::State {
  struct SharedGroup : OpenGroup {
    SharedGroup(const State& state, const Launch& launch)
        : group(state.host, launch.group, launch.rank,
                {launch.world_ranks, static_cast<std::size_t>(launch.size)},
                limits_for(state.limits, static_cast<std::size_t>(launch.size))),
          waiter(state.oversubscribed, Waiter::flags(), state.core),
          // A discarded call needs no action, because the announcement of the next call covers it.
          queue(state.reactor, launch.group, [](uint64_t) {}) {}
    RunQueue& runs() override { return queue; }
    void note_left(Rank world) override { group.note_left(world); }
    void close() override { group.close(); }
    Group group;     // used by the holder of the progress lock
    Waiter waiter;   // used by the holder of the progress lock
    RunQueue queue;  // last member: its runs use the members above
  };

  State(Host& host_, Reactor& reactor_, bool oversubscribed_, LimitsByRanks limits_, CoreWatch* core_)
      : host(host_),
        reactor(reactor_),
        oversubscribed(oversubscribed_),
        limits(std::move(limits_)),
        core(core_) {}

  Host& host;
  Reactor& reactor;
  const bool oversubscribed;
  const LimitsByRanks limits;
  CoreWatch* const core;  // may be null
  OpenGroups groups;      // last member: its calls use the members above
};

SharedExecutor::SharedExecutor(Host& host, Reactor& reactor, bool oversubscribed, LimitsByRanks limits,
                               CoreWatch* core)
    : SharedExecutor(std::make_shared<State>(host, reactor, oversubscribed, std::move(limits), core)) {}
SharedExecutor::SharedExecutor(const std::shared_ptr<State>& state)
    : CpuExecutor({state, &state->groups}),
      state_(*state) {}

Result<WorkPtr> SharedExecutor::launch(const Request& request, const Launch& launch) {
  const std::shared_ptr<OpenGroup>& group =
      state_.groups.get(launch.group, [&] { return std::make_shared<State::SharedGroup>(state_, launch); });
  auto& shared = static_cast<State::SharedGroup&>(*group);
  const auto make_run = [&] { return std::make_unique<SharedRun>(state_.host, shared.group, shared.waiter); };
  std::unique_ptr<Run> run;
  Status result;
  std::vector<LateMismatch> late_mismatches;
  const bool began = launch.waits && shared.queue.begin_at_once(run, make_run, [&](Run& idle) {
    SharedRun& next = static_cast<SharedRun&>(idle);
    next.prepare(request, launch);
    next.start_at_once();
    late_mismatches = shared.group.take_late_mismatches();
    result = next.result();
  });
  WorkPtr work;
  if (run != nullptr) work = Run::as_work(std::move(run), shared.queue, groups_, group);
  SharedRun::report_late_mismatches(launch, late_mismatches);
  if (!result.is_ok()) return result;
  if (began) return work;
  run = shared.queue.take_idle([](const Run&) { return true; });
  if (run == nullptr) run = make_run();
  static_cast<SharedRun&>(*run).prepare(request, launch);
  return shared.queue.enter(std::move(run), groups_, group);
}

}  // namespace pc::shm
