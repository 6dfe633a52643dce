"""The torch.distributed backend "pycollective": torch's ProcessGroup over a Group of ours.

A subclass of ProcessGroup and not of Backend, which Python cannot subclass usefully: so it is the whole group, for all
devices. torch.distributed calls methods of this object; C++ (DDP, functional collectives) calls those that ProcessGroup
lets Python override. torch renamed some of them within 2.x, so those have both names.

Each call goes where its tensors lie: on a GPU behind what is queued on the current stream, in front of what comes there
next. The copies around a call are torch's own operations on that stream, so they are in that order too.

A call with opts.asyncOp off (all of torch.distributed's blocking ones) runs in the caller's thread, and is done when
the method returns; on a GPU it is queued on the current stream then. Options come as objects, or one by one, as
ProcessGroup's own methods take them. Every list of tensors has one: several devices per process are not supported.
Thread-safety: as a Group's, calls are ordered by the caller.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from types import FunctionType
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
from pycollective.torch.any_source import AnySourceWork, Inbox
from pycollective.torch.devices import check_one_device
from pycollective.torch.dispatcher import reach_python_groups
from pycollective.torch.gpu_work import GpuBarrier, work_of
from pycollective.torch.joining import join
from pycollective.torch.pieces import check_apart, flat_to_read, flat_to_write, to_read, to_write
from pycollective.torch.profiling import TITLES, Span
from pycollective.torch.reduce_ops import NAMES, is_mean_of_integers, op_for, op_of
from pycollective.torch.sparse import sparse_allreduce
from pycollective.torch.work import DoneWork, ManyWork

__all__ = ["ProcessGroupPycollective"]

UNSET = AllreduceOptions().timeout  # what torch leaves where no timeout was given
DONE = DoneWork()
REFUSALS = InvalidArgument, Unsupported
GPUS = torch.backends.cuda.is_built()  # whether torch could have tensors there


class ProcessGroupPycollective(ProcessGroup):
    """One group of ranks; torch.distributed makes it. `group` is the Group that carries it."""

    # What every call reads: in slots, which Python finds faster than in the __dict__ of an object of C++.
    __slots__ = ("__dict__", "_allreduce", "_calls", "_timeout_s")

    def __init__(self, options: Any, backend_options: object = None) -> None:
        super().__init__(
            options.group_rank, options.group_size
        )  # a constructor with a store cannot be subclassed
        self._timeout_s = options.timeout.total_seconds()
        self._name: str = options.group_id
        self._description = "undefined"
        self._stands_for = "pycollective"  # what programs call it
        self._is_shown = False  # to a profiler, by a span around several calls
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
        self._calls = 0
        self._coalesced: list[Work] | None = None  # since _start_coalescing(), and not ended well
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
        # cpu first: torch sends objects through that one
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
        # Of a group cut out of the world it ends that group: Aborted here, PeerExited where others need this rank. Else
        # it ends the world, or the group's own connections: NotInitialized here, PeerFailure on the others.
        self._joined.abort()
        self._stop_inboxes()

    def shutdown(self) -> None:
        self._joined.leave()
        self._stop_inboxes()

    def _stop_inboxes(self) -> None:
        for inbox in self._inboxes.values():
            inbox.stop()
        self._inboxes.clear()

    # ---- how a call is made

    def _seconds(self, opts: Any) -> float:
        timeout = opts.timeout
        return self._timeout_s if timeout == UNSET else float(timeout.total_seconds())

    def _call(
        self,
        collective: str,
        opts: Any,
        x: object,
        out: object,
        result: Sequence[Tensor],
        *,
        op: object = None,
        root: int = 0,
        counts: Sequence[int] | None = None,
        recv_counts: Sequence[int] | None = None,
        after: Callable[[], None] | None = None,
    ) -> Work:
        self._calls += 1  # whether it fails or not, as on the other ranks
        span = self._span(TITLES[collective], [x, *result]) if profiler._is_profiler_enabled else None
        arguments = (collective, x, out, op, root, counts, recv_counts, self._seconds(opts), False)
        try:
            if not opts.asyncOp:
                self.group._run(*arguments)
                if after is not None:
                    after()
                return self._note(DoneWork(result))
            work = work_of(self.group._begin(*arguments), x if out is None else out, result, after)
            if span is not None:
                span.until(work)
                span = None
            return self._note(work)
        finally:
            if span is not None:
                span.end()

    def _span(self, title: str, tensors: Sequence[object]) -> Span | None:
        """Of a call with these tensors; the first is shown: what goes in, or where there is nothing what comes out."""
        if self._is_shown:
            return None
        shown = [each for each in tensors if each is not None]
        return Span(f"{self._stands_for}:{title}", shown[:1])

    def _note(self, work: Work) -> Work:
        if self._coalesced is not None:  # as it stays if an exception ended the manager
            self._coalesced = [each for each in self._coalesced if not each.is_success()]
            self._coalesced.append(work)
        return work

    # ---- element by element

    def allreduce(
        self,
        tensors: Sequence[Tensor] | Tensor,
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work:
        if type(opts) is not AllreduceOptions:
            opts = _with_op(AllreduceOptions(), opts, timeout)
        tensor = tensors[0] if type(tensors) is list and len(tensors) == 1 else _one(tensors)
        op = NAMES.get(hash(opts.reduceOp)) or op_of(opts.reduceOp)
        self._calls += 1
        timeout_s = self._timeout_s if opts.timeout == UNSET else self._seconds(opts)
        if profiler._is_profiler_enabled:
            return self._profiled_allreduce(tensor, op, timeout_s, opts.asyncOp)
        if not opts.asyncOp:
            try:
                self._allreduce(tensor, op, timeout=timeout_s)
                return DONE
            except REFUSALS:  # nothing was sent. To look first would cost every call 0.1 us
                if tensor.layout is strided and not (
                    tensor.requires_grad or is_mean_of_integers(op, tensor.dtype)
                ):
                    raise
        return self._any_allreduce(tensor, op, timeout_s, opts.asyncOp)

    def _any_allreduce(self, tensor: Tensor, op: Any, timeout_s: float, is_async: bool) -> Work:
        """Of tensors that are sparse, that autograd watches, or whose mean is not the core's, too."""
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
        """What `begin` returns. A profiler shows it as one call, whatever calls it makes."""
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
        works: list[Work] = []
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):  # in one order on all ranks
            some = [tensor for tensor in tensors if tensor.dtype == dtype]
            blocks, afters = zip(*map(to_write, some), strict=True)

            size = self.size()
            ops, afters = zip(
                *(op_for(reduce_op, dtype, size, *each) for each in zip(blocks, afters, strict=True)),
                strict=True,
            )

            def put_back(afters: tuple[Callable[[], None] | None, ...] = afters) -> None:
                for after in afters:
                    if after is not None:
                        after()

            work = self.group.allreduce_async(list(blocks), ops[0], timeout=seconds)
            works.append(work_of(work, blocks[0], some, put_back))
        return self._many(works, opts)

    def _many(self, works: Sequence[Work], opts: Any) -> Work:
        work = works[0] if len(works) == 1 else ManyWork(works)
        if not opts.asyncOp:
            work.wait()
        return self._note(work)

    def broadcast(
        self,
        tensors: Sequence[Tensor] | Tensor,
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work:
        if type(opts) is not BroadcastOptions:
            opts = _with_root(BroadcastOptions(), opts, timeout)
        tensor, root = _one(tensors), opts.rootRank
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
            opts = _with_op(_with_root(ReduceOptions(), opts, timeout), op, timeout)
        tensor = _one(tensors)
        at_root = opts.rootRank == self.rank()
        block, after = to_write(tensor) if at_root else (to_read(tensor), None)
        op, after = op_for(op_of(opts.reduceOp), tensor.dtype, self.size(), block if at_root else None, after)
        return self._call(
            "reduce",
            opts,
            block,
            block if at_root else None,
            [tensor],
            op=op,
            root=opts.rootRank,
            after=after,
        )

    # ---- parts

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        parts, x = _lists(outputs, inputs)
        return self._allgather(parts, x, _options(AllgatherOptions, opts))

    def _allgather(self, parts: Sequence[Tensor], x: Tensor, opts: Any, *, are_apart: bool = False) -> Work:
        out, after = flat_to_write("all_gather", parts, are_apart=are_apart)
        return self._call("allgather", opts, to_read(x), out, parts, counts=_uneven(parts), after=after)

    def all_gather_single(self, output: Tensor, x: Tensor, opts: Any = None) -> Work:
        opts = _options(AllgatherOptions, opts)
        out, after = to_write(output)
        return self._call("allgather", opts, to_read(x), out, [output], after=after)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self,
        outputs: Sequence[Tensor],
        inputs: Sequence[Tensor],
        opts: Any = None,
    ) -> Work:
        opts = _options(AllgatherOptions, opts)
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
        opts = _options(AllgatherOptions, opts)
        every = [each for parts in outputs for each in parts]
        check_one_device("all_gather_coalesced", [*inputs, *every])
        check_apart("all_gather_coalesced", every)
        pairs = zip(zip(*outputs, strict=True), inputs, strict=True)  # outputs[rank][i] belongs to inputs[i]
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
            opts = _with_root(GatherOptions(), opts, timeout)
        if opts.rootRank != self.rank():
            return self._call("gather", opts, to_read(_one(inputs)), None, [], root=opts.rootRank)
        parts, x = _lists(outputs, inputs)
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
            opts = _with_root(ScatterOptions(), opts, timeout)
        output = _one(outputs)
        x = flat_to_read(_lists(inputs, outputs)[0]) if opts.rootRank == self.rank() else None
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
            opts = _with_op(ReduceScatterOptions(), opts, timeout)
        parts, output = _lists(inputs, outputs)
        out, after = to_write(output)
        op, after = op_for(op_of(opts.reduceOp), output.dtype, self.size(), out, after)
        return self._call(
            "reduce_scatter",
            opts,
            flat_to_read(parts),
            out,
            [output],
            op=op,
            counts=_uneven(parts),
            after=after,
        )

    def reduce_scatter_single(self, output: Tensor, x: Tensor, opts: Any = None) -> Work:
        opts = _options(ReduceScatterOptions, opts)
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
        opts = _options(ReduceScatterOptions, opts)
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
        opts = _options(AllToAllOptions, opts)
        counts = _rows(x, input_split_sizes, self.size())
        recv_counts = _rows(output, output_split_sizes, self.size())
        out, after = to_write(output)
        return self._call(
            "alltoall", opts, to_read(x), out, [output], counts=counts, recv_counts=recv_counts, after=after
        )

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None) -> Work:
        opts = _options(AllToAllOptions, opts)
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
        opts = _options(BarrierOptions, opts if timeout is None else timeout)
        device = _gpu_of(opts)
        return self._call("barrier", opts, None, None, []) if device is None else self._meet_on(device, opts)

    def _meet_on(self, device: torch.device, opts: Any) -> Work:
        """A barrier behind what every rank's current stream has: a sum of nothing, as NCCL has no barrier."""
        self._calls += 1
        word = torch.zeros(1, device=device)
        work = GpuBarrier(self.group.allreduce_async(word, timeout=self._seconds(opts)), [], device)
        if not opts.asyncOp:
            work.wait()
        return self._note(work)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """What torch.distributed.monitored_barrier() calls. All missing ranks are named, on every rank that waits."""
        self._calls += 1
        timeout_s = self._timeout_s if timeout is None else timeout.total_seconds()
        try:
            self.group.barrier(timeout=timeout_s)
        except CollectiveTimeout as error:  # in gloo's words, which programs look for
            missing = "other ranks" if error.peer is None else f"Rank {error.peer}"
            took = f"Rank {self.rank()} timed out in monitoredBarrier after {timeout_s * 1000:.0f} ms"
            error.args = (f"{took}: {missing} failed to pass monitoredBarrier. {error}",)
            raise

    # ---- messages: always in the background, the caller waits

    def send(self, tensors: Sequence[Tensor], destination: int, tag: int = 0) -> Work:
        tensor = to_read(_one(tensors))
        self._calls += 1
        span = self._span("send", [tensor]) if profiler._is_profiler_enabled else None
        work = work_of(
            self.group.send_async(tensor, destination, tag=tag, timeout=self._timeout_s), tensor, [tensor]
        )
        if span is not None:
            span.until(work)
        return self._note(work)

    def recv(self, tensors: Sequence[Tensor], source: int, tag: int = 0) -> Work:
        tensor = _one(tensors)
        block, after = to_write(tensor)
        self._calls += 1
        span = self._span("recv", [tensor]) if profiler._is_profiler_enabled else None
        received = self.group.recv_async(block, source, tag=tag, timeout=self._timeout_s)
        work = work_of(received, block, [tensor], after, source)
        if span is not None:
            span.until(work)
        return self._note(work)

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> Work:
        tensor = _one(tensors)
        self._calls += 1
        span = self._span("recvAnySource", [tensor]) if profiler._is_profiler_enabled else None
        work = AnySourceWork(self._inboxes[tag], self.group, tensor, tag, self._timeout_s)
        if span is not None:
            span.until(work)
        return self._note(work)

    # ---- several calls as one: torch keeps of them only the Work that ends it

    def _start_coalescing(self, device: torch.device | None = None) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: torch.device | None = None) -> Work:
        works, self._coalesced = self._coalesced or [], None
        return ManyWork(works)

    start_coalescing, end_coalescing = _start_coalescing, _end_coalescing


