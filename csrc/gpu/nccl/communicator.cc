#include "gpu/nccl/communicator.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/start_thread.h"
#include "gpu/nccl/call_error.h"
#include "gpu/nccl/communicator_core.h"
#include "gpu/nccl/poll.h"

namespace pc::nccl {

namespace {

// The interval at which a thread of aside() that outlives its call polls for the end of its
// communicator. Such a thread remains only if the communicator is aborted late, or never.
constexpr std::chrono::milliseconds kUnsettledPause{20};

enum class Blocks : bool { kNo, kYes };

Config config_for(const Api& api, const std::string& name, const Options& options, Blocks blocks) {
  Config config = unset_config(code_of(api.version), blocks == Blocks::kYes);
  config.min_ctas = options.min_ctas;
  config.max_ctas = options.max_ctas;
  if (api.supports(Feature::kName) && !name.empty()) config.comm_name = name.c_str();
  return config;
}

}  // namespace

Result<UniqueId> make_unique_id(const Api& api) {
  UniqueId id = {};
  const ReturnCode code = api.get_unique_id(&id);
  if (code != ReturnCode::kSuccess) return call_error(api, nullptr, "ncclGetUniqueId", code);
  return id;
}

Status CommunicatorCore::fail(const Status& why) {
  const std::lock_guard lock(cause_mutex);
  if (cause.is_ok()) cause = why;
  const State now = state.load();
  if (now == State::kInit || now == State::kReady || now == State::kFinalizing) state.store(State::kFailed);
  return why;
}

Status CommunicatorCore::why_aborted() const {
  const std::lock_guard lock(cause_mutex);
  return Status(Code::kAborted, "the NCCL communicator was aborted: " + cause.to_string());
}

Status CommunicatorCore::why_unusable() const {
  const State now = state.load();
  if (now == State::kReady) return Status::ok();
  if (now == State::kAborting) return why_aborted();
  const std::lock_guard lock(cause_mutex);
  const std::string text = "the NCCL communicator is " + std::string(nccl::name_of(now));
  if (cause.is_ok()) return Status(Code::kNotInitialized, text);
  return Status(cause.code(), text + ": " + cause.to_string());
}

bool CommunicatorCore::begin_abort(const Status& why) {
  const std::lock_guard lock(cause_mutex);
  const State now = state.load();
  if (now == State::kAborting || now == State::kDead || now == State::kLeaked) return false;
  if (cause.is_ok()) cause = why.is_ok() ? Status(Code::kAborted, "asked for") : why;
  state.store(State::kAborting);
  stop.store(true, std::memory_order_release);
  return true;
}

Status CommunicatorCore::ended(std::string_view call, WaitEnd end) {
  const std::string text(call);
  switch (end) {
    case WaitEnd::kReady: break;
    case WaitEnd::kTimeout:
      return fail(Status(Code::kTimeout,
                         text +
                             ": NCCL was still at it (ncclInProgress) when the deadline passed; some other "
                             "rank may not have made this call"));
    case WaitEnd::kInterrupted: return fail(Status(Code::kInterrupted, text + ": interrupted"));
    case WaitEnd::kAborted:
      if (stop.load(std::memory_order_acquire)) return why_aborted();
      return fail(Status(Code::kAborted, text + ": this group's operations were ended"));
  }
  return Status::ok();
}

// Makes a call that waits for other ranks on a separate thread. The thread lives until the call has
// settled or the communicator is dead, because up to 2.25 NCCL keeps an operation in progress in
// thread-local memory of the thread that began it. If the context ends before the call has begun,
// the call is skipped. If it ends later, the thread stays inside the call and finally passes the
// call's return code to `late`. This object lives at least as long as the thread, so the call may
// write to its members.
Status CommunicatorCore::aside(std::string_view call, std::function<ReturnCode()> make, Late late,
                               const WaitContext& context) {
  enum class Stage : uint8_t { kWaits, kInside, kAnswered, kSettled, kUnsettled, kLeft, kNotMade };
  struct Aside {
    std::atomic<Stage> stage{Stage::kWaits};
    Status entered;
    ReturnCode answer = ReturnCode::kSuccess;  // set, like `entered`, before kAnswered
    bool moves(Stage from, Stage to) { return stage.compare_exchange_strong(from, to); }
  };
  const auto shared = std::make_shared<Aside>();
  const auto run = [shared, self = shared_from_this(), make = std::move(make), late = std::move(late)] {
    if (!shared->moves(Stage::kWaits, Stage::kInside)) return;
    const Result<std::shared_ptr<void>> entered = self->enter_thread();
    if (entered.is_ok()) shared->answer = make();
    shared->entered = entered.status();
    if (shared->moves(Stage::kInside, Stage::kAnswered)) shared->stage.wait(Stage::kAnswered);
    if (shared->stage.load() == Stage::kLeft && entered.is_ok() && late) late(shared->answer);
    while (shared->stage.load() != Stage::kSettled && self->state.load() != State::kDead)
      std::this_thread::sleep_for(kUnsettledPause);
  };
  left_inside = false;
  left_out = true;
  std::thread thread;
  PC_TRY(start_thread(thread, "pc-nccl", "starting a thread for " + std::string(call), run));
  const WaitEnd end =
      poll_until(*resources.clock, context, stop, [&] { return shared->stage.load() == Stage::kAnswered; });
  if (end != WaitEnd::kReady && shared->moves(Stage::kWaits, Stage::kNotMade))
    return thread.join(), ended(call, end);
  left_out = false;
  left_inside = end != WaitEnd::kReady;
  Status status = left_inside ? ended(call, end) : shared->entered;
  if (!left_inside) status = status.is_ok() ? outcome(call, shared->answer, context) : fail(status);
  const bool is_settled = !left_inside && (status.is_ok() || state.load() == State::kReady);
  shared->stage.store(left_inside ? Stage::kLeft : is_settled ? Stage::kSettled : Stage::kUnsettled);
  shared->stage.notify_one();
  is_settled ? thread.join() : thread.detach();
  return status;
}

// Returns the outcome of a call that NCCL has answered with `answer`.
Status CommunicatorCore::outcome(std::string_view call, ReturnCode answer, const WaitContext& context) {
  const bool accepted = answer == ReturnCode::kSuccess || answer == ReturnCode::kInProgress;
  if (!accepted) return refused(call, answer, context);
  if (handle == nullptr) return Status::ok();  // the call has destroyed the communicator
  PC_TRY(settle(call, answer, context));
  // Up to 2.25 ncclCommCount() completes what the thread of aside() has begun; the query in
  // settle() does not.
  int size_there = 0;
  const ReturnCode code = api().comm_count(handle, &size_there);
  return code == ReturnCode::kSuccess ? Status::ok() : fail(call_error(api(), handle, "ncclCommCount", code));
}

Status CommunicatorCore::settle(std::string_view call, ReturnCode code, const WaitContext& context) {
  ReturnCode question = ReturnCode::kSuccess;
  if (code == ReturnCode::kInProgress || code == ReturnCode::kSuccess) {
    const WaitEnd end = poll_until(*resources.clock, context, stop, [&] {
      question = api().comm_get_async_error(handle, &code);
      return question != ReturnCode::kSuccess || code != ReturnCode::kInProgress;
    });
    PC_TRY(ended(call, end));
  }
  if (question != ReturnCode::kSuccess)
    return fail(call_error(api(), handle, "ncclCommGetAsyncError", question));
  return code == ReturnCode::kSuccess ? Status::ok() : fail(call_error(api(), handle, call, code));
}

// Handles a call that NCCL refused at once. After ncclInvalidArgument the communicator may be
// unaffected; NCCL's asynchronous error shows whether it has failed.
Status CommunicatorCore::refused(std::string_view call, ReturnCode code, const WaitContext& context) {
  const Status why = call_error(api(), handle, call, code);
  if (code != ReturnCode::kInvalidArgument) return fail(why);
  ReturnCode now = ReturnCode::kSuccess;
  const ReturnCode question = api().comm_get_async_error(handle, &now);
  if (question == ReturnCode::kSuccess && now == ReturnCode::kSuccess) return why;
  if (question == ReturnCode::kSuccess && now == ReturnCode::kInProgress &&
      settle(call, now, context).is_ok())
    return why;
  return fail(why);
}

Status CommunicatorCore::find_place() {
  int rank_there = -1, size_there = 0;
  const ReturnCode first = api().comm_user_rank(handle, &rank_there);
  if (first != ReturnCode::kSuccess) return fail(call_error(api(), handle, "ncclCommUserRank", first));
  const ReturnCode second = api().comm_count(handle, &size_there);
  if (second != ReturnCode::kSuccess) return fail(call_error(api(), handle, "ncclCommCount", second));
  rank = rank_there;
  size = size_there;
  return Status::ok();
}

namespace {

// Locks the mutex, but waits only as long as the context allows, because the holder of the mutex
// may be stuck inside NCCL.
Result<std::unique_lock<std::mutex>> take(std::mutex& mutex, Clock& clock, const WaitContext& context,
                                          const std::atomic<bool>& stop) {
  std::unique_lock lock(mutex, std::defer_lock);
  switch (poll_until(clock, context, stop, [&] { return lock.try_lock(); })) {
    case WaitEnd::kReady: return lock;
    case WaitEnd::kTimeout:
      return Status(Code::kTimeout, "another call held the NCCL communicator until the deadline passed");
    case WaitEnd::kInterrupted: return Status(Code::kInterrupted, "interrupted");
    case WaitEnd::kAborted: break;
  }
  return Status(Code::kAborted, "the NCCL communicator was aborted");
}

}  // namespace

// Creates the non-blocking communicator with which the ranks rendezvous, so that a missing rank
// costs the other ranks no more than their deadline.
Result<std::unique_ptr<Communicator>> Communicator::join(const Resources& resources,
                                                         const Membership& membership, const Options& options,
                                                         const WaitContext& context) {
  const auto core = std::make_shared<CommunicatorCore>(resources, options);
  std::unique_ptr<Communicator> made(new Communicator(core));
  Status status;
  bool exists = false;
  {
    const std::lock_guard lock(core->issue);
    // With NCCL_COMM_BLOCKING=1 this call waits for all ranks.
    const auto begin = [core, membership,
                        config = config_for(*resources.api, core->name, options, Blocks::kNo)]() mutable {
      return core->api().comm_init_rank_config(&core->handle, membership.size, membership.id, membership.rank,
                                               &config);
    };
    const auto late = [core = core.get()](ReturnCode) {
      core->abort_child(core->handle);
      core->state.store(State::kDead);
    };
    status = core->aside("ncclCommInitRankConfig", begin, late, context);
    if (core->left_inside) {  // NCCL may still write the handle; then `late` aborts the communicator
      State failed = State::kFailed;
      core->state.compare_exchange_strong(failed, State::kLeaked);
      return status;
    }
    if (status.is_ok()) status = core->find_place();
    exists = core->handle != nullptr;
  }
  if (status.is_ok()) {
    core->state.store(State::kReady);
    return made;
  }
  if (!exists) core->state.store(State::kDead);
  return made->give_up(status);
}

// Aborts a communicator that was created by a call for which no thread waits any more.
void CommunicatorCore::abort_child(CommHandle& its) {
  if (CommHandle const child = std::exchange(its, nullptr); child != nullptr) (void)api().comm_abort(child);
}

// Aborts the communicator because of `why`, and returns `why`. A failure of the abort is only
// logged.
Status Communicator::give_up(const Status& why) {
  const Status aborted = abort(why);
  if (!aborted.is_ok()) core_->resources.log.warning(aborted.to_string());
  return why;
}

Result<std::unique_ptr<Communicator>> Communicator::init(const Resources& resources,
                                                         const Membership& membership, const Options& options,
                                                         const WaitContext& context) {
  if (membership.size < 1 || membership.rank < 0 || membership.rank >= membership.size) {
    return invalid_argument(rank_text(membership.rank) + " of " + std::to_string(membership.size) +
                            " is no rank of a communicator");
  }
  PC_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> joined,
                      join(resources, membership, options, context));
  Result<std::unique_ptr<Communicator>> made = joined->split(0, membership.rank, options, context);
  if (!made.is_ok()) return joined->give_up(made.status());
  // if closing fails, the joined communicator has been aborted; the child shares nothing with it
  const Status closed = joined->close(context);
  if (!closed.is_ok())
    resources.log.warning("what an NCCL communicator was split from was aborted: " + closed.to_string());
  return made;
}

