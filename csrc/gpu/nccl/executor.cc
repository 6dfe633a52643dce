#include "gpu/nccl/executor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/io_vec.h"
#include "base/start_thread.h"
#include "gpu/cuda/copy.h"
#include "gpu/cuda/host_wait.h"
#include "gpu/nccl/collectives.h"

namespace pc::nccl {

struct Executor::Shared {
  Shared(const Gpu& gpu, std::unique_ptr<Communicator> made)
      : context(gpu.context),
        agreed(gpu.agreed),
        events(context),
        communicator(std::move(made)) {}
  const cuda::Context context;
  const std::shared_ptr<cuda::TimelineSemaphore> agreed;
  cuda::EventPool events;
  const std::unique_ptr<Communicator> communicator;
  // Set by an abort. From then on last_agreed, not `agreed`, shows which calls all ranks have made,
  // because the abort raises `agreed` for the other calls too.
  std::atomic<bool> refuses{false};
  uint32_t last_agreed = 0;  // written before `refuses` is set

  // held while a call queues its operations, so that operations of two calls are not mixed
  std::mutex launching;

  std::mutex mutex;
  std::deque<std::shared_ptr<Work>> running;  // guarded by mutex
};

namespace {

// Returns the floating-point output that a call writes on this rank, or an empty buffer if it
// writes none.
Buffer floats_from(const Request& request, Rank rank) {
  const Collective collective = request.collective;
  const bool is_root = rank == request.root;
  const bool gives = collective == Collective::kBroadcast                                     ? !is_root
                     : collective == Collective::kReduce || collective == Collective::kGather ? is_root
                                                                                              : true;
  const DType dtype = request.out.dtype;
  const bool is_float = dtype >= DType::kF16 && dtype <= DType::kF8E5M2;
  return gives && is_float ? request.out : Buffer();
}

}  // namespace

class Executor::Work final : public cuda::DeviceWork {
 public:
  Work(std::shared_ptr<Shared> shared, const cuda::DeviceCall& call)
      : shared_(std::move(shared)),
        keeps_(call.keeps),
        in_graph_(call.is_captured),
        number_(shared_->agreed == nullptr ? std::nullopt : call.number) {
    if (!number_) return;
    floats_ = floats_from(call.request, shared_->communicator->rank());
    if (floats_.list == nullptr) return;
    list_ = std::make_unique<const IoVec>(*floats_.list);
    floats_.list = list_.get();
  }

  Status precede(cuda::CUstream stream) override {
    PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, shared_->context.enter());
    PC_TRY(cuda::stream_waits(shared_->context.driver(), stream, end()));
    return hold(stream);
  }
  // Returns true if streams no longer wait for the call, because all ranks have made it and the
  // calls before it, or because an abort has refused it.
  bool lets_go_on() const { return !number_ || shared_->agreed->has_reached(*number_); }
  bool is_agreed() const {
    const bool goes_on = lets_go_on();
    if (!number_ || !shared_->refuses.load()) return goes_on;
    return static_cast<int32_t>(shared_->last_agreed - *number_) >= 0;
  }
  Status hold(cuda::CUstream stream) const {
    return lets_go_on() ? Status::ok() : shared_->agreed->wait_on(stream, *number_);
  }
  bool has_come_to_end() const {
    const Result<bool> end = reached();
    return !end.is_ok() || end.value();
  }
  const std::shared_ptr<const void>& keeps() const { return keeps_; }
  uint32_t number() const { return *number_; }
  // Makes `stream` wait for the end of the call and then fill the result with NaN. Stops queueing
  // once `is_given_up()` returns true.
  template <class IsGivenUp>
  Status fill_with_nan(cuda::CUstream stream, const IsGivenUp& is_given_up) const {
    const cuda::Driver& driver = shared_->context.driver();
    PC_TRY(cuda::stream_waits(driver, stream, end()));
    const Location result{floats_.data, floats_.list, 0};
    for (std::size_t begin = 0; begin < floats_.nbytes() && !is_given_up();) {
      const std::span<std::byte> piece = result.at(begin, floats_.nbytes() - begin);
      PC_TRY(cuda::fill_bytes(driver, reinterpret_cast<cuda::CUdeviceptr>(piece.data()), 0xff, piece.size(),
                              stream));
      begin += piece.size();
    }
    return Status::ok();
  }
  Result<WaitEnd> wait_on_host(const WaitContext& context) override {
    if (in_graph_)
      return Status(
          Code::kUnsupported,
          "this call is part of a CUDA graph and runs when that is launched: wait for the graph's stream");
    cuda::HostWait wait{context};
    wait.trouble = [this] { return shared_->communicator->check(); };
    PC_ASSIGN_OR_RETURN(const WaitEnd end, cuda::wait_on_host([this] { return ended(); }, wait));
    return end;
  }
  Result<WaitEnd> wait_until_let_go(const WaitContext& context) const {
    cuda::HostWait wait{context};
    wait.trouble = [this] { return shared_->communicator->check(); };
    const auto has_ended = [this]() -> Result<bool> {
      PC_ASSIGN_OR_RETURN(const bool end, ended());
      return end && lets_go_on();
    };
    return cuda::wait_on_host(has_ended, wait);
  }
  std::optional<Status> outcome() const override {
    if (in_graph_) return std::nullopt;
    const Result<bool> end = ended();
    return end.is_ok() && !end.value() ? std::nullopt : std::optional(end.status());
  }

