#include "engine/shm/shared_executor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/line_work.h"
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
  SharedGroup* find(uint32_t id) {  // mutex held
    const auto known =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g->line.group() == id; });
    return known == groups.end() ? nullptr : known->get();
  }
  SharedGroup& group_of(const Launch& launch) {
    SharedGroup* const recent = used_last.load(std::memory_order_acquire);
    if (recent != nullptr && recent->line.group() == launch.group) return *recent;
    const std::lock_guard<std::mutex> lock(mutex);
    SharedGroup* group = find(launch.group);
    if (group == nullptr) {
      const Limits ours = limits_for(limits, static_cast<std::size_t>(launch.size));
      groups.push_back(std::make_unique<SharedGroup>(host, reactor, ours, launch, crowded, core));
      group = groups.back().get();
      const auto ended = ended_groups.find(launch.group);
      for (const Rank world : left) group->group.note_left(world);
      if (!aborted.is_ok()) group->line.abort(aborted);
      if (ended != ended_groups.end()) group->line.abort(ended->second);
    }
    used_last.store(group, std::memory_order_release);
    return *group;
  }

  Host& host;
  Reactor& reactor;
  const bool crowded;
  const LimitsByRanks limits;
  CoreWatch* const core;                             // may be null
  std::atomic<SharedGroup*> used_last{nullptr};      // of `groups`, most often the right one
  std::mutex mutex;                                  // guards what follows
  std::vector<std::unique_ptr<SharedGroup>> groups;  // few, and they stay
  std::map<uint32_t, Status> ended_groups;
  std::vector<Rank> left;  // of the world
  Status aborted;
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
  State::SharedGroup& shared = state_->group_of(launch);
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
    work = std::make_unique<LineWork>(state_, shared.line);
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
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (State::SharedGroup* const shared = state_->find(group)) shared->line.cancel(sequence, why);
}

void SharedExecutor::peer_left(Rank world) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (std::find(state_->left.begin(), state_->left.end(), world) != state_->left.end()) return;
  state_->left.push_back(world);
  for (const std::unique_ptr<State::SharedGroup>& shared : state_->groups) {
    shared->group.note_left(world);
    shared->line.wake();
  }
}

void SharedExecutor::abort(uint32_t group, const Status& why) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->ended_groups.try_emplace(group, why);
  if (State::SharedGroup* const shared = state_->find(group)) shared->line.abort(why);
}

void SharedExecutor::abort(const Status& why) noexcept {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (state_->aborted.is_ok()) state_->aborted = why;
  for (const std::unique_ptr<State::SharedGroup>& shared : state_->groups) shared->line.abort(why);
}

}  // namespace pc::shm