Communicator::~Communicator() {
  if (core_->has_ended()) return;
  core_->resources.log.warning("an NCCL communicator of " + std::to_string(core_->size) + " ranks (" +
                               std::string(nccl::name_of(core_->state.load())) +
                               ") was neither closed nor aborted: it and its GPU memory are leaked");
  core_->kept = core_;
}

Rank Communicator::rank() const { return core_->rank; }
Rank Communicator::size() const { return core_->size; }
const Api& Communicator::api() const { return core_->api(); }
State Communicator::state() const { return core_->state.load(); }
Status Communicator::cause() const {
  const std::lock_guard lock(core_->cause_mutex);
  return core_->cause;
}

Status Communicator::grouped(const WaitContext& context, void (*calls)(void*, Issue&), void* each) {
  CommunicatorCore& core = *core_;
  PC_TRY(core.why_unusable());
  PC_ASSIGN_OR_RETURN(const auto lock, take(core.issue, *core.resources.clock, context, core.stop));
  PC_TRY(core.why_unusable());
  CommHandle const handle = core.handle;  // from here on an abort may take the handle from `core`
  core.may_be_stuck.store(true);
  if (core.stop.load()) return core.may_be_stuck.store(false), core.why_aborted();
  const ReturnCode start = core.api().group_start();
  if (start != ReturnCode::kSuccess) {
    core.may_be_stuck.store(false, std::memory_order_release);
    return core.stop.load() ? core.why_aborted() : core.refused("ncclGroupStart", start, context);
  }
  Issue issue(core.api(), handle, core.stop);
  if (issue.goes_on()) calls(each, issue);
  // also called if NCCL refused a call, because otherwise the group would stay open
  const ReturnCode end = core.api().group_end();
  core.may_be_stuck.store(false, std::memory_order_release);
  if (core.stop.load(std::memory_order_acquire)) return core.why_aborted();  // the handle may be invalid
  if (issue.refusal() != ReturnCode::kSuccess) return core.refused(issue.refused(), issue.refusal(), context);
  if (end != ReturnCode::kSuccess && end != ReturnCode::kInProgress)
    return core.refused("ncclGroupEnd", end, context);
  return core.settle("ncclGroupEnd", end, context);
}

