#include "gpu/ipc/ipc_executor.h"

#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <span>
#include <utility>

#include "base/start_thread.h"
#include "comm/gather_plain.h"
#include "failure/descriptor.h"
#include "gpu/cuda/event.h"
#include "gpu/cuda/host_wait.h"
#include "gpu/cuda/stream.h"
#include "gpu/staging/device_arguments.h"

namespace pc {
namespace {

// How long the thread still waits after a call's deadline. At the deadline, the user's own group
// reports the rank that has not made the call, or a rank reports that its own array was not made in
// time. This delay lets the other ranks receive these reports before the thread fails.
constexpr double kAfterwards_s = 0.5;

}  // namespace

// What each rank sends to the other ranks about its arrays in a call. Plain data, exchanged as
// bytes by ranks of one version of this library.
struct IpcExecutor::Card {
  uint64_t call = 0;  // a digest of the arguments that must be equal on all ranks
  PeerArray in, out;
  // Set for an alltoall with uneven parts.
  uint64_t counts[device::kMostSources] = {}, recv_counts[device::kMostSources] = {};
  uint32_t is_uneven = 0;
  // not 0: other ranks cannot access this rank's arrays, so all ranks run the call through the host
  uint32_t out_of_reach = 0;
};

struct IpcExecutor::Gpu {
  Gpu(const cuda::Context& context, cuda::Stream made, IpcMemory peers, cuda::DeviceKernels steps)
      : stream(std::move(made)),
        events(context),
        memory(std::move(peers)),
        scratch(context),
        device_kernels(std::move(steps)) {}
  cuda::Stream stream;
  cuda::EventPool events;
  IpcMemory memory;
  IpcScratch scratch;
  cuda::DeviceKernels device_kernels;
  std::shared_ptr<StagedCalls> staged;  // created for the first call that runs through the host
  std::vector<std::shared_ptr<const void>> kept =
      {};  // arrays of a failed call that other ranks may still use
};

class IpcExecutor::Work final : public cuda::DeviceWork {
 public:
  Work(const cuda::DeviceCall& call, Deadline deadline, cuda::EventPool::Lease begin)
      : deadline_(deadline),
        request_(call.request),
        counts_(call.request.counts.begin(), call.request.counts.end()),
        recv_counts_(call.request.recv_counts.begin(), call.request.recv_counts.end()),
        keeps_(call.keeps),
        begin_(std::move(begin)) {
    if (request_.in.list != nullptr) keep(in_list_, request_.in.list);
    if (request_.out.list == call.request.in.list) {
      request_.out.list = request_.in.list;
    } else if (request_.out.list != nullptr) {
      keep(out_list_, request_.out.list);
    }
    request_.counts = counts_;
    request_.recv_counts = recv_counts_;
    request_.label = {};
  }
  Status precede(cuda::CUstream /*stream*/) override {
    PC_ASSIGN_OR_RETURN(const WaitEnd end, wait_on_host({Deadline(TimePoint::max())}));
    return end == WaitEnd::kReady ? Status::ok() : Status(Code::kInterrupted, "interrupted");
  }
  Result<WaitEnd> wait_on_host(const WaitContext& context) override {
    const auto has_ended = [this]() -> Result<bool> {
      const std::optional<Status> how = outcome();
      return how && !how->is_ok() ? Result<bool>(*how) : Result<bool>(how.has_value());
    };
    cuda::HostWait wait{context};
    wait.nap = [this](std::chrono::microseconds nap) {
      std::unique_lock lock(mutex_);
      ended_.wait_for(lock, nap, [this] { return outcome_.has_value(); });
    };
    return cuda::wait_on_host(has_ended, wait);
  }
  std::optional<Status> outcome() const override {
    const std::lock_guard lock(mutex_);
    return outcome_;
  }
  std::optional<Status> seen() const override { return outcome(); }
  bool in_graph() const override { return false; }
  bool is_refused() const override { return refused_; }
  bool give_up() override {
    Stage waiting = Stage::kWaiting;
    return stage_.compare_exchange_strong(waiting, Stage::kGivenUp) || waiting == Stage::kGivenUp;
  }

