// The seam between a communicator and the ways to run a collective of arrays on the CPU: plans, shared memory, or both.
#pragma once

#include <memory>
#include <string>

#include "base/export.h"
#include "engine/request.h"
#include "wire/message.h"

namespace pc {

// One launched operation. Thread-safety: done() from anywhere; drive() and wait() by one thread at a time.
class Work {
 public:
  // Its caller needs it no more. Unfinished work is withdrawn first. Never blocks for long.
  virtual void release() noexcept { delete this; }
  virtual bool done() const = 0;
  // Drives the operation in this thread until it is done (kReady) or the context ends, which leaves it as it is.
  virtual WaitEnd drive(const WaitContext& context) = 0;
  // Goes on with it as far as that is possible without waiting.
  virtual void progress() = 0;
  // From now on `notifier` is completed with `token` when progress() has something to do, and when it is
  // done; at once, if that is so now. Null: nobody is told any more. The notifier outlives it. Thread-safety:
  // from anywhere.
  virtual void notify(CompletionSink* notifier, uint64_t token) = 0;
  // Drives the operation in this thread until it ends or the context does. Result: how the operation ended; kTimeout and
  // kInterrupted leave it withdrawn, so that the caller's memory is free.
  virtual Status wait(const WaitContext& context) = 0;
  // Ends it as kAborted, for all ranks. Thread-safety: from anywhere.
  virtual void cancel() = 0;
  // The rank of the group that it waits for now; -1: nobody. Thread-safety: from anywhere.
  virtual Rank waits_for() const = 0;
  // "step 3/6: recv_reduce chunk 2 <- rank 1": what it waits for now. For errors.
  virtual std::string where() const = 0;

 protected:
  virtual ~Work() = default;
};
struct ReleaseWork {
  void operator()(Work* work) const noexcept { work->release(); }
};
using WorkPtr = std::unique_ptr<Work, ReleaseWork>;

// How work ends whose wait did: a timeout names `peer`, whom it waited for (-1: nobody).
PC_EXPORT Status ended_early(WaitEnd end, const std::string& where, Rank peer);

// Thread-safety: all methods. Launches of one group come in the same order on every rank; the communicator sees to that.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual std::string_view name() const = 0;
  virtual bool supports(const Request& request, Rank size) const = 0;
  // Null: it has ended well already.
  virtual Result<WorkPtr> launch(const Request& request, const Launch& launch) = 0;
  // Ends the collective of this number with `why`, if it is here and has not ended.
  virtual void cancel(uint32_t group, uint64_t sequence, const Status& why) = 0;
  // That rank of the world has said goodbye: nothing more comes from it. What needs it ends with kPeerExited.
  virtual void peer_left(Rank) {}
  virtual void abort(uint32_t group, const Status& why) = 0;  // everything of one group, now and later
  // After abort() of that group, when no launch is under way and none will come: what it has taken is given back as soon as
  // no thread is in a run of it.
  virtual void close(uint32_t /*group*/) {}
  virtual void abort(const Status& why) noexcept = 0;  // everything, now and later
};

}  // namespace pc
