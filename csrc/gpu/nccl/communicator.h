// One communicator of NCCL: made, used and ended without ever waiting for NCCL beyond a deadline.
//
//   init -> ready -> finalizing -> dead            close()
//             |  \-> failed -> aborting -> dead    abort(); leaked, if that does not come back
//
// Joining is non-blocking and polled up to its deadline. Calls go by a blocking child of what has joined, because NCCL starts a
// thread for each group of calls on a non-blocking communicator, which costs 15 times as much. The parent goes when its child
// stands, since each takes as much of the GPU's memory. What waits for other ranks and is rare (joining, split, shrink, close) runs
// on a thread of its own, and the caller waits for that thread up to its deadline.
//
// A call may be stuck inside NCCL: its first use of a connection waits for the other ranks, and a full queue of launches waits for
// the GPU. Its own context cannot end it then. abort() from another thread does: it waits for no thread that is stuck, and NCCL
// lets the stuck call return as soon as the abort has begun. NCCL frees the communicator meanwhile, and nothing of it up to 2.28
// makes the abort wait for the call: a call that does not look at its abort flag for half a second reads memory that is gone.
// Nothing is issued once an abort has begun, but for the call before which its thread has just asked.
//
// Errors. ncclInvalidArgument (4) is the caller's fault. If the call had no effect the communicator is as good as before; but NCCL
// may keep it as its asynchronous error, and then it is as failed as after all other codes: only abort() and, maybe, shrink() are
// left. The first cause stays, and every later call answers with it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "base/status.h"
#include "base/waiter.h"
#include "gpu/nccl/api.h"
#include "gpu/nccl/resources.h"

namespace pc::nccl {

struct CommunicatorCore;

Result<UniqueId> make_unique_id(const Api& api);

// The calls of one group. Only inside Communicator::grouped().
class Issue {
 public:
  Issue(const Api& api, CommHandle comm, const std::atomic<bool>& stop)
      : api_(api),
        comm_(comm),
        stop_(stop) {}
  const Api& api() const { return api_; }
  CommHandle comm() const { return comm_; }
  // Takes what a call answered. False: NCCL refused it, or an abort has begun, so the rest is not to be called.
  bool took(std::string_view call, ReturnCode code) {
    if (code == ReturnCode::kSuccess || code == ReturnCode::kInProgress)
      return !stop_.load(std::memory_order_acquire);
    if (refusal_ == ReturnCode::kSuccess) {
      refused_ = call;
      refusal_ = code;
    }
    return false;
  }
  // Whether another call may follow.
  bool goes_on() const { return refusal_ == ReturnCode::kSuccess && !stop_.load(std::memory_order_acquire); }
  std::string_view refused() const { return refused_; }
  ReturnCode refusal() const { return refusal_; }  // kSuccess: there was none

 private:
  const Api& api_;
  CommHandle comm_;
  const std::atomic<bool>& stop_;
  std::string_view refused_;
  ReturnCode refusal_ = ReturnCode::kSuccess;
};

// Thread-safety: all methods but the destructor. Calls that issue wait for each other; abort() waits for none that is stuck.
// The destructor never calls NCCL: what was neither closed nor aborted is leaked, with a warning. At that time the driver may be
// gone, or another rank may not take part.
class Communicator {
 public:
  // Together with the other ranks. The GPU's context is current in this thread. If that fails or takes too long, what there is
  // of it has been aborted.
  static Result<std::unique_ptr<Communicator>> init(const Resources& resources, const Membership& membership,
                                                    const Options& options, const WaitContext& context);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  Rank rank() const;
  Rank size() const;
  const Api& api() const;
  State state() const;
  Status cause() const;  // of its failure or its end; OK while it is good

  // ncclGroupStart, `calls(Issue&)`, ncclGroupEnd. What was issued may still run on its streams. Where NCCL_COMM_BLOCKING=0 makes
  // NCCL answer ncclInProgress, also until that has settled. The context bounds the wait for other calls and for that alone: a
  // call that is stuck inside NCCL ends by abort().
  template <class Calls>
  Status grouped(const WaitContext& context, Calls&& calls) {
    return grouped(
        context,
        [](void* each, Issue& issue) { (*static_cast<std::remove_reference_t<Calls>*>(each))(issue); },
        const_cast<void*>(static_cast<const void*>(&calls)));
  }

  // Whether NCCL has found an error meanwhile. Cheap, never waits: while another thread issues, that one finds out.
  Status check();

  // A sum whose contributions are multiplied by a number first, which lies at `scalar` and is of that type. For this
  // communicator; close() destroys what is left.
  Result<RedOp> make_scaled_sum(DataType dtype, const void* scalar, const WaitContext& context);
  Status destroy_op(RedOp op, const WaitContext& context);

  // All members call it. Ranks of one color (0 or more) get a communicator of their own, ordered by key; with kNoColor: null.
  Result<std::unique_ptr<Communicator>> split(int color, int key, const Options& options,
                                              const WaitContext& context);
  // The members that are not in `excluded` call it, with equal lists, also on a communicator that has failed. This one is then to
  // be aborted. kUnsupported: NCCL is too old, or cannot go on with this one; abort it, and init a new one among those.
  Result<std::unique_ptr<Communicator>> shrink(std::span<const Rank> excluded, const Options& options,
                                               const WaitContext& context);

  // Waits until everything issued has been done by all ranks, then frees it. What has failed is aborted, and why it had failed
  // is the answer.
  Status close(const WaitContext& context);

  // Ends what runs and frees it. All members have to. On a thread of its own: if NCCL does not come back in time the
  // communicator is leaked, and that is the answer (kTimeout). Who waits in another call returns with kAborted and `why`.
  Status abort(const Status& why);
  // Several at once, as ranks that share more than one must do it: one after the other may wait for another rank's first.
  static Status abort_all(std::span<Communicator* const> communicators, const Status& why);

 private:
  explicit Communicator(std::shared_ptr<CommunicatorCore> core) : core_(std::move(core)) {}
  Status grouped(const WaitContext& context, void (*calls)(void*, Issue&), void* each);
  static Result<std::unique_ptr<Communicator>> join(const Resources& resources, const Membership& membership,
                                                    const Options& options, const WaitContext& context);
  Status give_up(const Status& why);
  static std::function<void(ReturnCode)> abort_late(const std::shared_ptr<CommunicatorCore>& child);
  Result<std::unique_ptr<Communicator>> adopt(const std::shared_ptr<CommunicatorCore>& child,
                                              std::string_view call, const Status& settled,
                                              const WaitContext& context);

  std::shared_ptr<CommunicatorCore> core_;
};

}  // namespace pc::nccl