 private:
  enum class Stage : uint8_t { kWaiting, kBegun, kGivenUp };
  // After it returns true, the call cannot be given up. Returns false if it has been given up.
  bool begin() {
    Stage waiting = Stage::kWaiting;
    return stage_.compare_exchange_strong(waiting, Stage::kBegun);
  }

  friend class IpcExecutor;
  // Copies the list, because the caller may destroy the original before the call ends.
  static void keep(std::unique_ptr<const IoVec>& kept, const IoVec*& list) {
    kept = std::make_unique<const IoVec>(*list);
    list = kept.get();
  }
  void end(const Status& how) {
    {
      const std::lock_guard lock(mutex_);
      outcome_ = how;
    }
    ended_.notify_all();
  }
  const Deadline deadline_;
  Request request_;
  std::unique_ptr<const IoVec> in_list_, out_list_;
  const std::vector<uint64_t> counts_, recv_counts_;
  std::shared_ptr<const void> keeps_;   // written only by the executor's thread
  const cuda::EventPool::Lease begin_;  // recorded after the work that makes the call's arrays
  std::atomic<Stage> stage_{Stage::kWaiting};
  std::atomic<bool> refused_{false};
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable ended_;
  std::optional<Status> outcome_;
};

Result<std::unique_ptr<cuda::DeviceExecutor>> IpcExecutor::create(const cuda::Context& context, Parts parts) {
  PC_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::create(context));
  auto gpu = std::make_unique<Gpu>(context, std::move(stream), std::move(parts.memory),
                                   std::move(parts.device_kernels));
  std::unique_ptr<IpcExecutor> made(new IpcExecutor(context, std::move(parts), std::move(gpu)));
  PC_TRY(start_thread(made->thread_, "pc-gpu-peers", "starting the thread that moves arrays between peers",
                      [raw = made.get()] { raw->run(); }));
  return std::unique_ptr<cuda::DeviceExecutor>(std::move(made));
}

IpcExecutor::IpcExecutor(const cuda::Context& context, Parts parts, std::unique_ptr<Gpu> gpu)
    : context_(context),
      can_reduce_(std::move(parts.can_reduce)),
      workers_(std::move(parts.workers)),
      control_group_(*parts.control_group),
      abandoned_(std::move(parts.abandoned)),
      log_(parts.log),
      gpu_(std::move(gpu)) {}

IpcExecutor::~IpcExecutor() {
  abort(Status(Code::kNotInitialized, "the group of this call was closed"), 0);
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  // Freeing gpu_ would wait for the GPU, or release memory to which a late rank still writes.
  if (is_busy_ || in_use_) abandoned_->add(std::shared_ptr<const Gpu>(std::move(gpu_)));
}

double IpcExecutor::grace_s() const { return 2 * kAfterwards_s; }

Status IpcExecutor::can(const Request& request) const {
  if (!moves_data(request.collective))
    return Status(Code::kUnsupported, "a barrier moves nothing on the GPU");
  return reduces(request.collective) ? can_reduce_ : Status::ok();
}

Status IpcExecutor::ready(cuda::DeviceCall& call) {
  PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, context_.enter());
  PC_ASSIGN_OR_RETURN(const bool captured,
                      cuda::is_capturing(context_.driver(), cuda::stream_of(call.request)));
  if (!captured) return gpu_->events.reserve(1);
  return Status(
      Code::kUnsupported,
      "ranks that share a GPU synchronize on the host in every call, so it cannot be captured into a CUDA "
      "graph: make it outside");
}

Result<std::shared_ptr<cuda::DeviceWork>> IpcExecutor::launch(const cuda::DeviceCall& call,
                                                              const WaitContext& context) {
  PC_TRY(can(call.request));
  PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, context_.enter());
  PC_ASSIGN_OR_RETURN(cuda::EventPool::Lease begin, gpu_->events.take());
  PC_TRY(cuda::record(context_.driver(), begin.get(), cuda::stream_of(call.request)));
  const auto work = std::make_shared<Work>(call, context.deadline, std::move(begin));
  {
    const std::lock_guard lock(mutex_);
    PC_TRY(failure_);
    queue_.push_back(work);
  }
  changed_.notify_all();
  return std::shared_ptr<cuda::DeviceWork>(work);
}

