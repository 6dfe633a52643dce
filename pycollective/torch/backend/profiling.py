"""Spans of the backend's calls for torch.profiler, from begin to end, with tensor shapes.

Names follow those of torch's own backends: "pycollective:all_reduce" corresponds to
"gloo:all_reduce". So tools for traces of these backends can read ours. Byte counts follow from
shapes and types. Spans are asynchronous, as those of torch's backends: synchronous spans of a
thread must nest, and calls in the background do not nest. torch treats a span as asynchronous if it
ends in another thread than the one in which it began. The profiler's state belongs to the first
thread; ending the span by a Future passes the state on.

None of this runs unless a profiler is active; each call reads the profiler's flag.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.autograd import _record_function_with_args_enter
from torch.futures import Future

from pycollective.torch.backend.any_source import AnySourceWork
from pycollective.torch.backend.futures import future_of
from pycollective.torch.backend.work import CallWork, ManyWork

__all__ = ["TITLES", "Span"]

TITLES = {  # by pycollective's names of the collectives
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "barrier": "barrier",
    "broadcast": "broadcast",
    "gather": "gather",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
    "scatter": "scatter",
}


class Span:
    """One call in a trace. It begins at construction.

    Thread-safety: any thread may end it, repeatedly.
    """

    def __init__(self, name: str, tensors: Sequence[object]) -> None:
        self._lock = threading.Lock()
        self._end: Future[None] | None = Future()  # guarded by _lock; None when the span has ended
        record = _record_function_with_args_enter(name, *tensors)
        with torch._C.DisableTorchFunctionSubclass():
            torch.ops.profiler._call_end_callbacks_on_jit_fut._RecordFunction(record, self._end)

    def end(self) -> None:
        """Ends the span, or waits for another thread that is ending it."""
        with self._lock:
            end, self._end = self._end, None
            if end is None:
                return
            try:
                _elsewhere().submit(end.set_result, None).result()
            except RuntimeError:  # the interpreter is shutting down and starts no threads
                end.set_result(None)

    def until(self, work: object) -> None:
        """Ends the span when `work` has completed, before its wait() returns."""
        if isinstance(work, ManyWork) and work._works:
            self.until(work._works[-1])  # the calls of a group complete in order
        elif isinstance(work, CallWork):
            work._span = self
            future_of(work._work, lambda: None).then(lambda _: self.end())
        elif isinstance(work, AnySourceWork) and not work.has_ended():
            work._span = self
            if work.has_ended():  # it may have completed before _span was set
                self.end()
        else:
            self.end()


@functools.cache
def _elsewhere() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="pc-profiler")


os.register_at_fork(after_in_child=_elsewhere.cache_clear)  # the child does not have the thread
