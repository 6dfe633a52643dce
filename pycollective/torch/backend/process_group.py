"""The torch.distributed backend "pycollective": torch's ProcessGroup over a Group of ours.

It subclasses ProcessGroup, because Python cannot usefully subclass Backend. One object serves all
devices. C++ (DDP, functional collectives) calls only methods that can be overridden. Methods
renamed in torch 2.x have both names. The caller must make the calls of a group in the same order on
all ranks. A call runs on the device of its tensors, on a GPU in the current stream's order. A call
without opts.asyncOp has completed on return. Options may be single values, tensors in lists.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from torch import Tensor, strided
from torch.autograd import profiler
from torch.distributed import (
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    ProcessGroup,
    ReduceOptions,
    ReduceScatterOptions,
    Work,
)
from torch.distributed.distributed_c10d import AllgatherOptions, GatherOptions, ScatterOptions

from pycollective.errors import CollectiveTimeout, InvalidArgument, Unsupported
from pycollective.torch.backend.any_source import AnySourceWork, Inbox
from pycollective.torch.backend.call_arguments import (
    counts_of_rows,
    gpu_of,
    in_background,
    one_tensor,
    options_of,
    parts_and_whole,
    uneven_counts,
    with_op,
    with_root,
)
from pycollective.torch.backend.devices import check_one_device
from pycollective.torch.backend.dispatcher import keep_dynamo_out, reach_python_groups
from pycollective.torch.backend.gpu_work import GpuBarrier, work_of
from pycollective.torch.backend.group_of_one import is_done_by_copy
from pycollective.torch.backend.joining import join
from pycollective.torch.backend.pieces import (
    check_apart,
    flat_to_read,
    flat_to_write,
    read_apart,
    to_read,
    to_write,
)
from pycollective.torch.backend.profiling import TITLES, Span
from pycollective.torch.backend.reduce_ops import NAMES, is_mean_of_integers, op_for, op_of
from pycollective.torch.backend.sparse import sparse_allreduce
from pycollective.torch.backend.work import DoneWork, ManyWork

__all__ = ["ProcessGroupPycollective"]

UNSET = AllreduceOptions().timeout  # torch's default timeout, which means that the caller has given none
DONE = DoneWork()
REFUSALS = InvalidArgument, Unsupported
GPUS = torch.backends.cuda.is_built()  # whether this torch supports GPU tensors


class ProcessGroupPycollective(ProcessGroup):
    """One group of ranks, made by torch.distributed. `group` is the Group that it uses."""

    # Every call reads these attributes, and Python finds slots faster than entries of __dict__.
    __slots__ = ("__dict__", "_allreduce", "_calls", "_timeout_s")

    def __init__(self, options: Any, backend_options: object = None) -> None:
        super().__init__(options.group_rank, options.group_size)  # a subclass cannot pass a store
        self._timeout_s = options.timeout.total_seconds()
        self._name: str = options.group_id
        self._description = "undefined"
        self._stands_for = "pycollective"  # the backend name that the program has given
        self._is_shown = False  # whether a span around several calls already shows them to a profiler
        self._store = options.store
        self._joined = join(
            options.store,
            options.group_rank,
            options.group_size,
            list(options.global_ranks_in_group or ()),
            options.group_id,
            self._timeout_s,
            is_standalone=getattr(options, "is_standalone", False),
        )
        reach_python_groups()
        self.group = self._joined.group
        self._allreduce = self.group.allreduce
        self._is_alone = options.group_size == 1  # whether the group has one rank and has not ended
        self._calls = 0
        self._coalesced: list[Work] | None = None  # Works of the current coalescing block; None outside
        self._inboxes: defaultdict[int, Inbox] = defaultdict(Inbox)  # by tag

    # ---- names

    def getBackendName(self) -> str:
        return "pycollective"

    name = _get_backend_name = getBackendName

    @property
    def group_name(self) -> str:
        return self._name

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        return self._name

    setGroupName = _set_group_name

    @property
    def group_desc(self) -> str:
        return self._description

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    def getGroupDesc(self) -> str:
        return self._description

    setGroupDesc = _set_group_desc

    def __repr__(self) -> str:
        return f"<ProcessGroupPycollective {self._name}: rank {self.rank()} of {self.size()}>"

    @property
    def _device_types(self) -> list[torch.device]:
        # the CPU first, because torch sends objects through the first device
        return [torch.device(kind) for kind in ("cpu", "cuda") if kind == "cpu" or GPUS]

    def _get_backend(self, device: torch.device) -> ProcessGroupPycollective:
        return self

    supports_splitting = supports_coalescing = supports_time_estimate = supports_shrinking = False

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        return False

    def get_group_store(self) -> torch.distributed.Store:
        return self._store

    def _set_sequence_number_for_group(self) -> None:
        self._calls = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._calls

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout_s = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def abort(self) -> None:
        # Then calls on a subgroup of the world raise Aborted here, and PeerExited on ranks that
        # need this rank. All other calls raise NotInitialized here, and PeerFailure on other ranks.
        self._joined.abort()
        self._end()

    def shutdown(self) -> None:
        self._joined.leave()
        self._end()

    def _end(self) -> None:
        self._is_alone = False
        for inbox in self._inboxes.values():
            inbox.stop()
        self._inboxes.clear()

    # ---- how calls are made

    def _seconds(self, opts: Any) -> float:
        timeout = opts.timeout
        return self._timeout_s if timeout == UNSET else float(timeout.total_seconds())

    def _call(
        self,
        collective: str,
        opts: Any,
        x: Tensor | None,
        out: Tensor | None,
        result: Sequence[Tensor],
        *,
        op: object = None,
        root: int = 0,
        counts: Sequence[int] | None = None,
        recv_counts: Sequence[int] | None = None,
        after: Callable[[], None] | None = None,
    ) -> Work:
        self._calls += 1  # counted even if the call fails, because the other ranks count it too
        span = self._span(TITLES[collective], [x, *result]) if profiler._is_profiler_enabled else None
        if x is not out and x is not None and out is not None:
            x = read_apart(collective, x, out, self.rank(), counts)
        arguments = (collective, x, out, op, root, counts, recv_counts, self._seconds(opts), False)
        block = x if out is None else out
        # In a group of one rank, a CPU call takes less time than creating a Work for it.
        at_once = not in_background(opts) or (self._is_alone and (block is None or not block.is_cuda))
        try:
            is_done = self._is_alone and is_done_by_copy(x, out, op, counts, recv_counts, not at_once)
            if is_done or at_once:
                if not is_done:
                    self.group._run(*arguments)
                if after is not None:
                    after()
                return self._note(DoneWork(result))
            work = work_of(self.group._begin(*arguments), block, result, after)
            if span is not None:
                span.until(work)
                span = None
            return self._note(work)
        finally:
            if span is not None:
                span.end()

    def _span(self, title: str, tensors: Sequence[object]) -> Span | None:
        """Returns a span that shows the first tensor: an input, or an output if there is none."""
        if self._is_shown:
            return None
        shown = [each for each in tensors if each is not None]
        return Span(f"{self._stands_for}:{title}", shown[:1])

    def _note(self, work: Work) -> Work:
        if self._coalesced is not None:  # also true if an exception ended the coalescing block
            self._coalesced = [each for each in self._coalesced if not each.is_success()]
            self._coalesced.append(work)
        return work

    # ---- elementwise calls

    def allreduce(
        self,
        tensors: Sequence[Tensor] | Tensor,
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work:
        if type(opts) is not AllreduceOptions:
            opts = with_op(AllreduceOptions(), opts, timeout)
        tensor = tensors[0] if type(tensors) is list and len(tensors) == 1 else one_tensor(tensors)
        op = NAMES.get(hash(opts.reduceOp)) or op_of(opts.reduceOp)
        self._calls += 1
        timeout_s = self._timeout_s if opts.timeout == UNSET else self._seconds(opts)
        if profiler._is_profiler_enabled:
            return self._profiled_allreduce(tensor, op, timeout_s, in_background(opts))
        if not in_background(opts):
            try:
                self._allreduce(tensor, op, timeout=timeout_s)
                return DONE
            except REFUSALS:  # nothing was sent; checking before the call would cost every call 0.1 us
                if tensor.layout is strided and not (
                    tensor.requires_grad or is_mean_of_integers(op, tensor.dtype)
                ):
                    raise
        return self._any_allreduce(tensor, op, timeout_s, in_background(opts))

    def _any_allreduce(self, tensor: Tensor, op: Any, timeout_s: float, is_async: bool) -> Work:
        """Also handles sparse tensors, tensors that require grad, and averages of integers."""
        if tensor.layout is not strided:
            return self._note(DoneWork([sparse_allreduce(self.group, tensor, op, timeout_s)]))
        tensor = tensor.detach()
        if not is_async:
            op, after = op_for(op, tensor.dtype, self.size(), tensor)
            self._allreduce(tensor, op, timeout=timeout_s)
            if after is not None:
                after()
            return DONE
        block, after = to_write(tensor)
        op, after = op_for(op, tensor.dtype, self.size(), block, after)
        work = self.group.allreduce_async(block, op, timeout=timeout_s)
        return self._note(work_of(work, block, [tensor], after))

    def _profiled_allreduce(self, tensor: Tensor, op: Any, timeout_s: float, is_async: bool) -> Work:
        begin = partial(self._any_allreduce, tensor, op, timeout_s, is_async)
        return self._in_span("all_reduce", [tensor], begin)

    def _in_span(self, title: str, tensors: Sequence[Tensor], begin: Callable[[], Work]) -> Work:
        """Returns the result of `begin`. A profiler shows all calls in it as one."""
        if not profiler._is_profiler_enabled:
            return begin()
        span = Span(f"{self._stands_for}:{title}", tensors)
        self._is_shown = True
        try:
            work = begin()
        except BaseException:
            span.end()
            raise
        finally:
            self._is_shown = False
        span.until(work)
        return work

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        opts = opts or AllreduceCoalescedOptions()
        return self._in_span("all_reduce", tensors, partial(self._allreduce_each, tensors, opts))

    def _allreduce_each(self, tensors: Sequence[Tensor], opts: Any) -> Work:
        reduce_op, seconds = op_of(opts.reduceOp), self._seconds(opts)
        self._calls += 1
        check_one_device("all_reduce_coalesced", tensors)
        check_apart("all_reduce_coalesced", tensors)
        if self._is_alone and not (in_background(opts) and any(each.is_cuda for each in tensors)):
            for each in tensors:
                self._any_allreduce(each, reduce_op, seconds, is_async=False)
            return self._note(DoneWork(tensors))
        works: list[Work] = []
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):  # the same order on all ranks
            some = [tensor for tensor in tensors if tensor.dtype == dtype]
            blocks, afters = zip(*map(to_write, some), strict=True)
            pairs = zip(blocks, afters, strict=True)
            ops, afters = zip(*(op_for(reduce_op, dtype, self.size(), *each) for each in pairs), strict=True)

            def put_back(afters: tuple[Callable[[], None] | None, ...] = afters) -> None:
                for after in afters:
                    if after is not None:
                        after()

            work = self.group.allreduce_async(list(blocks), ops[0], timeout=seconds)
            works.append(work_of(work, blocks[0], some, put_back))
        return self._many(works, opts)

    def _many(self, works: Sequence[Work], opts: Any) -> Work:
        work = works[0] if len(works) == 1 else ManyWork(works)
        if not in_background(opts):
            work.wait()
        return self._note(work)

    def broadcast(
        self,
        tensors: Sequence[Tensor] | Tensor,
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work:
        if type(opts) is not BroadcastOptions:
            opts = with_root(BroadcastOptions(), opts, timeout)
        tensor, root = one_tensor(tensors), opts.rootRank
        if root == self.rank():
            return self._call("broadcast", opts, to_read(tensor), None, [tensor], root=root)
        block, after = to_write(tensor)
        return self._call("broadcast", opts, block, block, [tensor], root=root, after=after)

    def reduce(
        self,
        tensors: Sequence[Tensor] | Tensor,
        opts: Any = None,
        op: object = None,
        timeout: timedelta | None = None,
    ) -> Work:
        if type(opts) is not ReduceOptions:
            opts = with_op(with_root(ReduceOptions(), opts, timeout), op, timeout)
        tensor = one_tensor(tensors)
        at_root = opts.rootRank == self.rank()
        block, after = to_write(tensor) if at_root else (to_read(tensor), None)
        out = block if at_root else None
        op, after = op_for(op_of(opts.reduceOp), tensor.dtype, self.size(), out, after)
        return self._call("reduce", opts, block, out, [tensor], op=op, root=opts.rootRank, after=after)

    # ---- calls on parts

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        parts, x = parts_and_whole(outputs, inputs)
        return self._allgather(parts, x, options_of(AllgatherOptions, opts))

    def _allgather(self, parts: Sequence[Tensor], x: Tensor, opts: Any, *, are_apart: bool = False) -> Work:
        out, after = flat_to_write("all_gather", parts, are_apart=are_apart)
        return self._call("allgather", opts, to_read(x), out, parts, counts=uneven_counts(parts), after=after)

    def all_gather_single(self, output: Tensor, x: Tensor, opts: Any = None) -> Work:
        opts = options_of(AllgatherOptions, opts)
        out, after = to_write(output)
        return self._call("allgather", opts, to_read(x), out, [output], after=after)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self,
        outputs: Sequence[Tensor],
        inputs: Sequence[Tensor],
        opts: Any = None,
    ) -> Work:
        opts = options_of(AllgatherOptions, opts)
        check_one_device("all_gather_into_tensor_coalesced", [*outputs, *inputs])
        check_apart("all_gather_into_tensor_coalesced", outputs)
        pairs = zip(outputs, inputs, strict=True)
        return self._in_span(
            "all_gather", inputs, lambda: ManyWork([self.all_gather_single(out, x, opts) for out, x in pairs])
        )

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather_coalesced(
        self,
        outputs: Sequence[Sequence[Tensor]],
        inputs: Sequence[Tensor],
        opts: Any = None,
    ) -> Work:
        opts = options_of(AllgatherOptions, opts)
        every = [each for parts in outputs for each in parts]
        check_one_device("all_gather_coalesced", [*inputs, *every])
        check_apart("all_gather_coalesced", every)
        pairs = zip(zip(*outputs, strict=True), inputs, strict=True)  # outputs[rank][i] is for inputs[i]
        return self._in_span(
            "all_gather",
            inputs,
            lambda: ManyWork([self._allgather(parts, x, opts, are_apart=True) for parts, x in pairs]),
        )

    def gather(
        self,
        outputs: Any,
        inputs: Any,
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work:
        if type(opts) is not GatherOptions:
            opts = with_root(GatherOptions(), opts, timeout)
        if opts.rootRank != self.rank():
            return self._call("gather", opts, to_read(one_tensor(inputs)), None, [], root=opts.rootRank)
        parts, x = parts_and_whole(outputs, inputs)
        out, after = flat_to_write("gather", parts)
        return self._call("gather", opts, to_read(x), out, parts, root=opts.rootRank, after=after)

    def scatter(
        self,
        outputs: Any,
        inputs: Any,
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work:
        if type(opts) is not ScatterOptions:
            opts = with_root(ScatterOptions(), opts, timeout)
        output = one_tensor(outputs)
        x = flat_to_read(parts_and_whole(inputs, outputs)[0]) if opts.rootRank == self.rank() else None
        out, after = to_write(output)
        return self._call("scatter", opts, x, out, [output], root=opts.rootRank, after=after)

    def reduce_scatter(
        self,
        outputs: Any,
        inputs: Any,
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work:
        if type(opts) is not ReduceScatterOptions:
            opts = with_op(ReduceScatterOptions(), opts, timeout)
        parts, output = parts_and_whole(inputs, outputs)
        out, after = to_write(output)
        op, after = op_for(op_of(opts.reduceOp), output.dtype, self.size(), out, after)
        return self._call(
            "reduce_scatter",
            opts,
            flat_to_read(parts),
            out,
            [output],
            op=op,
            counts=uneven_counts(parts),
            after=after,
        )

    def reduce_scatter_single(self, output: Tensor, x: Tensor, opts: Any = None) -> Work:
        opts = options_of(ReduceScatterOptions, opts)
        out, after = to_write(output)
        op, after = op_for(op_of(opts.reduceOp), output.dtype, self.size(), out, after)
        return self._call("reduce_scatter", opts, to_read(x), out, [output], op=op, after=after)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self,
        outputs: Sequence[Tensor],
        inputs: Sequence[Tensor],
        opts: Any = None,
    ) -> Work:
        opts = options_of(ReduceScatterOptions, opts)
        check_one_device("reduce_scatter_tensor_coalesced", [*outputs, *inputs])
        check_apart("reduce_scatter_tensor_coalesced", outputs)
        pairs = zip(outputs, inputs, strict=True)
        return self._in_span(
            "reduce_scatter",
            inputs,
            lambda: ManyWork([self.reduce_scatter_single(out, x, opts) for out, x in pairs]),
        )

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def all_to_all_single(
        self,
        output: Tensor,
        x: Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
    ) -> Work:
        opts = options_of(AllToAllOptions, opts)
        size = self.size()
        counts = counts_of_rows(x, input_split_sizes, size)
        recv_counts = counts_of_rows(output, output_split_sizes, size)
        out, after = to_write(output)
        return self._call(
            "alltoall", opts, to_read(x), out, [output], counts=counts, recv_counts=recv_counts, after=after
        )

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None) -> Work:
        opts = options_of(AllToAllOptions, opts)
        out, after = flat_to_write("all_to_all", outputs)
        return self._call(
            "alltoall",
            opts,
            flat_to_read(inputs),
            out,
            outputs,
            counts=[each.numel() for each in inputs],
            recv_counts=[each.numel() for each in outputs],
            after=after,
        )

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Work:
        opts = options_of(BarrierOptions, opts if timeout is None else timeout)
        device = gpu_of(opts)
        return self._call("barrier", opts, None, None, []) if device is None else self._barrier(device, opts)

    def _barrier(self, device: torch.device, opts: Any) -> Work:
        """A barrier by a sum, as for NCCL, after all work on the current streams of all ranks."""
        self._calls += 1
        word = torch.zeros(1, device=device)
        work = GpuBarrier(self.group.allreduce_async(word, timeout=self._seconds(opts)), [], device)
        if not in_background(opts):
            work.wait()
        return self._note(work)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Implements torch.distributed.monitored_barrier(). Its error names all missing ranks."""
        self._calls += 1
        timeout_s = self._timeout_s if timeout is None else timeout.total_seconds()
        try:
            self.group.barrier(timeout=timeout_s)
        except CollectiveTimeout as error:  # raised again with gloo's wording, for which programs search
            missing = "other ranks" if error.peer is None else f"Rank {error.peer}"
            took = f"Rank {self.rank()} timed out in monitoredBarrier after {timeout_s * 1000:.0f} ms"
            error.args = (f"{took}: {missing} failed to pass monitoredBarrier. {error}",)
            raise

    # ---- messages: always in the background; torch waits for the blocking ones

    def send(self, tensors: Sequence[Tensor], destination: int, tag: int = 0) -> Work:
        tensor = to_read(one_tensor(tensors))
        self._calls += 1
        span = self._span("send", [tensor]) if profiler._is_profiler_enabled else None
        work = work_of(
            self.group.send_async(tensor, destination, tag=tag, timeout=self._timeout_s), tensor, [tensor]
        )
        if span is not None:
            span.until(work)
        return self._note(work)

    def recv(self, tensors: Sequence[Tensor], source: int, tag: int = 0) -> Work:
        tensor = one_tensor(tensors)
        block, after = to_write(tensor)
        self._calls += 1
        span = self._span("recv", [tensor]) if profiler._is_profiler_enabled else None
        received = self.group.recv_async(block, source, tag=tag, timeout=self._timeout_s)
        work = work_of(received, block, [tensor], after, source)
        if span is not None:
            span.until(work)
        return self._note(work)

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> Work:
        tensor = one_tensor(tensors)
        self._calls += 1
        span = self._span("recvAnySource", [tensor]) if profiler._is_profiler_enabled else None
        work = AnySourceWork(self._inboxes[tag], self.group, tensor, tag, self._timeout_s)
        if span is not None:
            span.until(work)
        return self._note(work)

    # ---- several calls as one: torch keeps only the Work that _end_coalescing() returns

    def _start_coalescing(self, device: torch.device | None = None) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: torch.device | None = None) -> Work:
        works, self._coalesced = self._coalesced or [], None
        return ManyWork(works)

    start_coalescing, end_coalescing = _start_coalescing, _end_coalescing


keep_dynamo_out(ProcessGroupPycollective)