std::size_t IpcExecutor::running() const {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

void IpcExecutor::abort(const Status& why, uint32_t /*last*/) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.is_ok()) failure_ = why;
  }
  control_group_.abort(why);
  changed_.notify_all();
}

Status IpcExecutor::close(const WaitContext& context) {
  const auto is_idle = [this]() -> Result<bool> { return running() == 0; };
  PC_ASSIGN_OR_RETURN(const WaitEnd end, cuda::wait_on_host(is_idle, {context}));
  if (end == WaitEnd::kReady) return Status::ok();
  return Status(Code::kTimeout, "a call between ranks that share a GPU has not ended: abort it");
}

void IpcExecutor::run() {
  (void)prctl(PR_SET_TIMERSLACK, 1UL);  // without this, each sleep is 50 us longer
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::shared_ptr<Work> work = queue_.front();
    Status how = failure_;
    lock.unlock();
    if (how.is_ok()) how = make(*work);
    lock.lock();
    if (!failure_.is_ok() && !how.is_ok()) {
      how = failure_;
      work->refused_ = false;
    }
    if (failure_.is_ok() && !work->is_refused()) failure_ = how;
    // Taken from the work before a waiter is notified; released at the end of this iteration.
    std::shared_ptr<const void> keeps = std::exchange(work->keeps_, nullptr);
    if (in_use_) gpu_->kept.push_back(std::move(keeps));
    work->end(how);
    queue_.pop_front();
  }
}

Status IpcExecutor::make(Work& work) {
  const Request& request = work.request_;
  PC_TRY(until_reached(work.begin_.get(), control_group_.waiting_until(work.deadline_),
                       "what makes its array has not ended on the GPU"));
  const Deadline deadline = Deadline::after(kAfterwards_s, work.deadline_.when());
  const WaitContext context = control_group_.waiting_until(deadline);
  const bool is_reached = gpu_->memory.shows(request.in) && gpu_->memory.shows(request.out);
  Request within_reach = is_reached ? request : Request();
  if (!is_reached) {
    PC_TRY(queue(context, [&](cuda::CUstream stream) {
      const Result<Request> made = gpu_->scratch.substitute(request, gpu_->memory, stream);
      if (made.is_ok()) within_reach = made.value();
      return Status::ok();  // an error leaves within_reach empty, and the card reports this
    }));
  }
  PC_ASSIGN_OR_RETURN(const std::vector<Card> cards, exchange(card_of(request, within_reach), deadline));
  const auto out_of_reach =
      std::find_if(cards.begin(), cards.end(), [](const Card& card) { return card.out_of_reach != 0; });
  // A rank may give up the call after it has sent its card. So each rank first makes this
  // impossible for itself, and then all ranks confirm by a barrier that they have entered the call.
  if (!work.begin()) return Status(Code::kAborted, "the call was interrupted before all ranks were in it");
  in_use_ = true;
  PC_TRY(barrier("all ranks are in a call between GPUs", deadline));
  if (out_of_reach != cards.end()) {
    if (control_group_.rank() == 0 && !std::exchange(warned_, true))
      log_.warning("a call of ranks that share a GPU goes through the host: rank " +
                   std::to_string(out_of_reach - cards.begin()) +
                   " has no memory there that its peers reach");
    PC_ASSIGN_OR_RETURN(const std::string lack, lack_on_host(work, deadline));
    if (!lack.empty()) {
      gpu_->memory.let_go();
      in_use_ = false;
      work.refused_ = true;
      return Status(Code::kSystem, lack);
    }
    PC_TRY(stage(work));
  } else {
    PC_TRY(move(request, cards, context));
    PC_TRY(barrier("all have moved arrays on the GPU", deadline));
    if (!is_reached) {
      PC_TRY(queue(context, [&](cuda::CUstream stream) {
        return gpu_->scratch.give_back(request, within_reach, control_group_.rank(), stream);
      }));
    }
  }
  gpu_->memory.let_go();
  in_use_ = false;
  return Status::ok();
}