  std::optional<Status> seen() const override {
    if (!let_go_.load(std::memory_order_acquire)) return std::nullopt;
    // An abort ends kernels too, but before that it changes the communicator's state. So an end in
    // state kReady is not the end of an aborted kernel.
    const bool is_well = reached_.load(std::memory_order_acquire) && is_agreed() &&
                         shared_->communicator->state() == State::kReady;
    return is_well ? Status::ok() : outcome();
  }
  bool in_graph() const override { return in_graph_; }

  // Returns true if the GPU no longer needs the call's arrays. Even if the call has failed, it must
  // first have ended on the GPU.
  bool has_let_go() const {
    // if streams still wait for the call, its result may yet be filled with NaN
    return lets_go_on() && has_come_to_end();
  }
  // Queries which of `works` have ended, and sets let_go_ for those. A query of the driver takes as
  // long as a launch and blocks other threads' driver calls. The works of one stream end in order,
  // so a binary search determines the state of many works by few queries.
  static void ask(const std::deque<std::shared_ptr<Work>>& works) {
    std::map<uint64_t, std::vector<Work*>> streams;
    for (const std::shared_ptr<Work>& each : works) {
      if (each->has_no_end()) continue;
      if (each->stream_) streams[*each->stream_].push_back(each.get());
      if (!each->stream_ && each->has_let_go()) each->let_go_ = true;
    }
    for (const auto& [stream, in_order] : streams) {
      auto end = std::partition_point(in_order.begin(), in_order.end(), [](const Work* each) {
        const Result<bool> reached = each->reached();
        return reached.is_ok() && reached.value();
      });
      for (auto each = in_order.begin(); each != end; ++each) {
        (*each)->reached_ = true;
        if ((*each)->lets_go_on()) (*each)->let_go_ = true;
      }
      // A work for which the query fails counts as ended. The error says nothing about later works,
      // so each is queried until one has not ended.
      for (; end != in_order.end() && (*end)->has_let_go(); ++end) (*end)->let_go_ = true;
    }
  }
  bool let_go() const { return let_go_; }  // as of the last ask()
  void issues() { is_issued_ = true; }
  bool is_issued() const { return is_issued_; }
  // Returns true if the end of the call was not recorded, because the communicator had failed. Then
  // the arrays that the work keeps are never released.
  bool has_no_end() const { return !is_recorded_; }
  void keep_nothing() { keeps_ = nullptr; }

  // Called by launch() before the work is shared with other threads.
  Status take_events() {
    // an event recorded into a graph cannot be queried afterwards, so it must not return to the
    // pool
    if (in_graph_) {
      PC_ASSIGN_OR_RETURN(cuda::Event event, cuda::Event::create(shared_->context));
      own_.emplace(std::move(event));
      return Status::ok();
    }
    PC_ASSIGN_OR_RETURN(cuda::EventPool::Lease event, shared_->events.take());
    lease_.emplace(std::move(event));
    return Status::ok();
  }
  cuda::CUevent end() const { return lease_ ? lease_->get() : own_->get(); }
  Status record_end(cuda::CUstream on) {
    PC_TRY(cuda::record(shared_->context.driver(), end(), on));
    is_recorded_ = true;
    if (!in_graph_) stream_ = cuda::id_of(shared_->context.driver(), on);
    return Status::ok();
  }

