"""A GradientReducer that torch's backward drives: what DataParallel and DistributedOptimizer share.

A hook on each parameter hands its gradient to the reducer as soon as autograd has accumulated it; a callback at the end
of backward finishes the step, so that loss.backward() comes back with reduced gradients, or raises. Small gradients
become views of their bucket, large ones are reduced where they lie: nothing is copied out.

The engine runs no callback if backward raises. It holds the only reference to ours, so a step whose callback is gone
is one that an exception has cut off.
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
from pycollective.gradients.reducer import GradientReducer

if TYPE_CHECKING:
    from pycollective._core import Op

__all__ = ["GradientHooks"]

# In the last bucket, and ready when backward has ended: no rank begins with the sparse gradients, which follow the
# buckets, unless all come to them.
SPARSE_FOLLOW = "(sparse gradients follow)"

# Who reduces a parameter, by its id(), which is its own as long as its GradientHooks hold it.
_hooked: weakref.WeakValueDictionary[int, GradientHooks] = weakref.WeakValueDictionary()


class _EndOfBackward:
    """What the engine calls; whether it is alive tells whether that backward is."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def __call__(self) -> None:
        self._act()


class GradientHooks:
    """Reduces the gradients of parameters in every backward, or in every `passes`-th one.

    Parameters as of GradientReducer, and:
        named_parameters: those that require grad are reduced; one that comes under several names, once.
        sparse: the names of those whose gradients are sparse; they are averaged.
        passes: backward passes that accumulate until one reduces.
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
        last = {SPARSE_FOLLOW: torch.zeros(1)} if self._sparse else {}
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
        self._passes = passes
        self._passed = 0  # backward passes since gradients were reduced
        self._enabled = True  # False in no_sync()
        self._end: weakref.ref[_EndOfBackward] | None = None  # of the backward that has begun and not ended
        self._reducing = False  # whether that backward reduces
        self._open = False  # whether a step of the reducer has begun that must be ended
        self.reduced = False  # whether the gradients are those of all ranks
        self._install()

    def check(self) -> None:
        """To be called before a step: clears up after a backward that raised, and refuses what the hooks miss."""
        self.recover()
        for name, parameter in self._frozen.items():
            if parameter.requires_grad:
                raise InvalidArgument(
                    f'"{name}" requires grad since its gradients were arranged to be reduced, so they would not be: '
                    "freeze and thaw parameters first, and then make the DataParallel or DistributedOptimizer anew"
                )

    def recover(self) -> bool:
        """Gives up the step of a backward that raised, if there is one: see GradientReducer.reset()."""
        running = self._end is not None and self._end() is not None
        if running or not self._open:
            return False
        self.reset()
        return True

    def reset(self) -> None:
        """Gives the step up: see GradientReducer.reset()."""
        self._open = False
        self._reducer.reset()

    def restart(self) -> None:
        """Forgets the passes that were accumulated: somebody has set the gradients to zero."""
        self._passed = 0
        self.reduced = False

    def synchronize(self) -> None:
        """Reduces the gradients as they are now; parameters without one count as zeros."""
        missing = self._reducer.missing()
        missing = [name for name in missing if name in self._dense and self._dense[name].requires_grad]
        for name in missing:
            if (gradient := self._dense[name].grad) is not None:
                self._take(name, gradient)
        sparse = {name: self._sparse_gradient(name) for name in self._sparse}
        try:
            reduced = self._reducer.finish()
        finally:
            self._open = self._reducer.begun  # after Ctrl-C
        for name in missing:
            self._dense[name].grad = reduced[name]
        for name, gradient in sparse.items():
            self._sparse[name].grad = self._mean(gradient)
        self._passed = 0
        self.reduced = True

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward in this block accumulates only."""
        before, self._enabled = self._enabled, False
        try:
            yield
        finally:
            self._enabled = before

    @property
    def enabled(self) -> bool:
        """False in no_sync()."""
        return self._enabled

    def _check_not_hooked(self) -> None:
        if not hasattr(Variable._execution_engine, "queue_callback"):
            raise Unsupported("this torch cannot tell the end of backward: it has no queue_callback")
        for name, parameter in (self._dense | self._sparse).items():
            if id(parameter) in _hooked:
                raise InvalidArgument(
                    f'the gradient of "{name}" is being reduced already, by another DataParallel or '
                    "DistributedOptimizer: one is enough"
                )

    def _install(self) -> None:
        me = weakref.ref(self)
        handles = []
        for name, parameter in (self._dense | self._sparse).items():
            hook = partial(_arrived, me, name)
            handles.append(parameter.register_post_accumulate_grad_hook(hook))
            _hooked[id(parameter)] = self
        weakref.finalize(self, _remove, handles)

    def _arrived(self, name: str, parameter: torch.Tensor) -> None:
        if self._end is None or self._end() is None:
            self._begin()
        if not self._reducing or name in self._sparse:  # of which the turn is at the end
            return
        gradient = parameter.grad
        assert gradient is not None
        try:
            taken = self._take(name, gradient)
        except InvalidArgument as error:
            if name not in self._reducer.missing():
                error.args = (
                    f"{error}. It got two gradients in one backward, as in two checkpoints with use_reentrant=True: "
                    "take use_reentrant=False",
                )
            raise
        if taken is not gradient:
            parameter.grad = taken

    def _begin(self) -> None:
        """The first gradient of a backward."""
        self.recover()
        self.reduced = False
        self._reducing = self._open = self._enabled and self._passed + 1 >= self._passes
        end = _EndOfBackward(self._ended)
        Variable._execution_engine.queue_callback(end)
        self._end = weakref.ref(end)

    def _ended(self) -> None:
        self._end = None
        if self._reducing:
            self.synchronize()
        elif self._enabled:
            self._passed += 1

    def _take(self, name: str, gradient: torch.Tensor) -> torch.Tensor:
        if gradient.requires_grad:
            raise Unsupported(
                f'the gradient of "{name}" was made with create_graph=True, and what it is reduced to would have no '
                "graph: take torch.autograd.grad() for what is differentiated twice"
            )
        if gradient.layout is not torch.strided:
            raise Unsupported(
                f'the gradient of "{name}" is sparse: DataParallel reduces those of nn.Embedding(sparse=True)'
            )
        taken: torch.Tensor = self._reducer.ready(name, gradient, in_place=True)
        return taken

    def _sparse_gradient(self, name: str) -> torch.Tensor:
        parameter = self._sparse[name]
        gradient = parameter.grad
        if gradient is None:
            return torch.zeros(parameter.shape, dtype=parameter.dtype, layout=torch.sparse_coo)
        if gradient.requires_grad or gradient.layout is not torch.sparse_coo:
            raise Unsupported(
                f'the gradient of "{name}" is no sparse one ({gradient.layout}), or was made with create_graph=True'
            )
        return gradient

    def _mean(self, gradient: torch.Tensor) -> torch.Tensor:
        """Of a sparse one: the indices and values of all ranks, one behind the other, and those of one index added."""
        mine = gradient.coalesce()
        indices = mine.indices().t().contiguous()  # one row for each, since axis 0 is gathered
        indices = self._group.allgather(indices, counts="auto", timeout=self._timeout)
        values = self._group.allgather(mine.values(), counts="auto", timeout=self._timeout)
        values = values / self._group.size
        return torch.sparse_coo_tensor(indices.t(), values, mine.shape, check_invariants=True).coalesce()


def _arrived(me: weakref.ref[GradientHooks], name: str, parameter: torch.Tensor) -> None:
    """The hook of a parameter. It does not keep the GradientHooks alive."""
    hooks = me()
    if hooks is not None:
        hooks._arrived(name, parameter)


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()


def _distinct(named_parameters: Iterable[tuple[str, Parameter]]) -> dict[str, Parameter]:
    """Each parameter under its first name."""
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
