// How a test drives the fake NCCL: functions that it exports besides NCCL's own. None of them is in a real one.
#pragma once

namespace pc::testing {

// All take effect at once and for all communicators, until reset(), unless it is said otherwise.
struct FakeNccl {
  void (*reset)();  // forgets communicators, worlds, calls and what was scripted; frees what hangs first
  // `enqueue`: fake_cuda_enqueue of the fake driver, in whose streams calls run then. Null: they are done at once.
  void (*run_in_streams)(void* enqueue);
  void (*in_progress)(
      int questions);  // each call on a non-blocking communicator takes so many questions to settle
  void (*init_waits_for_all)(int yes);  // an init settles only when all ranks have begun theirs
  void (*hang_init)(int yes);           // an init never settles
  // A GroupEnd never settles: where the communicator is non-blocking it is accepted, else it comes back when that is aborted.
  void (*hang_calls)(int yes);
  void (*never_blocks)(
      int yes);  // as NCCL_COMM_BLOCKING=0 does: every communicator is non-blocking, whatever it is asked for
  // What ncclCommGetAsyncError finds from now on, of this communicator or, null, of all that there are.
  void (*async_error)(void* comm, int code);
  void (*fail_next)(const char* call, int code,
                    int sticky);  // the next call of that name; sticky: also asynchronously
  // The next call of that name does not return until release(), or the abort of its communicator.
  void (*block_next)(const char* call);
  int (*blocked)();  // how many do not return now
  void (*release)();
  int (*last_comm)(void** comm);  // the newest communicator; 0: there is none
  const char* (*calls)(
      void* comm);              // what was called on it, in order: "init(0/2) [Send(1) Recv(1)] Finalize"
  const char* (*record)();      // the same of all, one line each, the oldest first
  const char* (*violations)();  // what no caller may do, of anybody: empty if all is well
  // Called in each ncclCommAbort, when its calls have ended and before it comes back. Null: nothing is.
  void (*on_abort)(void (*hook)(void*), void* data);
  int (*alive)();  // communicators that were neither destroyed nor aborted
};

}  // namespace pc::testing