 private:
  // Returns true if the call has ended successfully, false if it has not ended, and otherwise its
  // error. An aborted kernel ends too, so the communicator is checked as well.
  Result<bool> ended() const {
    // during an abort the driver may block, and its result would be meaningless
    if (shared_->communicator->state() != State::kReady) PC_TRY(shared_->communicator->check());
    PC_ASSIGN_OR_RETURN(const bool end, reached());
    PC_TRY(shared_->communicator->check());
    if (is_agreed()) return end;
    if (!shared_->refuses.load()) return false;
    return Status(Code::kAborted, "not all ranks are known to have made this call");
  }
  Result<bool> reached() const {
    if (has_no_end()) return false;  // the driver would report an unrecorded event as reached
    if (reached_.load(std::memory_order_acquire)) return true;
    PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, shared_->context.enter());
    PC_ASSIGN_OR_RETURN(const bool now, cuda::is_reached(shared_->context.driver(), end()));
    if (now) reached_.store(true, std::memory_order_release);
    return now;
  }

  const std::shared_ptr<Shared> shared_;
  std::shared_ptr<const void> keeps_;  // written by the thread that removes the work from Shared::running
  const bool in_graph_;
  const std::optional<uint32_t> number_;  // none: streams do not wait until all ranks have made the call
  Buffer floats_;                         // its floating-point results, which an abort fills with NaN
  std::unique_ptr<const IoVec> list_;
  bool is_issued_ = false;    // NCCL may use the arrays
  bool is_recorded_ = false;  // end() has been recorded
  // id of the stream on which end() is recorded; none: the work is queried by itself
  std::optional<uint64_t> stream_;
  mutable std::atomic<bool> reached_{false};  // end() has been reached; not queried again once true
  std::atomic<bool> let_go_{false};
  std::optional<cuda::EventPool::Lease> lease_;
  std::optional<cuda::Event> own_;
};

Result<Executor::Gpu> Executor::Gpu::take(const cuda::Context& context,
                                          std::shared_ptr<cuda::SemaphorePool> semaphores) {
  PC_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::create(context));
  PC_ASSIGN_OR_RETURN(cuda::Stream graph_stream, cuda::Stream::create(context));
  PC_ASSIGN_OR_RETURN(cuda::Stream refusing_stream, cuda::Stream::create(context));
  std::shared_ptr<cuda::TimelineSemaphore> agreed;
  if (semaphores != nullptr) {
    PC_ASSIGN_OR_RETURN(agreed, semaphores->take(context));
  }
  if (agreed != nullptr) {
    PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, context.enter());
    PC_TRY(agreed->warm_up(refusing_stream.get()));
  }
  return Gpu{context,
             std::move(stream),
             std::move(graph_stream),
             std::move(refusing_stream),
             std::move(semaphores),
             std::move(agreed)};
}

Executor::Executor(Gpu gpu, std::unique_ptr<Communicator> communicator, std::shared_ptr<Abandoned> abandoned)
    : shared_(std::make_shared<Shared>(gpu, std::move(communicator))),
      gpu_(std::make_unique<Gpu>(std::move(gpu))),
      abandoned_(std::move(abandoned)) {}

Status Executor::can(const Request& request) const {
  PC_TRY(can_issue(request));
  return can_issue_to(*shared_->communicator, request);
}

Status Executor::ready(cuda::DeviceCall& call) {
  PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, shared_->context.enter());
  PC_ASSIGN_OR_RETURN(call.is_captured,
                      cuda::is_capturing(shared_->context.driver(), cuda::stream_of(call.request)));
  // Obtains all resources before other ranks are informed of the call, so that a full GPU fails
  // this call and not the group.
  if (!call.is_captured) PC_TRY(shared_->events.reserve(call.on_caller_stream ? 1 : 2));
  if (call.request.collective == Collective::kBarrier) PC_TRY(barrier_word(call.is_captured).status());
  return Status::ok();
}

std::shared_ptr<cuda::TimelineSemaphore> Executor::agreed() const { return shared_->agreed; }

// The word is allocated for the first barrier. Freeing memory waits for the whole GPU, so groups
// without barriers should not allocate any.
Result<void*> Executor::barrier_word(bool is_captured) {
  if (!gpu_->word) {
    if (is_captured)
      return Status(Code::kInvalidArgument,
                    "the first barrier of a group on its GPUs cannot go into a CUDA graph");
    PC_ASSIGN_OR_RETURN(cuda::DeviceMemory word, cuda::DeviceMemory::allocate(shared_->context, 4));
    gpu_->word = std::make_unique<cuda::DeviceMemory>(std::move(word));
  }
  return reinterpret_cast<void*>(gpu_->word->at());
}