def _one(tensors: Any) -> Tensor:
    if isinstance(tensors, Tensor):
        return tensors
    if len(tensors) != 1:
        raise InvalidArgument(
            f"a process has one device, so a call takes one tensor and not {len(tensors)}: make one call for each, or "
            f"all_reduce_coalesced"
        )
    return tensors[0]


def _lists(parts: Any, whole: Any) -> tuple[list[Tensor], Tensor]:
    """The tensors of all ranks, and this rank's one: `[[a, b]], [x]`, or `[a, b], x`."""
    if isinstance(whole, Tensor):
        return list(parts), whole
    return list(_one_list(parts)), _one(whole)


def _gpu_of(opts: Any) -> torch.device | None:
    """That of a barrier with device_ids, where they are GPUs: of one process only the first counts, as torch has it."""
    if not opts.device_ids:
        return None
    device: torch.device = opts.device or torch.device("cuda", opts.device_ids[0])
    return device if device.type == "cuda" else None


def _one_list(lists: Sequence[Sequence[Tensor]]) -> Sequence[Tensor]:
    if len(lists) != 1:
        raise InvalidArgument(
            f"a process has one device, so a call takes one list of tensors, not {len(lists)}"
        )
    return lists[0]


def _uneven(parts: Sequence[Tensor]) -> list[int] | None:
    """How many elements each part has, unless all have as many."""
    counts = [part.numel() for part in parts]
    return counts if len(set(counts)) > 1 else None


