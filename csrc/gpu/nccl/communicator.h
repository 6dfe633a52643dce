// One communicator of NCCL. No method waits for NCCL beyond a deadline.
//
//   init -> ready -> finalizing -> dead            close()
//             |  \-> failed -> aborting -> dead    abort(); leaked if the abort does not return
//
// Ranks join by a non-blocking communicator, which is polled until the deadline. Calls use a
// blocking communicator that is split from the joined one, because NCCL starts a thread for each
// group of calls on a non-blocking communicator, which costs 15 times as much. The joined
// communicator is closed once its child exists, since each takes the same amount of GPU memory.
// Rare operations that wait for other ranks (joining, split, shrink, close) run on a thread of
// their own, and the caller waits for that thread until its deadline.
//
// A call may be stuck inside NCCL: the first use of a connection waits for the other ranks, and a
// full launch queue waits for the GPU. The call's own context cannot end it then, but abort() from
// another thread can: abort() does not wait for the stuck thread, and NCCL makes the stuck call
// return once the abort has begun. Meanwhile NCCL frees the communicator. Up to 2.28 it does not
// wait for the stuck call to return, so a call that does not check its abort flag for half a second
// reads freed memory. Once an abort has begun, a thread issues at most the one call before which it
// has just found no abort.
//
// Errors: ncclInvalidArgument (4) is a mistake of the caller. The communicator is still usable if
// the call had no effect. But NCCL may keep the code as its asynchronous error; then the
// communicator has failed, as after every other code. A failed communicator can only be aborted,
// and with some versions shrunk. The first cause is kept, and every later call returns it.
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

// Records the NCCL calls of one group. Valid only inside Communicator::grouped().
class Issue {
 public:
  Issue(const Api& api, CommHandle comm, const std::atomic<bool>& stop)
      : api_(api),
        comm_(comm),
        stop_(stop) {}
  const Api& api() const { return api_; }
  CommHandle comm() const { return comm_; }
  // Records a call's return code. If it returns false, no further call may follow, because NCCL
  // refused the call or an abort has begun.
  bool took(std::string_view call, ReturnCode code) {
    if (code == ReturnCode::kSuccess || code == ReturnCode::kInProgress)
      return !stop_.load(std::memory_order_acquire);
    if (refusal_ == ReturnCode::kSuccess) {
      refused_ = call;
      refusal_ = code;
    }
    return false;
  }
  // Returns true if another call may follow.
  bool goes_on() const { return refusal_ == ReturnCode::kSuccess && !stop_.load(std::memory_order_acquire); }
  std::string_view refused() const { return refused_; }
  // return code of the refused call; kSuccess: none was refused
  ReturnCode refusal() const { return refusal_; }

 private:
  const Api& api_;
  CommHandle comm_;
  const std::atomic<bool>& stop_;
  std::string_view refused_;
  ReturnCode refusal_ = ReturnCode::kSuccess;
};

// Thread-safety: all methods but the destructor. Methods that issue calls wait for each other;
// abort() does not wait for a stuck call. The destructor never calls NCCL, because the driver may
// be unusable at that time, or another rank may not take part. So it leaks a communicator that was
// neither closed nor aborted, with a warning.
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
  // streams afterwards. If NCCL_COMM_BLOCKING=0 makes NCCL return ncclInProgress, this method also
  // waits until NCCL has finished issuing. `context` limits only that wait and the wait for calls
  // of other threads. A call that is stuck inside NCCL is ended by abort().
  template <class Calls>
  Status grouped(const WaitContext& context, Calls&& calls) {
    return grouped(
        context,
        [](void* each, Issue& issue) { (*static_cast<std::remove_reference_t<Calls>*>(each))(issue); },
        const_cast<void*>(static_cast<const void*>(&calls)));
  }

  // Returns the asynchronous error that NCCL has found, if any. It is cheap and never waits. While
  // another thread issues calls, it returns OK, because that thread will find the error.
  Status check();

  // Creates a sum that first multiplies each contribution by the number at `scalar`, which is of
  // type `dtype`. The operation belongs to this communicator; close() destroys operations that
  // still exist.
  Result<RedOp> make_scaled_sum(DataType dtype, const void* scalar, const WaitContext& context);
  Status destroy_op(RedOp op, const WaitContext& context);

  // All members call it. The ranks that pass the same color (0 or more) get a communicator of their
  // own, ordered by key. Returns null for kNoColor.
  Result<std::unique_ptr<Communicator>> split(int color, int key, const Options& options,
                                              const WaitContext& context);
  // Creates a communicator without the ranks in `excluded`. All other members call it, with equal
  // lists. This communicator may have failed, and must be aborted afterwards. Returns kUnsupported
  // if NCCL is too old, or cannot shrink this communicator. Then abort this communicator, and init
  // a new one among the members that called it.
  Result<std::unique_ptr<Communicator>> shrink(std::span<const Rank> excluded, const Options& options,
                                               const WaitContext& context);

  // Waits until all ranks have completed everything issued, then frees the communicator. A failed
  // communicator is aborted, and the cause of its failure is returned.
  Status close(const WaitContext& context);

  // Ends running operations and frees the communicator. All members must call it. The abort runs on
  // a thread of its own: if NCCL does not return in time, the communicator is leaked and kTimeout
  // is returned. Calls of other threads that wait for NCCL return kAborted with `why`.
  Status abort(const Status& why);
  // Aborts several communicators at once. Ranks that share more than one communicator must use
  // this. If each rank aborted its communicators one after the other, each might wait for a rank
  // that aborts another communicator first.
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