Status Communicator::check() {
  CommunicatorCore& core = *core_;
  PC_TRY(core.why_unusable());
  const std::unique_lock lock(core.issue, std::try_to_lock);
  if (!lock.owns_lock()) return Status::ok();
  PC_TRY(core.why_unusable());
  ReturnCode now = ReturnCode::kSuccess;
  const ReturnCode question = core.api().comm_get_async_error(core.handle, &now);
  if (question != ReturnCode::kSuccess)
    return core.fail(call_error(core.api(), core.handle, "ncclCommGetAsyncError", question));
  if (now == ReturnCode::kSuccess || now == ReturnCode::kInProgress) return Status::ok();
  return core.fail(call_error(core.api(), core.handle, "an NCCL call that was issued earlier", now));
}

Result<RedOp> Communicator::make_scaled_sum(DataType dtype, const void* scalar, const WaitContext& context) {
  CommunicatorCore& core = *core_;
  PC_TRY(core.why_unusable());
  PC_ASSIGN_OR_RETURN(const auto lock, take(core.issue, *core.resources.clock, context, core.stop));
  PC_TRY(core.why_unusable());
  RedOp op = RedOp::kSum;
  // NCCL only reads the scalar
  const ReturnCode code = core.api().red_op_create_pre_mul_sum(&op, const_cast<void*>(scalar), dtype,
                                                               ScalarResidence::kHostImmediate, core.handle);
  if (code != ReturnCode::kSuccess) return core.refused("ncclRedOpCreatePreMulSum", code, context);
  core.ops.push_back(op);
  return op;
}

