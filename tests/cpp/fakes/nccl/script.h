// The controls of the fake NCCL: functions that it exports in addition to NCCL's own. No real NCCL
// has them.
#pragma once

namespace pc::testing {

// All take effect immediately and for all communicators, until reset(), unless noted otherwise.
struct FakeNccl {
  void (*reset)();  // drops communicators, worlds, calls and scripts; releases hanging calls first
  // `enqueue`: fake_cuda_enqueue of the fake driver. Calls then run in its streams. Null: calls
  // complete immediately.
  void (*run_in_streams)(void* enqueue);
  void (*in_progress)(
      int queries);  // each call on a non-blocking communicator takes this number of queries to settle
  void (*init_waits_for_all)(int yes);  // an init settles only when all ranks have begun theirs
  void (*hang_init)(int yes);           // an init never settles
  // A GroupEnd never settles. On a non-blocking communicator it is accepted; otherwise it returns
  // when the communicator is aborted.
  void (*hang_calls)(int yes);
  // As NCCL_COMM_BLOCKING=0 does: every communicator is non-blocking, whatever its configuration.
  void (*never_blocks)(int yes);
  // What ncclCommGetAsyncError returns from now on, for this communicator or, if null, for all
  // existing ones.
  void (*async_error)(void* comm, int code);
  void (*fail_next)(const char* call, int code,
                    int sticky);  // fails the next call of that name; sticky: also asynchronously
  // The next call of that name does not return until release(), or the abort of its communicator.
  void (*block_next)(const char* call);
  int (*blocked)();  // returns the number of calls that are blocked now
  void (*release)();
  int (*last_comm)(void** comm);     // the newest communicator; returns 0 if there is none
  const char* (*calls)(void* comm);  // the calls on it, in order: "init(0/2) [Send(1) Recv(1)] Finalize"
  const char* (*record)();           // the calls on all communicators, one line each, the oldest first
  const char* (*violations)();       // all forbidden calls; empty if there were none
  // Called in each ncclCommAbort, when its calls have ended and before it returns. Null: no hook.
  void (*on_abort)(void (*hook)(void*), void* data);
  int (*alive)();  // number of communicators that were neither destroyed nor aborted
};

}  // namespace pc::testing