// Waits until the GPU has done the work that `what` queues.
Status IpcExecutor::queue(const WaitContext& context, const std::function<Status(cuda::CUstream)>& what) {
  PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, context_.enter());
  PC_ASSIGN_OR_RETURN(const cuda::EventPool::Lease end, gpu_->events.take());
  is_busy_ = true;
  PC_TRY(what(gpu_->stream.get()));
  PC_TRY(cuda::record(context_.driver(), end.get(), gpu_->stream.get()));
  PC_TRY(until_reached(end.get(), context, "the GPU has not moved the arrays"));
  is_busy_ = false;
  return Status::ok();
}

Status IpcExecutor::move(const Request& request, const std::vector<Card>& cards, const WaitContext& context) {
  if (workers_[static_cast<std::size_t>(control_group_.rank())] != control_group_.rank()) return Status::ok();
  std::vector<IpcArrays> arrays;
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const Card& card = cards[rank];
    PC_ASSIGN_OR_RETURN(const std::byte* const in, gpu_->memory.reach(static_cast<Rank>(rank), card.in));
    PC_ASSIGN_OR_RETURN(std::byte* const out, gpu_->memory.reach(static_cast<Rank>(rank), card.out));
    arrays.push_back({in, out});
    if (card.is_uneven == 0) continue;
    arrays.back().counts = std::span(card.counts).first(cards.size());
    arrays.back().recv_counts = std::span(card.recv_counts).first(cards.size());
  }
  const DType dtype = elements_of(request, control_group_.size()).dtype;
  // Opening may have taken long. If the call has failed meanwhile, the rank that failed needs its
  // arrays back.
  PC_TRY(control_group_.alive());
  if (context.deadline.expired()) return Status(Code::kTimeout, "peers' arrays could not be opened in time");
  return queue(context, [&](cuda::CUstream stream) -> Status {
    for (const IpcStep& move : ipc_steps(request, control_group_.rank(), workers_, arrays)) {
      const std::vector<const void*> from(move.from.begin(), move.from.end());
      const std::vector<void*> to(move.to.begin(), move.to.end());
      PC_TRY(move.reduces ? gpu_->device_kernels.reduce({from, to, move.count, dtype, request.op}, stream)
                          : gpu_->device_kernels.copy(to, from[0], move.count * size_of(dtype), stream));
    }
    return Status::ok();
  });
}

Status IpcExecutor::until_reached(cuda::CUevent event, const WaitContext& context, const char* what) {
  PC_ASSIGN_OR_RETURN(const WaitEnd end, cuda::wait_on_host(
                                             [&]() -> Result<bool> {
                                               PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current,
                                                                   context_.enter());
                                               return cuda::is_reached(context_.driver(), event);
                                             },
                                             {context}));
  switch (end) {
    case WaitEnd::kReady: return Status::ok();
    case WaitEnd::kAborted: PC_TRY(control_group_.alive()); break;
    case WaitEnd::kInterrupted:
    case WaitEnd::kTimeout: break;
  }
  return Status(Code::kTimeout, what).with_rank(control_group_.rank());
}