Status Communicator::destroy_op(RedOp op, const WaitContext& context) {
  CommunicatorCore& core = *core_;
  PC_TRY(core.why_unusable());
  PC_ASSIGN_OR_RETURN(const auto lock, take(core.issue, *core.resources.clock, context, core.stop));
  PC_TRY(core.why_unusable());
  const auto place = std::find(core.ops.begin(), core.ops.end(), op);
  if (place == core.ops.end()) return invalid_argument("that is no operation of this NCCL communicator");
  core.ops.erase(place);
  const ReturnCode code = core.api().red_op_destroy(op, core.handle);
  return code == ReturnCode::kSuccess ? Status::ok() : core.refused("ncclRedOpDestroy", code, context);
}

std::function<void(ReturnCode)> Communicator::abort_late(const std::shared_ptr<CommunicatorCore>& child) {
  return [child](ReturnCode answer) {
    if (answer == ReturnCode::kSuccess) child->abort_child(child->handle);
  };
}

Result<std::unique_ptr<Communicator>> Communicator::split(int color, int key, const Options& options,
                                                          const WaitContext& context) {
  CommunicatorCore& core = *core_;
  PC_TRY(core.why_unusable());
  PC_ASSIGN_OR_RETURN(const auto lock, take(core.issue, *core.resources.clock, context, core.stop));
  PC_TRY(core.why_unusable());
  const auto child = std::make_shared<CommunicatorCore>(core.resources, options);
  core.unsettled.push_back(child);
  const auto cut = [own = core_, parent = core.handle, child, color = color < 0 ? kNoColor : color, key,
                    config = config_for(core.api(), child->name, options, Blocks::kYes)]() mutable {
    if (own->stop.load()) return ReturnCode::kInternalError;  // an abort may have ended the parent by now
    return own->api().comm_split(parent, color, key, &child->handle, &config);
  };
  return adopt(child, "ncclCommSplit", core.aside("ncclCommSplit", cut, abort_late(child), context), context);
}