Result<std::shared_ptr<cuda::DeviceWork>> Executor::launch(const cuda::DeviceCall& call,
                                                           const WaitContext& context) {
  PC_TRY(can(call.request));
  PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, shared_->context.enter());
  const auto work = std::make_shared<Work>(shared_, call);
  PC_TRY(work->take_events());
  const std::lock_guard in_one_go(shared_->launching);
  const Status queued = queue(call, *work, context);
  // Operations that have been queued may use the arrays, even if queueing the rest has failed.
  if (!call.is_captured && work->is_issued()) {
    const std::lock_guard lock(shared_->mutex);
    shared_->running.push_back(work);
  }
  PC_TRY(queued);
  return std::shared_ptr<cuda::DeviceWork>(work);
}

Status Executor::queue(const cuda::DeviceCall& call, Work& work, const WaitContext& context) {
  const bool captured = call.is_captured;
  const cuda::Driver& driver = shared_->context.driver();
  const cuda::CUstream theirs = cuda::stream_of(call.request);
  // A stream that waits for a captured stream is captured too, until that capture ends. So captured
  // calls use a stream of their own.
  const cuda::CUstream side_stream = (captured ? gpu_->graph_stream : gpu_->stream).get();
  const cuda::CUstream ours = call.on_caller_stream ? theirs : side_stream;
  if (!call.on_caller_stream) {
    // Both events may be released at once, because queued waits remain valid.
    std::optional<cuda::Event> of_graph;
    std::optional<cuda::EventPool::Lease> lease;
    if (captured) {
      PC_ASSIGN_OR_RETURN(cuda::Event event, cuda::Event::create(shared_->context));
      of_graph.emplace(std::move(event));
    } else {
      PC_ASSIGN_OR_RETURN(cuda::EventPool::Lease event, shared_->events.take());
      lease.emplace(std::move(event));
    }
    const cuda::CUevent begin = captured ? of_graph->get() : lease->get();
    PC_TRY(cuda::record(driver, begin, theirs));
    PC_TRY(cuda::stream_waits(driver, ours, begin));
  }
  Request request = call.request;
  request.stream = ours;
  void* word = nullptr;
  if (request.collective == Collective::kBarrier) {
    PC_ASSIGN_OR_RETURN(word, barrier_word(captured));
  }
  work.issues();
  const Status issued = issue(*shared_->communicator, request, word, context);
  // In an abort the driver may block, so it is not called to record the end. The work then has no
  // end (has_no_end()).
  if (shared_->communicator->state() != State::kReady)
    return issued.is_ok() ? shared_->communicator->check() : issued;
  const Status recorded = work.record_end(ours);
  PC_TRY(issued);
  PC_TRY(recorded);
  return call.on_caller_stream ? work.hold(ours) : Status::ok();
}

Status Executor::poll_all() {
  let_go_of_ended();
  return shared_->communicator->check();
}

void Executor::let_go_of_ended() {
  // Queries without the lock, since the driver may block while a thread is stuck inside NCCL, and
  // other threads launch calls meanwhile.
  Work::ask([this] {
    const std::lock_guard lock(shared_->mutex);
    return shared_->running;
  }());
  // destroyed without the lock, because destroying the arrays that they keep may run any code
  std::vector<std::shared_ptr<Work>> ended;
  {
    const std::lock_guard lock(shared_->mutex);
    std::deque<std::shared_ptr<Work>>& running = shared_->running;
    const auto gone = std::stable_partition(
        running.begin(), running.end(), [](const std::shared_ptr<Work>& each) { return !each->let_go(); });
    ended.assign(std::make_move_iterator(gone), std::make_move_iterator(running.end()));
    running.erase(gone, running.end());
  }
  for (const std::shared_ptr<Work>& each : ended) each->keep_nothing();
}

