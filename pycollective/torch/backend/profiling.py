"""What torch.profiler shows of the backend's calls: a span for each, from the call to its end, with shapes of tensors.

Names are those of torch's own backends, "pycollective:all_reduce" for "gloo:all_reduce", so that what reads a trace of
theirs reads this one; bytes follow from shapes and types. Spans are asynchronous, as theirs are: those of a thread
nest, and a call in the background does not. A span is asynchronous for torch if it ends in another thread than it began
in; the operator that ends it with a Future has the profiler's state there, which belongs to a thread.

Nothing of this runs unless a profiler does, whose flag each call reads.
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

TITLES = {  # by our names of the collectives
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
    """One call in a trace. Begins at once. Thread-safety: any thread may end it, once or more often."""

    def __init__(self, name: str, tensors: Sequence[object]) -> None:
        self._lock = threading.Lock()
        self._end: Future[None] | None = Future()  # guarded by _lock; None: it has ended
        record = _record_function_with_args_enter(name, *tensors)
        with torch._C.DisableTorchFunctionSubclass():
            torch.ops.profiler._call_end_callbacks_on_jit_fut._RecordFunction(record, self._end)

    def end(self) -> None:
        """Returns when the profiler has it, whichever thread has come first."""
        with self._lock:
            end, self._end = self._end, None
            if end is None:
                return
            try:
                _elsewhere().submit(end.set_result, None).result()
            except RuntimeError:  # the interpreter ends, and starts no thread any more
                end.set_result(None)

    def until(self, work: object) -> None:
        """Ends it when `work` has ended, and before its wait() returns."""
        if isinstance(work, ManyWork) and work._works:
            self.until(work._works[-1])  # calls of one group end in their order
        elif isinstance(work, CallWork):
            work._span = self
            future_of(work._work, lambda: None).then(lambda _: self.end())
        elif isinstance(work, AnySourceWork) and not work.has_ended():
            work._span = self
            if work.has_ended():  # in between
                self.end()
        else:
            self.end()


@functools.cache
def _elsewhere() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="pc-profiler")


os.register_at_fork(after_in_child=_elsewhere.cache_clear)  # where there is no such thread
