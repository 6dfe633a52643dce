// One communicator of NCCL. No method waits for NCCL beyond a deadline.
//
//   init -> ready -> finalizing -> dead            close()
//             |  \-> failed -> aborting -> dead    abort(); leaked if the abort does not return
//
// Joining is non-blocking and polled until its deadline. Calls use a blocking communicator that is
// split from the joined one, because NCCL starts a thread for each group of calls on a non-blocking
// communicator, which costs 15 times as much. The parent is closed once its child exists, since
// each takes the same amount of GPU memory. Rare operations that wait for other ranks (joining,
// split, shrink, close) run on a thread of their own, and the caller waits for that thread until
// its deadline.
//
// A call may be stuck inside NCCL: the first use of a connection waits for the other ranks, and a
// full launch queue waits for the GPU. The call's own context cannot end it then, but abort() from
// another thread does: it waits for no stuck thread, and NCCL makes the stuck call return once the
// abort has begun. NCCL frees the communicator meanwhile, and up to 2.28 the abort does not wait
// for the call: a call that does not check its abort flag for half a second reads freed memory.
// Nothing is issued once an abort has begun, except a call for which its thread has just checked
// that there is no abort.
//
// Errors: ncclInvalidArgument (4) is a mistake of the caller. If the call had no effect the
// communicator is still usable. But NCCL may keep the code as its asynchronous error; then the
// communicator has failed, as after every other code, and only abort() and possibly shrink() are
// left. The first cause is kept, and every later call returns it.
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

// The calls of one group. Valid only inside Communicator::grouped().
class Issue {
 public:
  Issue(const Api& api, CommHandle comm, const std::atomic<bool>& stop)
      : api_(api),
        comm_(comm),
        stop_(stop) {}
  const Api& api() const { return api_; }
  CommHandle comm() const { return comm_; }
  // Records a call's return code. Returns false if NCCL refused the call or an abort has begun; no
  // further call may follow then.
  bool took(std::string_view call, ReturnCode code) {
    if (code == ReturnCode::kSuccess || code == ReturnCode::kInProgress)
      return !stop_.load(std::memory_order_acquire);
    if (refusal_ == ReturnCode::kSuccess) {
      refused_ = call;
      refusal_ = code;
    }
    return false;
  }
  // Returns whether another call may follow.
  bool goes_on() const { return refusal_ == ReturnCode::kSuccess && !stop_.load(std::memory_order_acquire); }
  std::string_view refused() const { return refused_; }
  ReturnCode refusal() const { return refusal_; }  // kSuccess: none was refused

 private:
  const Api& api_;
  CommHandle comm_;
  const std::atomic<bool>& stop_;
  std::string_view refused_;
  ReturnCode refusal_ = ReturnCode::kSuccess;
};

// Thread-safety: all methods but the destructor. Calls that issue wait for each other; abort()
// waits for no stuck call. The destructor never calls NCCL: a communicator that was neither closed
// nor aborted is leaked, with a warning. The driver may be unusable at that time, or another rank
// may not take part.
class Communicator {
 public:
  // All ranks call it. The GPU's context must be current in this thread. If it fails or times out,
  // whatever was created has been aborted.
  static Result<std::unique_ptr<Communicator>> init(const Resources& resources, const Membership& membership,
                                                    const Options& options, const WaitContext& context);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  Rank rank() const;
  Rank size() const;
  const Api& api() const;
  State state() const;
  Status cause() const;  // cause of its failure or end; OK while it is usable

  // Calls ncclGroupStart, `calls(Issue&)` and ncclGroupEnd. Issued work may still run on its
  // streams afterwards. If NCCL_COMM_BLOCKING=0 makes NCCL return ncclInProgress, it also waits
  // until that has settled. The context bounds only that wait and the wait for other calls: a call
  // that is stuck inside NCCL ends by abort().
  template <class Calls>
  Status grouped(const WaitContext& context, Calls&& calls) {
    return grouped(
        context,
        [](void* each, Issue& issue) { (*static_cast<std::remove_reference_t<Calls>*>(each))(issue); },
        const_cast<void*>(static_cast<const void*>(&calls)));
  }

  // Returns the asynchronous error that NCCL has found, if any. It is cheap and never waits: while
  // another thread issues, it returns OK, and that thread finds the error.
  Status check();

  // Creates a sum that first multiplies each contribution by the number at `scalar`, which is of
  // type `dtype`. It belongs to this communicator; close() destroys the remaining ones.
  Result<RedOp> make_scaled_sum(DataType dtype, const void* scalar, const WaitContext& context);
  Status destroy_op(RedOp op, const WaitContext& context);

  // All members call it. Ranks of one color (0 or more) get a communicator of their own, ordered by
  // key. Returns null for kNoColor.
  Result<std::unique_ptr<Communicator>> split(int color, int key, const Options& options,
                                              const WaitContext& context);
  // The members that are not in `excluded` call it, with equal lists; the communicator may have
  // failed. It must be aborted afterwards. Returns kUnsupported if NCCL is too old, or cannot
  // continue from this communicator; then abort it, and init a new one among those members.
  Result<std::unique_ptr<Communicator>> shrink(std::span<const Rank> excluded, const Options& options,
                                               const WaitContext& context);

  // Waits until all ranks have completed everything issued, then frees the communicator. A failed
  // communicator is aborted, and the cause of its failure is returned.
  Status close(const WaitContext& context);

  // Ends running operations and frees the communicator. All members must call it. It runs on a
  // thread of its own: if NCCL does not return in time, the communicator is leaked and kTimeout is
  // returned. Other calls that wait return kAborted with `why`.
  Status abort(const Status& why);
  // Aborts several communicators at once. Ranks that share more than one must use this: aborting
  // them one after the other may wait for another rank that began with a different one.
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