// Fills with NaN the results of calls that not all ranks are known to have made, and then releases
// the streams that wait for these calls. It runs on a thread of its own, since the driver may
// block. It lives until the last stream is released, and keeps the arrays until then.
struct Executor::Refusal : std::enable_shared_from_this<Refusal> {
  Refusal(std::shared_ptr<Shared> shared_, std::vector<std::shared_ptr<Work>> works_, cuda::CUstream stream_,
          uint32_t last_, std::shared_ptr<Abandoned> abandoned_)
      : shared(std::move(shared_)),
        works(std::move(works_)),
        stream(stream_),
        last(last_),
        abandoned(std::move(abandoned_)) {
    for (const std::shared_ptr<Work>& each : works) keeps.push_back(each->keeps());
  }
  void run() {
    const Status filled = queue();
    bool is_queued = false;
    {
      const std::lock_guard lock(mutex);
      queued = filled;
      is_queued = filled.is_ok() && !given_up;
    }
    changed.notify_all();
    if (is_queued && ends() && !is_given_up()) {
      keeps.clear();
    } else {
      let_streams_go();
      std::exchange(abandoned, nullptr)->add(shared_from_this());  // the GPU may still write to the arrays
    }
    const std::lock_guard lock(mutex);
    is_over = true;
    changed.notify_all();
  }
  // Returns true once everything has been queued. Returns false if that fails or takes longer than
  // `wait_limit`; then nothing more is queued, except by a driver call in progress.
  bool is_queued_within(std::chrono::milliseconds wait_limit) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, wait_limit, [this] { return queued.has_value(); });
    given_up = !queued || !queued->is_ok();
    return !given_up;
  }
  // Returns true if run() has ended within `wait_limit`. If the driver blocks run(), the caller can
  // still release the streams by a store to the semaphore.
  bool is_over_within(std::chrono::milliseconds wait_limit) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, wait_limit, [this] { return is_over; });
  }
  void give_up() {
    const std::lock_guard lock(mutex);
    given_up = true;
  }

 private:
  Status queue() const {
    PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, shared->context.enter());
    const Status filled = fill();
    const Status signalled = shared->agreed->signal_on(stream, last);  // also after a failed fill
    return filled.is_ok() ? signalled : filled;
  }
  // Fills and signals call by call, in their order. A call may be queued on a stream behind the
  // wait for the previous call; then it can end only after the signal for the previous call.
  Status fill() const {
    for (const std::shared_ptr<Work>& each : works) {
      if (is_given_up()) break;
      // If the driver refuses this fill, the other results are still filled.
      (void)each->fill_with_nan(stream, [this] { return is_given_up(); });
      if (is_given_up()) break;
      PC_TRY(shared->agreed->signal_on(stream, each->number()));
    }
    return Status::ok();
  }
  // Returns true once the last signal has been executed. Returns false if that does not happen in
  // time. The reason may be that the GPU runs the waiting streams and this stream in a single
  // queue, in which it never reaches the fill.
  bool ends() const {
    constexpr std::chrono::milliseconds kWaitLimit{1'000}, kLongestNap{100};
    std::chrono::milliseconds nap{1}, overdue{0};
    while (overdue < kWaitLimit) {
      if (shared->agreed->has_reached(last)) return true;
      std::this_thread::sleep_for(nap);
      const auto next =
          std::ranges::find_if(works, [](const std::shared_ptr<Work>& each) { return !each->lets_go_on(); });
      overdue =
          next == works.end() || (*next)->has_come_to_end() ? overdue + nap : std::chrono::milliseconds(0);
      nap = std::min(2 * nap, kLongestNap);
    }
    return false;
  }
  // Ensures that no stream waits forever. It repeats the signal for a while, because the GPU may
  // still execute a queued write of a smaller number.
  void let_streams_go() const {
    constexpr std::chrono::milliseconds kNap{10};
    for (int i = 0; i < 100; ++i, std::this_thread::sleep_for(kNap)) shared->agreed->signal(last);
  }
  bool is_given_up() const {
    const std::lock_guard lock(mutex);
    return given_up;
  }

  const std::shared_ptr<Shared> shared;
  const std::vector<std::shared_ptr<Work>> works;
  // the arrays of `works`, kept even if the works release them
  std::vector<std::shared_ptr<const void>> keeps;
  const cuda::CUstream stream;
  const uint32_t last;  // number of the last call that has begun
  std::shared_ptr<Abandoned> abandoned;
  mutable std::mutex mutex;  // guards the members below
  std::condition_variable changed;
  std::optional<Status> queued;
  bool given_up = false, is_over = false;
};

