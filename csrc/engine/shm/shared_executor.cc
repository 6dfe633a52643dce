#include "engine/shm/shared_executor.h"

#include <utility>
#include <vector>

#include "engine/line_work.h"
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
  return "at once, " + std::string(is_inline ? "inside the line that announces the call" : "through rings") +
         "; one exchange";
}

struct SharedExecutor::State {
  struct SharedGroup : OpenGroup {
    SharedGroup(const State& state, const Launch& launch)
        : queue(state.reactor, launch.group, [](uint64_t) {}),  // void calls are announced with the next one
          group(state.host, launch.group, launch.rank,
                {launch.world_ranks, static_cast<std::size_t>(launch.size)},
                limits_for(state.limits, static_cast<std::size_t>(launch.size))),
          waiter(state.crowded, Waiter::flags(), state.core) {}
    GroupLine& line() override { return queue; }
    void note_left(Rank world) override { group.note_left(world); }
    void close() override { group.close(); }
    GroupLine queue;
    Group group;                      // the baton's
    Waiter waiter;                    // likewise
    std::unique_ptr<SharedRun> next;  // likewise: for a call that may be done at once
  };

  State(Host& host_, Reactor& reactor_, bool crowded_, LimitsByRanks limits_, CoreWatch* core_)
      : host(host_),
        reactor(reactor_),
        crowded(crowded_),
        limits(std::move(limits_)),
        core(core_) {}

  Host& host;
  Reactor& reactor;
  const bool crowded;
  const LimitsByRanks limits;
  CoreWatch* const core;  // may be null
  OpenGroups groups;      // whose calls use the rest
};

SharedExecutor::SharedExecutor(Host& host, Reactor& reactor, bool crowded, LimitsByRanks limits,
                               CoreWatch* core)
    : SharedExecutor(std::make_shared<State>(host, reactor, crowded, std::move(limits), core)) {}
SharedExecutor::SharedExecutor(const std::shared_ptr<State>& state)
    : CpuExecutor({state, &state->groups}),
      state_(*state) {}

Result<std::unique_ptr<Work>> SharedExecutor::launch(const Request& request, const Launch& launch) {
  const std::shared_ptr<OpenGroup>& group =
      state_.groups.get(launch.group, [&] { return std::make_shared<State::SharedGroup>(state_, launch); });
  auto& shared = static_cast<State::SharedGroup&>(*group);
  const auto make_run = [&] { return std::make_unique<SharedRun>(state_.host, shared.group, shared.waiter); };
  std::unique_ptr<Run> run;
  Status result;
  std::vector<Stray> strays;
  const bool began = launch.waits && shared.queue.begin_at_once([&]() -> Run* {
    if (shared.next == nullptr) shared.next = make_run();
    SharedRun& next = *shared.next;
    next.prepare(request, launch);
    next.start_at_once();
    strays = shared.group.take_strays();
    result = next.result();
    if (!next.ended()) run = std::move(shared.next);
    return run.get();
  });
  SharedRun::tell(launch, strays);
  if (began && run == nullptr) {
    if (!result.is_ok()) return result;
    return std::unique_ptr<Work>();
  }
  std::unique_ptr<LineWork> work;
  try {
    work = std::make_unique<LineWork>(groups_, group, shared.queue);
  } catch (const std::bad_alloc&) {
    if (run != nullptr) shared.queue.release(std::move(run));  // it is in line
    throw;
  }
  if (run == nullptr) {
    run = shared.queue.take_idle([](const Run&) { return true; });
    if (run == nullptr) run = make_run();
    static_cast<SharedRun&>(*run).prepare(request, launch);
    shared.queue.enter(*run);
  }
  work->take(std::move(run));
  return std::unique_ptr<Work>(std::move(work));
}

}  // namespace pc::shm