def _rows(tensor: Tensor, lengths: Sequence[int], size: int) -> list[int]:
    """The elements that go to each rank, or come from it: so many rows, by default as many for each."""
    if not lengths:
        if tensor.numel() % size or (tensor.dim() and tensor.size(0) % size):
            raise InvalidArgument(
                f"all_to_all_single: a tensor of shape {tuple(tensor.shape)} cannot be cut into {size} equal parts "
                f"along axis 0: give split sizes"
            )
        return [tensor.numel() // size] * size
    row = tensor[0].numel() if tensor.size(0) else 0
    if sum(lengths) != tensor.size(0):
        raise InvalidArgument(
            f"all_to_all_single: split sizes {list(lengths)} add up to {sum(lengths)}, and the tensor has "
            f"{tensor.size(0)} rows"
        )
    return [row * length for length in lengths]


def _options(kind: Callable[[], Any], given: Any) -> Any:
    """Options of that kind: those given, or fresh ones with the timeout given."""
    if given is None or isinstance(given, timedelta):
        opts = kind()
        if given is not None:
            opts.timeout = given
        return opts
    return given


def _with_op(opts: Any, op: object, timeout: timedelta | None) -> Any:
    if op is not None:
        opts.reduceOp = op
    return _with_timeout(opts, timeout)


def _with_root(opts: Any, root: int | None, timeout: timedelta | None) -> Any:
    opts.rootRank = root or 0
    return _with_timeout(opts, timeout)


def _with_timeout(opts: Any, timeout: timedelta | None) -> Any:
    if timeout is not None:
        opts.timeout = timeout
    return opts


def _keep_dynamo_out(kind: type) -> None:
    """A compiled program calls the methods where its graph breaks, from C++ too. There is nothing in them to compile.

    What torch.compiler.disable() does, without the second that importing torch._dynamo takes.
    """
    eval_frame = torch._C._dynamo.eval_frame
    if not hasattr(eval_frame, "set_code_exec_strategy"):  # before 2.7
        return
    skip = eval_frame._FrameAction.SKIP
    for each in vars(kind).values():
        if isinstance(each, FunctionType):
            eval_frame.set_code_exec_strategy(each.__code__, eval_frame._FrameExecStrategy(skip, skip))


_keep_dynamo_out(ProcessGroupPycollective)
