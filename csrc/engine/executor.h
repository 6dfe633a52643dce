// The interface between a communicator and the executors that run collectives of arrays: plans,
// shared memory, or both.
#pragma once

#include <memory>
#include <string>

#include "base/export.h"
#include "engine/request.h"
#include "wire/message.h"

namespace pc {

// One launched operation. Thread-safety: any thread may call done(); only one thread at a time may
// call drive() and wait().
class Work {
 public:
  // Destroys the object or returns it for reuse; WorkPtr calls this. Withdraws unfinished work
  // first. Never blocks for long.
  virtual void release() noexcept { delete this; }
  virtual bool done() const = 0;
  // Makes progress in this thread until the operation is done (returns kReady) or the context ends.
  // The end of the context does not end the operation.
  virtual WaitEnd drive(const WaitContext& context) = 0;
  // Makes as much progress as is possible without waiting.
  virtual void progress() = 0;
  // From now on completes `notifier` with `token` whenever progress() has something to do, and when
  // the operation is done. Does so at once if either is already the case. Pass null to stop
  // notifications. The notifier must outlive this object. Thread-safety: any thread.
  virtual void notify(CompletionSink* notifier, uint64_t token) = 0;
  // Makes progress in this thread until the operation or the context ends. Returns how the
  // operation ended. After kTimeout or kInterrupted the operation has been withdrawn and no longer
  // uses the caller's memory.
  virtual Status wait(const WaitContext& context) = 0;
  // Ends the operation as kAborted, on all ranks. Thread-safety: any thread.
  virtual void cancel() = 0;
  // Returns the rank of the group that the operation waits for now, or -1. Thread-safety: any
  // thread.
  virtual Rank waits_for() const = 0;
  // Describes what the operation waits for now, for errors: "step 3/6: recv_reduce chunk 2 <- rank
  // 1".
  virtual std::string where() const = 0;

 protected:
  virtual ~Work() = default;
};
struct ReleaseWork {
  void operator()(Work* work) const noexcept { work->release(); }
};
using WorkPtr = std::unique_ptr<Work, ReleaseWork>;

// Returns the status of an operation that was withdrawn because its wait ended with `end`. The
// status of a timeout names `peer`, the rank that the operation waited for (-1: none).
PC_EXPORT Status ended_early(WaitEnd end, const std::string& where, Rank peer);

// Thread-safety: all methods. The communicator ensures that the launches of one group have the same
// order on every rank.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual std::string_view name() const = 0;
  virtual bool supports(const Request& request, Rank size) const = 0;
  // Returns null if the operation has already ended successfully.
  virtual Result<WorkPtr> launch(const Request& request, const Launch& launch) = 0;
  // Ends collective `sequence` of the group with `why` on this rank, if it has been launched and
  // has not ended. Messages that peers send for it are discarded.
  virtual void cancel(uint32_t group, uint64_t sequence, const Status& why) = 0;
  // Reports that this world rank has announced its exit and sends nothing more. Operations that
  // still need it end with kPeerExited.
  virtual void peer_left(Rank) {}
  // ends all operations of one group, also later ones
  virtual void abort(uint32_t group, const Status& why) = 0;
  // Releases the resources of a group as soon as no thread is in one of its runs. Called after
  // abort() of that group, when no launch is in progress and none follows.
  virtual void close(uint32_t /*group*/) {}
  virtual void abort(const Status& why) noexcept = 0;  // ends all operations, also later ones
};

}  // namespace pc