void Executor::abort(const Status& why, uint32_t last) {
  // After close(), or without a semaphore, no stream waits.
  if (shared_->agreed == nullptr || shared_->communicator->state() == State::kDead)
    return (void)shared_->communicator->abort(why);
  shared_->last_agreed = shared_->agreed->value();
  shared_->refuses = true;
  // the calls with results to be filled; a call that is being launched returns the error itself
  std::vector<std::shared_ptr<Work>> works;
  {
    const std::lock_guard lock(shared_->mutex);
    std::ranges::copy_if(shared_->running, std::back_inserter(works), [](const std::shared_ptr<Work>& each) {
      return !each->lets_go_on() && !each->has_no_end();
    });
  }
  if (works.empty()) {
    shared_->agreed->signal(last);
    return (void)shared_->communicator->abort(why);
  }
  const auto refusal =
      std::make_shared<Refusal>(shared_, std::move(works), gpu_->refusing_stream.get(), last, abandoned_);
  refuse(refusal, last, why);
}

// Queues the fill before the abort: the abort frees memory, and for that the driver may wait until
// all streams have finished. If the fill cannot be queued, releases the streams before the abort,
// because the driver may be blocked by a launch that waits for them.
void Executor::refuse(const std::shared_ptr<Refusal>& refusal, uint32_t last, const Status& why) {
  // kFilling exceeds the limit in Refusal::ends()
  constexpr std::chrono::milliseconds kQueueing{100}, kFilling{3'000};
  refusal_ = refusal;
  const Status started = start_thread(refusing_, "pc-gpu-refuse", "filling refused results with NaN",
                                      [refusal] { refusal->run(); });
  const bool fills = started.is_ok() && refusal->is_queued_within(kQueueing);
  if (!fills) shared_->agreed->signal(last);
  (void)shared_->communicator->abort(why);
  if (!fills || refusal->is_over_within(kFilling)) return;
  refusal->give_up();
  shared_->agreed->signal(last);
}

Executor::~Executor() {
  constexpr std::chrono::milliseconds kLastFill{100};
  if (refusing_.joinable() && refusal_->is_over_within(kLastFill)) refusing_.join();
  const bool is_refusing = refusing_.joinable();  // if true, the thread uses a stream of gpu_
  if (is_refusing) refusing_.detach();
  let_go_of_ended();
  std::deque<std::shared_ptr<Work>> running;
  {
    const std::lock_guard lock(shared_->mutex);
    running.swap(shared_->running);
  }
  // Freeing memory waits for the GPU. A kernel there may wait for a rank that never arrives, or a
  // call may wait for work that never produces its array. So the resources are abandoned instead.
  if (is_refusing || !running.empty() || shared_->communicator->state() != State::kDead)
    abandoned_->add(
        std::make_shared<const std::pair<std::unique_ptr<Gpu>, std::deque<std::shared_ptr<Work>>>>(
            std::move(gpu_), std::move(running)));
}

Status Executor::wait_for_all(const WaitContext& context) {
  for (;;) {
    let_go_of_ended();
    std::shared_ptr<Work> first;  // all running works were launched after it
    {
      const std::lock_guard lock(shared_->mutex);
      if (shared_->running.empty()) return Status::ok();
      first = shared_->running.front();
    }
    const Result<WaitEnd> end = first->wait_until_let_go(context);
    PC_TRY(end.status());
    if (end.value() != WaitEnd::kReady)
      return Status(end.value() == WaitEnd::kInterrupted ? Code::kInterrupted : Code::kTimeout,
                    "a call on the GPU has not ended, so its communicator can be neither closed nor split");
  }
}

Status Executor::close(const WaitContext& context) {
  PC_TRY(wait_for_all(context));
  PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, shared_->context.enter());
  return shared_->communicator->close(context);
}

// Waits for all calls, because NCCL must not have operations in progress on a communicator that is
// split.
Result<std::unique_ptr<cuda::DeviceExecutor>> Executor::split(int color, int key,
                                                              const WaitContext& context) {
  PC_TRY(wait_for_all(context));
  PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, shared_->context.enter());
  PC_ASSIGN_OR_RETURN(Gpu gpu, Gpu::take(shared_->context, gpu_->semaphores));
  PC_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> made,
                      shared_->communicator->split(color, key, {}, context));
  std::unique_ptr<cuda::DeviceExecutor> executor;
  if (made != nullptr) executor = std::make_unique<Executor>(std::move(gpu), std::move(made), abandoned_);
  return executor;
}

std::size_t Executor::running() const {
  const std::lock_guard lock(shared_->mutex);
  return static_cast<std::size_t>(std::ranges::count_if(
      shared_->running, [](const std::shared_ptr<Work>& each) { return !each->has_no_end(); }));
}

}  // namespace pc::nccl
