// Aborts communicators. An abort may take long or never return, so each runs on a thread of its
// own.
#include <chrono>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "gpu/nccl/call_error.h"
#include "gpu/nccl/communicator.h"
#include "gpu/nccl/communicator_core.h"
#include "gpu/nccl/poll.h"

namespace pc::nccl {
namespace {

// A thread that is inside NCCL for this long is considered stuck.
constexpr std::chrono::milliseconds kStuck{20};

// Locks the issue mutex. A thread inside NCCL normally releases it at once, because `stop` is set.
// If that thread is stuck, returns without the lock: NCCL makes the stuck call return once the
// abort has begun, and until then the thread uses nothing that the abort changes.
std::unique_lock<std::mutex> lock_unless_stuck(CommunicatorCore& core) {
  std::unique_lock lock(core.issue, std::try_to_lock);
  TimePoint since = now();
  while (!lock.owns_lock() && now() - since < kStuck) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!core.may_be_stuck.load(std::memory_order_acquire)) since = now();
    (void)lock.try_lock();
  }
  return lock;
}

// One abort on a thread of its own, and its outcome. Shared by that thread and abort_all().
struct AbortTask {
  std::vector<std::shared_ptr<CommunicatorCore>> cores;
  std::atomic<bool> done{false};
  ReturnCode code = ReturnCode::kSuccess;  // the first failure; read only after `done` is set

  void take_code(ReturnCode answer) {
    if (answer != ReturnCode::kSuccess && answer != ReturnCode::kInProgress && code == ReturnCode::kSuccess)
      code = answer;
  }
  // Marks the communicators that are not dead as leaked. They may still become dead later.
  void leak() {
    for (const auto& core : cores) {
      State aborting = State::kAborting;
      core->state.compare_exchange_strong(aborting, State::kLeaked);
    }
  }
  void run() {
    const Result<std::shared_ptr<void>> current = cores.front()->enter_thread();
    std::vector<std::unique_lock<std::mutex>> locks;
    for (const auto& core : cores) locks.push_back(lock_unless_stuck(*core));
    const Api& api = cores.front()->api();
    const bool together = cores.size() > 1;
    if (together) take_code(api.group_start());
    std::vector<std::shared_ptr<CommunicatorCore>> freed;
    for (const auto& core : cores) {
      if (CommHandle const handle = std::exchange(core->handle, nullptr); handle != nullptr)
        take_code(api.comm_abort(handle));
      else if (core->left_inside)
        continue;  // ncclCommDestroy owns the handle, and its thread sets kDead when it returns
      freed.push_back(core);
      core->ops.clear();
    }
    if (together) take_code(api.group_end());
    for (const auto& core : freed) core->state.store(State::kDead);
    leak();
    locks.clear();
    done.store(true, std::memory_order_release);
  }
};

}  // namespace

Status Communicator::abort_all(std::span<Communicator* const> communicators, const Status& why) {
  std::vector<std::shared_ptr<AbortTask>> all;
  for (const Communicator* each : communicators) {
    const std::shared_ptr<CommunicatorCore>& core = each->core_;
    if (!core->begin_abort(why)) continue;
    const bool joins = !all.empty() && core->api().supports(Feature::kGroupedAbort) &&
                       all.back()->cores.front()->resources.api == core->resources.api;
    if (!joins) all.push_back(std::make_shared<AbortTask>());
    all.back()->cores.push_back(core);
  }
  if (all.empty()) return Status::ok();
  std::vector<std::thread> threads;
  Status status;
  for (const auto& each : all) {
    try {
      threads.emplace_back([each] { each->run(); });
    } catch (const std::system_error& error) {  // not run here instead: the abort may never return
      threads.emplace_back();
      each->leak();
      each->done.store(true);
      status = Status(Code::kSystem, std::string("no thread can be had for ncclCommAbort: ") + error.what());
    }
  }

  const Resources& resources = all.front()->cores.front()->resources;
  const std::atomic<bool> never{false};
  const double wait_limit = resources.abort_wait_limit_s;
  const WaitContext context{Deadline::after(wait_limit, resources.clock->now())};
  for (std::size_t i = 0; i < all.size(); ++i) {
    AbortTask& each = *all[i];
    const WaitEnd end = poll_until(*resources.clock, context, never, [&] { return each.done.load(); });
    if (end == WaitEnd::kReady) {
      if (threads[i].joinable()) threads[i].join();
      if (each.code != ReturnCode::kSuccess && status.is_ok())
        status = call_error(each.cores.front()->api(), nullptr, "ncclCommAbort", each.code);
      continue;
    }
    threads[i].detach();
    each.leak();
    status = Status(Code::kTimeout, "ncclCommAbort has not come back after " + std::to_string(wait_limit) +
                                        " s: the communicator and its GPU memory are leaked");
  }
  return status;
}

}  // namespace pc::nccl