Result<std::unique_ptr<Communicator>> Communicator::shrink(std::span<const Rank> excluded,
                                                           const Options& options,
                                                           const WaitContext& context) {
  CommunicatorCore& core = *core_;
  if (!core.api().supports(Feature::kShrink)) {
    return Status(Code::kUnsupported, lacks(core.api(), Feature::kShrink).message() +
                                          ". Abort this communicator and init a new one without the dead");
  }
  if (excluded.empty()) return invalid_argument("shrink needs at least one rank to leave out");
  PC_ASSIGN_OR_RETURN(const auto lock, take(core.issue, *core.resources.clock, context, core.stop));
  const bool failed = core.state.load() == State::kFailed;
  if (!failed) PC_TRY(core.why_unusable());
  const auto child = std::make_shared<CommunicatorCore>(core.resources, options);
  core.unsettled.push_back(child);
  const auto cut = [own = core_, parent = core.handle, child, failed,
                    list = std::vector<int>(excluded.begin(), excluded.end()),  // NCCL sorts the list
                    config = config_for(core.api(), child->name, options, Blocks::kYes)]() mutable {
    if (own->stop.load()) return ReturnCode::kInternalError;  // as in split()
    return own->api().comm_shrink(parent, list.data(), static_cast<int>(list.size()), &child->handle, &config,
                                  failed ? kShrinkAbort : 0);
  };
  Result<std::unique_ptr<Communicator>> made =
      adopt(child, "ncclCommShrink", core.aside("ncclCommShrink", cut, abort_late(child), context), context);
  if (made.is_ok() || !failed) return made;
  return Status(Code::kUnsupported,
                "a communicator that has failed could not be shrunk: abort it and init a "
                "new one without the dead. " +
                    made.status().message());
}

// Returns the communicator that `call` has created from this one. `settled` is the outcome of
// `call`. Requires the issue mutex.
Result<std::unique_ptr<Communicator>> Communicator::adopt(const std::shared_ptr<CommunicatorCore>& child,
                                                          std::string_view call, const Status& settled,
                                                          const WaitContext& context) {
  PC_TRY(settled);
  core_->unsettled.pop_back();
  if (child->handle == nullptr) return std::unique_ptr<Communicator>();
  std::unique_ptr<Communicator> made(new Communicator(child));
  Status status;
  {
    const std::lock_guard lock(child->issue);
    status = child->settle(call, ReturnCode::kInProgress, context);
    if (status.is_ok()) status = child->find_place();
  }
  if (status.is_ok()) {
    child->state.store(State::kReady);
    return made;
  }
  return made->give_up(status);
}

// Requires the issue mutex.
Status CommunicatorCore::finalize(const WaitContext& context) {
  for (const RedOp op : std::exchange(ops, {})) (void)api().red_op_destroy(op, handle);
  const auto finalize = [api = resources.api, comm = handle] { return api->comm_finalize(comm); };
  PC_TRY(aside("ncclCommFinalize", finalize, {}, context));
  CommHandle const own = std::exchange(handle, nullptr);  // a concurrent abort finds no handle
  const auto destroy = [api = resources.api, own] { return api->comm_destroy(own); };
  const auto late = [this](ReturnCode) { state.store(State::kDead); };
  const Status destroyed = aside("ncclCommDestroy", destroy, late, context);
  if (left_out) handle = own;
  State failed = State::kFailed;
  if (left_inside) {
    state.compare_exchange_strong(failed, State::kLeaked);  // `late` sets kDead when NCCL returns
  } else if (handle == nullptr) {
    state.store(State::kDead);
  }
  return destroyed;
}

Status Communicator::close(const WaitContext& context) {
  CommunicatorCore& core = *core_;
  if (core.has_ended()) return Status::ok();
  Status status = core.why_unusable();
  if (status.is_ok()) {
    const Result<std::unique_lock<std::mutex>> lock =
        take(core.issue, *core.resources.clock, context, core.stop);
    status = lock.is_ok() ? core.why_unusable() : lock.status();
    State ready = State::kReady;
    if (status.is_ok() && core.state.compare_exchange_strong(ready, State::kFinalizing))
      status = core.finalize(context);
  }
  if (core.has_ended()) return status;
  const Status aborted = abort(status);
  return aborted.is_ok() ? status : aborted;
}

Status Communicator::abort(const Status& why) {
  Communicator* const self[] = {this};
  return abort_all(self, why);
}

}  // namespace pc::nccl