// `within_reach` is the same call with arrays that other ranks can access, or empty if substitute()
// has failed.
IpcExecutor::Card IpcExecutor::card_of(const Request& request, const Request& within_reach) {
  Card card;
  const Elements elements = elements_of(request, control_group_.size());
  // The digest includes parts_of(), because a worker moves the arrays of other ranks by its own
  // counts.
  const std::string what = std::to_string(static_cast<int>(request.collective)) + "/" + text_of(request.op) +
                           "/" + std::to_string(request.root) + "/" + std::string(name_of(elements.dtype)) +
                           "/" + std::to_string(parts_of(request));
  card.call = fnv1a(what) + (knows_size(request) ? elements.count : 0);
  const Result<PeerArray> in = gpu_->memory.export_array(within_reach.in);
  const Result<PeerArray> out = gpu_->memory.export_array(within_reach.out);
  const bool has_all = is_there(request.in) == is_there(within_reach.in) &&
                       is_there(request.out) == is_there(within_reach.out);
  card.out_of_reach = has_all && in.is_ok() && out.is_ok() ? 0 : 1;
  if (card.out_of_reach != 0) return card;
  card.in = in.value();
  card.out = out.value();
  if (request.collective != Collective::kAlltoall || request.counts.empty()) return card;
  card.is_uneven = 1;
  std::copy(request.counts.begin(), request.counts.end(), card.counts);
  std::copy(request.recv_counts.begin(), request.recv_counts.end(), card.recv_counts);
  return card;
}

Result<std::vector<IpcExecutor::Card>> IpcExecutor::exchange(const Card& mine, Deadline deadline) {
  PC_ASSIGN_OR_RETURN(std::vector<Card> all, gather_plain(control_group_, mine, "where arrays lie on the GPU",
                                                          std::max(deadline.remaining_s(), 0.0)));
  for (std::size_t a = 0; a < all.size(); ++a) {
    const std::string rank = "rank " + std::to_string(a);
    if (all[a].call != all[0].call)
      return Status(Code::kMismatch, rank + " makes another call on the GPU than rank 0");
    if (all[a].is_uneven != all[0].is_uneven)
      return Status(Code::kMismatch, "of " + rank + " and rank 0 only one gives counts");
    for (std::size_t b = 0; b < all.size(); ++b) {
      if (all[a].counts[b] != all[b].recv_counts[a])
        return Status(Code::kMismatch, rank + " sends rank " + std::to_string(b) + " " +
                                           std::to_string(all[a].counts[b]) + " elements, which expects " +
                                           std::to_string(all[b].recv_counts[a]));
    }
  }
  return all;
}

Status IpcExecutor::barrier(const char* label, Deadline deadline) {
  Request request;
  request.collective = Collective::kBarrier;
  request.label = label;
  return control_group_.run(request, std::max(deadline.remaining_s(), 0.0));
}

UserCall IpcExecutor::staged(const Work& work) const {
  UserCall call;
  call.request = work.request_;
  // not the user's stream, since the work that makes the arrays has ended
  call.request.stream = gpu_->stream.get();
  return call;
}

// Returns an empty string if all ranks have pinned memory for the call. Otherwise names a rank
// without pinned memory, and the reason. The text is the same on all ranks.
Result<std::string> IpcExecutor::lack_on_host(const Work& work, Deadline deadline) {
  struct HostBuffers {
    char why_not[232] = {};
  };
  const auto reserve = [&]() -> Status {
    if (gpu_->staged == nullptr) {
      PC_ASSIGN_OR_RETURN(gpu_->staged, StagedCalls::create(control_group_, context_.shared_driver(),
                                                            context_.ordinal(), control_group_.timeout_s()));
    }
    return gpu_->staged->reserve(staged(work));
  };
  HostBuffers mine;
  const Status reserved = reserve();
  if (!reserved.is_ok()) reserved.message().copy(mine.why_not, sizeof mine.why_not - 1);
  PC_ASSIGN_OR_RETURN(std::vector<HostBuffers> all,
                      gather_plain(control_group_, mine, "room on the host for a call between GPUs",
                                   std::max(deadline.remaining_s(), 0.0)));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    all[rank].why_not[sizeof mine.why_not - 1] = '\0';
    if (all[rank].why_not[0] == '\0') continue;
    return "the call needs memory on the host, because not all of its arrays can be reached by the other "
           "ranks, and rank " +
           std::to_string(rank) + " has none: " + all[rank].why_not;
  }
  return std::string();
}

Status IpcExecutor::stage(const Work& work) {
  return gpu_->staged->run(staged(work), std::max(work.deadline_.remaining_s(), 0.0));
}

}  // namespace pc
