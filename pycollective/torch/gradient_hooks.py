"""A GradientReducer driven by torch's backward; shared by DataParallel and DistributedOptimizer.

A hook on each parameter records its gradient as soon as autograd has accumulated it. The last
gradient of a group of adjacent ones triggers the copy of the whole group into the bucket. A
callback at the end of backward finishes the step, so that loss.backward() returns with reduced
gradients or raises. Gradients become views of their bucket, so that nothing is copied out.

If backward raises, the engine runs no callback. The engine has the only strong reference to the
callback. So if the callback has been freed, an exception has interrupted its step. Backwards may
nest (reentrant checkpoints): each has a number.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.autograd import Variable
from torch.nn import Parameter

from pycollective._core import Group
from pycollective.errors import InvalidArgument, Unsupported
from pycollective.torch.backend.streams import Followed
from pycollective.torch.gathered import Arrival, arrivals_of
from pycollective.training.gradients.reducer import GradientReducer

if TYPE_CHECKING:
    from pycollective._core import Op

__all__ = ["GradientHooks"]

# An array in the last bucket, which becomes ready when backward has ended. The calls for sparse
# gradients follow the buckets, and the array ensures that no rank begins them unless all ranks
# reach them.
SPARSE_FOLLOW = "(sparse gradients follow)"
# An array in the last bucket. It has one element per parameter, 1 if this rank has a gradient. If
# the reduced element is 0, no rank has a gradient for the parameter, and the parameter gets none:
# zeros would let weight decay and momentum change it.
USED = "(parameters that are used)"
# An array in the last bucket. It has one element per parameter, 1 if this rank's gradient is sparse
# although the program has not named the parameter as sparse. Such a gradient is sent as a dense
# one. Ranks without a gradient for the parameter get a sparse one.
SPARSE = "(parameters with sparse gradients)"
FORWARD, STEP = 1, 2  # what a rank announces in join(), see uneven_inputs.py
KEEPS_ONES = ("avg", "sum", "max")  # operations with a nonzero result if any rank contributes 1

# The GradientHooks that reduce a parameter, by id() of the parameter. They keep the parameter
# alive, so that its id() stays unique.
_hooked: weakref.WeakValueDictionary[int, GradientHooks] = weakref.WeakValueDictionary()


class _EndOfBackward:
    """The engine's callback at the end of a backward, for all GradientHooks with gradients in it.

    The object exists exactly as long as its backward runs.
    """

    def __init__(self) -> None:
        self.hooks: list[GradientHooks] = []

    def __call__(self) -> None:
        # All hooks begin their buckets before one of them waits, because ranks may wait in
        # different orders.
        for each in self.hooks:
            each.launch_all()
        for each in self.hooks:
            each.ended()


# The callbacks of running backwards, by the number of the backward.
_ends: weakref.WeakValueDictionary[int, _EndOfBackward] = weakref.WeakValueDictionary()


class GradientHooks:
    """Reduces the gradients of parameters in every backward, or in every `passes`-th one.

    Parameters are those of GradientReducer, and:
        named_parameters: those that require grad are reduced. A parameter with several names is
            reduced once.
        sparse: the names of parameters with sparse gradients; these gradients are averaged.
        passes: the number of backwards after which the accumulated gradients are reduced.

    Thread-safety: one thread at a time.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, Parameter]],
        *,
        op: Op,
        group: Group,
        bucket_nbytes: int,
        first_bucket_nbytes: int,
        compression: Literal["bf16", "f16"] | None,
        timeout: float | None,
        sparse: Collection[str] = (),
        passes: int = 1,
    ) -> None:
        named = _distinct(named_parameters)
        self._frozen = {name: each for name, each in named.items() if not each.requires_grad}
        self._sparse = {name: each for name, each in named.items() if name in sparse and each.requires_grad}
        self._dense = {
            name: each for name, each in named.items() if each.requires_grad and name not in sparse
        }
        self._check_not_hooked()
        self._timeout = timeout
        last: dict[str, torch.Tensor] = {}
        for each in self._sparse.values():
            last[SPARSE_FOLLOW] = torch.zeros(1, device=each.device)
        self._tells_used = bool(self._dense) and op in KEEPS_ONES
        if self._tells_used:
            first = next(iter(self._dense.values()))
            for flags in (SPARSE, USED):
                last[flags] = torch.zeros(len(self._dense), dtype=first.dtype, device=first.device)
        self._reducer = GradientReducer(
            {**last, **self._dense},
            op=op,
            group=group,
            bucket_nbytes=bucket_nbytes,
            first_bucket_nbytes=first_bucket_nbytes,
            compression=compression,
            timeout=timeout,
        )
        self._group = self._reducer.group
        self._arrivals, self._gathered = arrivals_of(self._reducer, list(self._dense))
        self._step = 0  # number of the current step
        self._came = self._came_sparse = (
            0  # gradients of dense parameters that arrived in this step, and how many of them are sparse
        )
        device = next((each.device for each in self._dense.values()), torch.device("cpu"))
        self._streams = Followed(device) if device.type == "cuda" else None
        self._passes = passes
        self._passed = 0  # backwards since gradients were reduced
        self._enabled = True  # false inside no_sync()
        self._end: weakref.ref[_EndOfBackward] | None = None  # callback of the running backward
        self._reducing = False  # whether the running backward reduces
        self._open = False  # whether the reducer has a step that must be finished or reset
        self._once = op != "avg"  # whether reducing a gradient twice would change it
        # Used if `_once`: versions of the gradients after their reduction.
        self._versions: dict[str, int] = {}
        self.reduced = False  # whether the current gradients are reduced ones
        self.announce: Callable[[int], int] | None = (
            None  # in join(): announces the next step to the ranks without a batch; otherwise None
        )
        self.backwards = 0  # number of backwards that have begun
        self._closed = False
        self._install()

    def check(self) -> None:
        """Checks before a step. Resets after a failed backward, and refuses unfrozen parameters."""
        if self._closed:
            raise InvalidArgument("this DataParallel or DistributedOptimizer was ended by its close()")
        self.recover()
        self._check_frozen()

    def close(self) -> None:
        """Ends the reductions and closes the reducer's group."""
        self._closed = True
        self._reducer.close()
        self._uninstall()

    def check_between_steps(self) -> None:
        """Raises InvalidArgument in the middle of a step and in join().

        The set of reduced parameters can change only between steps.
        """
        if self._closed:
            raise InvalidArgument("this DistributedOptimizer was ended by its close()")
        self.recover()
        if self._open or self._passed or self.announce is not None:
            raise InvalidArgument(
                "add_param_group: call it between steps, outside of join(): gradients of earlier backward passes wait "
                "to be reduced"
            )
        if self._once and any(each.grad is not None for each in self._dense.values()):
            raise InvalidArgument(
                "add_param_group: call zero_grad() before: this op must not reduce gradients twice"
            )

    @contextlib.contextmanager
    def replaced(self) -> Iterator[None]:
        """Removes the hooks in this block, so that new GradientHooks can be installed.

        If the block raises, the hooks are installed again. Otherwise these GradientHooks are
        closed.
        """
        self._uninstall()
        try:
            yield
        except BaseException:
            self._install()
            raise
        self.close()

    @property
    def group(self) -> Group:
        """The group that only the buckets use."""
        return self._group

    @property
    def timeout_s(self) -> float | None:
        """Seconds for each call; None for the group's timeout."""
        return self._timeout

    def step(self) -> None:
        """Reduces the gradients of a step that no backward has begun. Announces it in join()."""
        self.check()
        if self.announce is not None:
            self.announce(STEP)
        self.synchronize()

    def begin_without_gradients(self) -> None:
        """Begins the reduction of a step for which this rank has no gradients.

        Gradients of earlier steps are dropped. synchronize() ends the step; only it makes the calls
        for sparse gradients.
        """
        self.check()
        self.backwards += 1
        for parameter in (self._dense | self._sparse).values():
            parameter.grad = None
        self._launch_all()

    def compare_parameters(self, compares: bool) -> None:
        """Sets whether PYCOLLECTIVE_CHECK=strict compares the parameters in later steps.

        All ranks must pass the same value.
        """
        self._reducer.compare_parameters(compares, in_a_step=self._open)

    @property
    def has_sparse(self) -> bool:
        """Whether any parameter was named as sparse."""
        return bool(self._sparse)

    def recover(self) -> bool:
        """Abandons the step of a backward that raised: see GradientReducer.reset().

        Returns whether there was such a step.
        """
        running = self._end is not None and self._end() is not None
        if running or not self._open:
            return False
        self.reset()
        return True

    def reset(self) -> None:
        """Abandons the step: see GradientReducer.reset()."""
        try:
            self._reducer.reset()
        finally:
            self._note_end()

    def _note_end(self) -> None:
        """Prepares the next step, unless Ctrl-C has kept the reducer's step from ending."""
        self._open = self._reducer.begun
        if self._open:
            return
        self._step += 1
        self._came = self._came_sparse = 0
        for each in self._gathered:
            each.clear()

    def restart(self) -> None:
        """Restarts the count of backwards, because the gradients have been set to zero or used."""
        self._passed = 0
        self.reduced = False

    def synchronize(self) -> None:
        """Reduces the current gradients. A missing gradient counts as zeros.

        A parameter that has no gradient on any rank gets none.
        """
        self._launch_all()
        sparse = {name: self._sparse_gradient(each) for name, each in self._sparse.items()}
        has_all_dense = self._has_all_dense
        try:
            self._reducer.finish_in_views()
        finally:
            self._note_end()
        if has_all_dense:
            for parameter, arrival in zip(self._dense.values(), self._arrivals.values(), strict=True):
                if parameter.grad is not arrival.place:
                    parameter.grad = arrival.place
        else:
            self._give_results()
        for name, gradient in sparse.items():
            self._sparse[name].grad = self._mean(gradient)
        if self._once:
            self._versions = {name: arrival.place._version for name, arrival in self._arrivals.items()}
        self._passed = 0
        self.reduced = True

    @property
    def _has_all_dense(self) -> bool:
        """Whether all gradients in the buckets have arrived in this step, and all are dense."""
        return self._came == len(self._dense) and not self._came_sparse

    def _give_results(self) -> None:
        """Sets the gradients if some are missing on this rank, or are sparse."""
        unused = self._flagged(USED, is_set=False)
        sparse_elsewhere = self._flagged(SPARSE, is_set=True)
        for name, parameter in self._dense.items():
            if parameter.requires_grad and name not in unused:
                becomes_sparse = _is_sparse(parameter) or (
                    parameter.grad is None and name in sparse_elsewhere
                )
                place = self._arrivals[name].place
                parameter.grad = place.to_sparse(1) if becomes_sparse else place

    def _flagged(self, flags: str, *, is_set: bool) -> set[str]:
        """Returns the parameters with a nonzero reduced flag (`is_set`), or with a zero flag.

        The result is empty if this rank has all gradients. The host waits for a GPU only if this
        rank lacks a gradient.
        """
        if not self._tells_used or all(each.grad is not None for each in self._dense.values()):
            return set()
        found = self._reducer.view(flags).tolist()
        return {name for name, flag in zip(self._dense, found, strict=True) if (flag != 0) == is_set}

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside this block, backward only accumulates gradients."""
        before, self._enabled = self._enabled, False
        try:
            yield
        finally:
            self._enabled = before

    @property
    def enabled(self) -> bool:
        """False inside no_sync()."""
        return self._enabled

    def _check_frozen(self) -> None:
        for name, parameter in self._frozen.items():
            if parameter.requires_grad:
                raise InvalidArgument(
                    f'"{name}" requires grad since its gradients were arranged to be reduced, so they would not be: '
                    "freeze and thaw parameters first, or call close(), and make the DataParallel or "
                    "DistributedOptimizer anew"
                )

    def _check_not_hooked(self) -> None:
        if not hasattr(Variable._execution_engine, "queue_callback") or not hasattr(
            torch._C, "_current_graph_task_id"
        ):
            raise Unsupported(
                f"torch {torch.__version__} does not tell which backward runs and when it ends: take 2.1 or newer"
            )
        for name, parameter in (self._dense | self._sparse).items():
            if id(parameter) in _hooked:
                raise InvalidArgument(
                    f'the gradient of "{name}" is being reduced already, by another DataParallel or '
                    "DistributedOptimizer: one is enough; its close() ends it"
                )

    def _uninstall(self) -> None:
        _remove(self._handles)
        for parameter in (self._dense | self._sparse).values():
            if _hooked.get(id(parameter)) is self:
                del _hooked[id(parameter)]

    def _install(self) -> None:
        me = weakref.ref(self)
        self._handles: list[Any] = []
        for name, parameter in (self._dense | self._sparse).items():
            arrival = self._arrivals.get(name)
            hook = partial(_arrived_sparse, me) if arrival is None else partial(_arrived, me, arrival)
            self._handles.append(parameter.register_post_accumulate_grad_hook(hook))
            _hooked[id(parameter)] = self
        weakref.finalize(self, _remove, self._handles)

    def _begin(self) -> None:
        """Begins the step at the first gradient of a backward."""
        self.check()
        self.backwards += 1
        self.reduced = False
        self._reducing = self._enabled and self._passed + 1 >= self._passes
        if self._reducing and self.announce is not None:
            self.announce(STEP)  # raises if the ranks announce different steps; nothing has begun yet
        self._open = self._reducing
        number = torch._C._current_graph_task_id()
        end = _ends.get(number)
        if end is None:
            end = _ends[number] = _EndOfBackward()
            Variable._execution_engine.queue_callback(end)
        end.hooks.append(self)
        self._end = weakref.ref(end)

    def launch_all(self) -> None:
        """Begins the buckets that have not begun, at the end of a backward."""
        self._end = None
        if self._reducing:
            self._launch_all()

    def ended(self) -> None:
        """Finishes a backward. launch_all() must have run for all its GradientHooks before."""
        if self._reducing:
            self.synchronize()
        elif self._enabled:
            self._passed += 1

    def _launch_all(self) -> None:
        self._open = True
        for name, parameter in self._sparse.items():
            self._check_sparse(name, parameter.grad)
        if self._came < len(self._dense):
            for name, arrival in self._arrivals.items():
                parameter = self._dense[name]
                if arrival.step != self._step and parameter.requires_grad and parameter.grad is not None:
                    self._take(arrival, parameter, additions=0)
        if self._streams is not None:
            self._go_on_behind_the_last(self._streams)
        for each in self._gathered:
            each.hand_over()
        if self._tells_used and not self._reducer.has(USED):
            self._send_used_flags()
        self._reducer.launch_all()

    def _send_used_flags(self) -> None:
        place = self._reducer.view(USED)
        # All flags are 1. Setting them to a constant needs no copy from the host to a GPU.
        if self._has_all_dense:
            place.fill_(1)
            self._reducer.ready(USED, place)
            return
        sparse = [_is_sparse(each) for each in self._dense.values()]
        if any(sparse) and not self._reducer.has(SPARSE):
            self._reducer.ready(SPARSE, torch.tensor(sparse, dtype=place.dtype, device=place.device))
        used = [each.grad is not None for each in self._dense.values()]
        self._reducer.ready(USED, torch.tensor(used, dtype=place.dtype, device=place.device))

    def _take(self, arrival: Arrival, parameter: torch.Tensor, additions: int) -> None:
        """Adds a gradient to this step. `additions` counts its accumulations since the last check.

        It runs for every parameter of a model, so its cost determines the cost of a step.
        """
        gradient = parameter.grad
        assert gradient is not None
        if self._streams is not None:
            self._go_on_behind_the_last(self._streams)
        gathered = arrival.gathered
        if gradient is not arrival.place:
            form = gradient.shape, gradient.dtype, gradient.device, gradient.layout, gradient.requires_grad
            if form == arrival.form:
                gathered.parameters.append(parameter)
                gathered.places.append(arrival.place)
                gathered.gradients.append(gradient)
                gathered.names.append(arrival.name)
            else:
                self._take_other(arrival, parameter, gradient)
        else:
            if self._once:
                self._check_not_reduced(arrival, gradient, additions)
            gathered.names.append(arrival.name)
        arrival.step = self._step
        self._came += 1
        gathered.missing -= 1
        if not gathered.missing:
            gathered.hand_over()

    def _take_other(self, arrival: Arrival, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        """Handles a gradient that cannot be copied in a group: a sparse one, or one to refuse."""
        if gradient.requires_grad:
            raise Unsupported(
                f'the gradient of "{arrival.name}" was made with create_graph=True, and what it is reduced to would '
                "have no graph: take torch.autograd.grad() for what is differentiated twice"
            )
        if gradient.layout is torch.sparse_coo and self._tells_used and not self._once:
            self._reducer.ready(arrival.name, _dense(gradient))
            self._came_sparse += 1
            return
        if gradient.layout is not torch.strided:
            raise Unsupported(
                f'the gradient of "{arrival.name}" has the layout {gradient.layout}: gradients are reduced in strided '
                'tensors, and in sparse COO ones with op "avg"'
            )
        parameter.grad = self._reducer.ready(arrival.name, gradient)

    def _check_not_reduced(self, arrival: Arrival, gradient: torch.Tensor, additions: int) -> None:
        before = self._versions.get(arrival.name)
        if before is not None and gradient._version == before + additions:
            raise InvalidArgument(
                f'the gradient of "{arrival.name}" was reduced before and not set to zero since, so this would reduce '
                "it twice: zero_grad() before the next backward, and use_reentrant=False in checkpoints"
            )

    def _go_on_behind_the_last(self, streams: Followed) -> None:
        """Orders the current stream after that of the previous gradient.

        Backward uses the streams of forward, which may differ, and a bucket is sent on the stream
        of its last gradient.
        """
        stream = streams.follow()
        if stream is not None:
            for each in self._gathered:
                each.record_stream(stream)

    def _check_sparse(self, name: str, gradient: torch.Tensor | None) -> None:
        if gradient is not None and (gradient.requires_grad or gradient.layout is not torch.sparse_coo):
            raise Unsupported(
                f'the gradient of "{name}" is no sparse one ({gradient.layout}), or was made with create_graph=True'
            )

    def _sparse_gradient(self, parameter: torch.Tensor) -> torch.Tensor:
        """Returns a sparse gradient with one index per row, as nn.Embedding makes it.

        Indices must have the same length on all ranks.
        """
        gradient = parameter.grad
        if gradient is None:
            where = torch.zeros((1, 0), dtype=torch.int64, device=parameter.device)
            return torch.sparse_coo_tensor(
                where, parameter.new_zeros(0, *parameter.shape[1:]), parameter.shape
            )
        return gradient if gradient.sparse_dim() == 1 else _dense(gradient).to_sparse(1)

    def _mean(self, gradient: torch.Tensor) -> torch.Tensor:
        """Averages a sparse gradient over the ranks.

        The indices and values of all ranks are gathered, and the values of equal indices are added.
        """
        mine = gradient.coalesce()
        indices = mine.indices().t().contiguous()  # one row per index, because allgather() joins rows
        indices = self._group.allgather(indices, counts="auto", timeout=self._timeout)
        values = self._group.allgather(mine.values(), counts="auto", timeout=self._timeout)
        values = values / self._group.size
        return torch.sparse_coo_tensor(indices.t(), values, mine.shape, check_invariants=True).coalesce()


def _dense(gradient: torch.Tensor) -> torch.Tensor:
    """Does what to_dense() does, also for values of stride 0, such as in the gradient of sum().

    For such values, to_dense() of torch 2.13 returns zeros.
    """
    values = gradient._values()
    values = values.new_empty(values.shape).copy_(values)
    return torch.sparse_coo_tensor(
        gradient._indices(), values, gradient.shape, is_coalesced=gradient.is_coalesced()
    ).to_dense()


def _is_sparse(parameter: Parameter) -> bool:
    return parameter.grad is not None and parameter.grad.layout is torch.sparse_coo


def _arrived(me: weakref.ref[GradientHooks], arrival: Arrival, parameter: torch.Tensor) -> None:
    """The hook of a parameter. `me` is weak, so the hook does not keep the GradientHooks alive."""
    hooks = me()
    if hooks is None:
        return
    if hooks._end is None or hooks._end() is None:
        hooks._begin()
    if hooks._reducing:
        if arrival.step == hooks._step:
            raise InvalidArgument(
                f'"{arrival.name}" got two gradients in one backward, as in two checkpoints with use_reentrant=True: '
                "take use_reentrant=False"
            )
        hooks._take(arrival, parameter, 1)


def _arrived_sparse(me: weakref.ref[GradientHooks], _: torch.Tensor) -> None:
    """The hook of a sparse parameter. Its gradient is reduced at the end of backward."""
    hooks = me()
    if hooks is not None and (hooks._end is None or hooks._end() is None):
        hooks._begin()


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()


def _distinct(named_parameters: Iterable[tuple[str, Parameter]]) -> dict[str, Parameter]:
    """Returns each parameter under its first name."""
    named: dict[str, Parameter] = {}
    seen: set[int] = set()
    for name, parameter in named_parameters:
        if id(parameter) in seen:
            continue
        if name in named:
            raise InvalidArgument(f'two parameters are called "{name}"')
        seen.add(id(parameter))
        named[name] = parameter
    return named
