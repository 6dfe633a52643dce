"""Collects calls and makes them together, in few messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pycollective._core import world
from pycollective.base.advice import advised
from pycollective.errors import InvalidArgument

if TYPE_CHECKING:
    import types

    from typing_extensions import Self

    from pycollective._core import Array, Group, Op
    from pycollective.arrays.overlaps import Layout

__all__ = ["Coalesced", "coalesce"]

X = TypeVar("X", bound="Array")


class _Kind:
    """Calls that can be combined into one call on a list."""

    def __init__(self, name: str, parameters: dict[str, object]) -> None:
        self.name = name
        self.parameters = parameters
        self.arrays: list[object] = []


class Coalesced:
    """Collects calls until its `with` block ends; see coalesce().

    Thread-safety: one thread at a time may use an object.
    """

    def __init__(self, group: Group, timeout: float | None) -> None:
        self._group = group
        self._timeout = timeout
        self._kinds: list[_Kind] = []
        self._spans: list[tuple[int, int, Layout]] = []
        self._open = False

    def allreduce(self, x: X, op: Op = "sum") -> X:
        """Collect an allreduce.

        Returns `x`, which holds the result after the block has ended.
        """
        return self._add("allreduce", x, op=op)

    def broadcast(self, x: X, root: int = 0) -> X:
        """Collect a broadcast, as allreduce() does."""
        return self._add("broadcast", x, root=root)

    def reduce(self, x: X, op: Op = "sum", *, root: int = 0) -> X:
        """Collect a reduce, as allreduce() does."""
        return self._add("reduce", x, op=op, root=root)

    def scan(self, x: X, op: Op = "sum") -> X:
        """Collect a scan, as allreduce() does."""
        return self._add("scan", x, op=op)

    def exscan(self, x: X, op: Op = "sum") -> X:
        """Collect an exclusive scan, as allreduce() does."""
        return self._add("exscan", x, op=op)

    def _add(self, name: str, x: X, **parameters: object) -> X:
        from pycollective.arrays.overlaps import overlap_in
        from pycollective.calls.blocks import check_block, library_for

        if not self._open:
            raise InvalidArgument(f"{name}: this coalesce() collects calls in its with block only")
        if isinstance(x, (list, tuple, dict)):
            raise InvalidArgument(f"{name}: coalesce() takes one array per call: make one for each of them")
        library = library_for(name, "x", x)
        check_block(name, "x", library, x, parameters.get("op"))
        if not library.mutable:
            raise InvalidArgument(
                f"{name}: x cannot be written, so its result would be a new array, which coalesce() cannot return "
                "before it has ended: call with a list instead"
            )
        root = parameters.get("root", self._group.rank)
        writes = (root != self._group.rank) if name == "broadcast" else (root == self._group.rank)
        if writes and (why := library.why_not_written(x)):
            raise InvalidArgument(f"{name}: x {why}")
        if library.nbytes(x):
            layout = library.layout(x)
            begin, end = layout.span
            near = [each for other, other_end, each in self._spans if begin < other_end and other < end]
            if any(overlap_in((layout, each)) for each in near):
                raise InvalidArgument(
                    f"{name}: x shares memory with an array of an earlier call in this coalesce(), and its calls are "
                    "made in no particular order"
                )
            self._spans.append((begin, end, layout))
        kind = next((k for k in self._kinds if (k.name, k.parameters) == (name, parameters)), None)
        if kind is None:
            kind = _Kind(name, parameters)
            self._kinds.append(kind)
        kind.arrays.append(x)
        return x

    def __enter__(self) -> Self:
        if self._kinds or self._open:
            raise InvalidArgument("coalesce(): it has been used: each with block needs one of its own")
        self._open = True
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        from pycollective.base.clock import Clock

        self._open = False
        if error_type is not None:
            return
        clock = Clock(self._timeout)
        for kind in self._kinds:
            call = getattr(self._group, kind.name)
            call(kind.arrays, **kind.parameters, timeout=clock.left_s())


@advised
def coalesce(*, group: Group | None = None, timeout: float | None = None) -> Coalesced:
    """Collect calls in a `with` block, and make them together at its end.

    Calls of the same kind and dtype share one message. All ranks of the group must collect the same
    calls in the same order, with arrays of the same shapes and dtypes.

    Args:
        group: the ranks that take part; default the world.
        timeout: seconds for all calls together; by default each message has the timeout of init().

    Returns:
        An object with the methods allreduce, broadcast, reduce, scan and exscan. Each returns its
        array at once. The array holds the result after the block has ended. If the block raises,
        nothing is sent.

    Raises:
        InvalidArgument: at the call: an array cannot be written, or shares memory with an array of
            an earlier call.
        CollectiveMismatch: at the end of the block: ranks have collected different calls.

    Example:
        >>> import numpy as np, pycollective as pc
        >>> _ = pc.init()
        >>> weight, bias = np.ones((2, 3)), np.ones(3)
        >>> with pc.coalesce() as calls:
        ...     _ = calls.allreduce(weight, "avg")
        ...     _ = calls.allreduce(bias, "avg")
        >>> pc.shutdown()
    """
    return Coalesced(world() if group is None else group, timeout)
