#include "engine/shm/shared_executor.h"

#include <array>
#include <utility>
#include <vector>

#include "engine/line_work.h"
#include "engine/open_groups.h"
#include "engine/shm/shared_run.h"
#include "kernels/reduce.h"

namespace pc::shm {

const Algorithm& shared_memory(Collective collective) {
  static const std::array<Algorithm, kCollectiveCount> kRows = [] {
    std::array<Algorithm, kCollectiveCount> rows{};
    for (int i = 0; i < kCollectiveCount; ++i) {
      Algorithm& row = rows[static_cast<std::size_t>(i)];
      row.name = "shared_memory";
      row.collective = static_cast<Collective>(i);
      row.supports = [](const Shape&) { return true; };
      row.build = nullptr;
      row.source = "docs/shared-memory.md";
      row.summary = "the ranks of one host, through memory that they share";
      row.pipelines = Pipelines::kNot;
      row.fixed_order = true;
      row.name_hash = fnv1a(row.name);
    }
    return rows;
  }();
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
  struct SharedGroup {
    SharedGroup(Host& host, Reactor& reactor, const Limits& limits, const Launch& launch, bool crowded,
                CoreWatch* core)
        : line(reactor, launch.group, [](uint64_t) {}),  // void calls are announced with the next one
          group(host, launch.group, launch.rank, {launch.world_ranks, static_cast<std::size_t>(launch.size)},
                limits),
          waiter(crowded, Waiter::flags(), core) {}
    void close() { group.close(); }
    GroupLine line;
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
  const std::shared_ptr<SharedGroup>& get(const Launch& launch) {
    return groups.get(launch.group, [&] {
      const Limits ours = limits_for(limits, static_cast<std::size_t>(launch.size));
      return std::make_shared<SharedGroup>(host, reactor, ours, launch, crowded, core);
    });
  }

  Host& host;
  Reactor& reactor;
  const bool crowded;
  const LimitsByRanks limits;
  CoreWatch* const core;  // may be null
  OpenGroups<SharedGroup> groups;
};

SharedExecutor::SharedExecutor(Host& host, Reactor& reactor, bool crowded, LimitsByRanks limits,
                               CoreWatch* core)
    : state_(std::make_shared<State>(host, reactor, crowded, std::move(limits), core)) {}
SharedExecutor::~SharedExecutor() { abort(Status(Code::kAborted, "the executor was closed")); }

bool SharedExecutor::supports(const Request& request, Rank) const {
  if (request.in.device.type != DeviceType::kCpu || request.out.device.type != DeviceType::kCpu) return false;
  return !reduces(request.collective) || can_reduce(request.in.dtype, request.op);
}

Result<std::unique_ptr<Work>> SharedExecutor::launch(const Request& request, const Launch& launch) {
  const std::shared_ptr<State::SharedGroup>& group = state_->get(launch);
  State::SharedGroup& shared = *group;
  const auto make_run = [&] {
    return std::make_unique<SharedRun>(state_->host, shared.group, shared.waiter);
  };
  std::unique_ptr<Run> run;
  Status result;
  std::vector<Stray> strays;
  const bool began = launch.waits && shared.line.begin_at_once([&]() -> Run* {
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
    work = std::make_unique<LineWork>(state_, group, shared.line);
  } catch (const std::bad_alloc&) {
    if (run != nullptr) shared.line.release(std::move(run));  // it is in line
    throw;
  }
  if (run == nullptr) {
    run = shared.line.take_idle([](const Run&) { return true; });
    if (run == nullptr) run = make_run();
    static_cast<SharedRun&>(*run).prepare(request, launch);
    shared.line.enter(*run);
  }
  work->take(std::move(run));
  return std::unique_ptr<Work>(std::move(work));
}

void SharedExecutor::cancel(uint32_t group, uint64_t sequence, const Status& why) {
  state_->groups.cancel(group, sequence, why);
}

void SharedExecutor::peer_left(Rank world) {
  state_->groups.peer_left(world,
                           [](State::SharedGroup& shared, Rank left) { shared.group.note_left(left); });
}

void SharedExecutor::abort(uint32_t group, const Status& why) { state_->groups.abort(group, why); }
void SharedExecutor::abort(const Status& why) noexcept { state_->groups.abort(why); }
void SharedExecutor::close(uint32_t group) { state_->groups.close(group); }

}  // namespace pc::shm
