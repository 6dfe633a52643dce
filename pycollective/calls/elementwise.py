"""Calls with arrays of equal shape on all ranks, for arrays that the core cannot use in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pycollective.arrays.exact_ints import from_words, is_exact, to_words
from pycollective.arrays.library import Library
from pycollective.base.clock import Clock
from pycollective.calls.array_work import ArrayWork
from pycollective.calls.blocks import (
    block_of,
    check_block,
    check_pairs,
    copy_of,
    library_for,
    unfilled,
    writable_for,
)
from pycollective.calls.coalesced_lists import begin_coalesced, is_list_of_arrays, run_coalesced
from pycollective.calls.int_results import int_target, mismatches_explained, write_ints
from pycollective.calls.scratch import Scratch
from pycollective.errors import InvalidArgument

if TYPE_CHECKING:
    from pycollective._core import Group, Work

__all__ = ["Elementwise"]


@dataclass
class Elementwise:
    """One call of allreduce, reduce, broadcast, scan or exscan on this rank."""

    group: Group
    name: str
    op: Any
    timeout: float | None
    root: int = 0
    writes: bool = True  # whether this rank gets a result
    fixed_order: bool = False

    def __post_init__(self) -> None:
        self._clock = Clock(self.timeout)

    def make(self, x: Any, out: Any = None) -> Any:
        """Make the call on `x`: an array, a number or a list of arrays. Returns the result."""
        if is_list_of_arrays(x):
            if out is not None:
                raise InvalidArgument(
                    f"{self.name}: out= is for one array, not for a list: copy the arrays first"
                )
            return run_coalesced(self.name, x, self._run_coalesced, writes=self.writes, op=self.op)
        if is_exact(x, self.op):
            return self._of_ints(x, out)
        library = library_for(self.name, "x", x, out)
        check_pairs(self.name, "x", library.shape(x), self.op)
        if not library.mutable:
            check_block(self.name, "x", library, x, self.op)
        with Scratch() as scratch:
            if not self.writes:
                self._run(block_of(library, x, scratch), None)
                return x
            if out is not None:
                return self._into(library, x, out, scratch)
            return self._in_place(library, x, scratch) if library.mutable else self._new(library, x)

    def begin(self, x: Any, out: Any = None) -> Work[Any]:
        """Begin the call in the background, on a list of arrays or on an immutable array."""
        function = f"{self.name}_async"
        if not is_list_of_arrays(x) and not is_exact(x, self.op):
            library = library_for(function, "x", x, out)
            if not library.mutable:
                return self._begin_new(function, library, x, out)
        if out is not None:
            raise InvalidArgument(f"{function}: out= is for one array, not for a list: copy the arrays first")
        if not is_list_of_arrays(x):
            raise InvalidArgument(
                f"{function}: x is a list of numbers: call {self.name}(), or pass numpy.array(x)"
            )
        return begin_coalesced(
            function,
            x,
            lambda blocks, digest: self.group._begin_list(
                self.name, blocks, self.writes, self.op, self.root, digest, self.timeout, self.fixed_order, x
            ),
            writes=self.writes,
            op=self.op,
        )

    def _begin_new(self, function: str, library: Library, x: Any, out: Any) -> Work[Any]:
        if out is not None:
            raise InvalidArgument(
                f"{function}: an array of {library.name} comes as a new array: call it without out="
            )
        check_pairs(function, "x", library.shape(x), self.op)
        check_block(function, "x", library, x, self.op)
        block = library.empty(x, library.shape(x))
        library.assign(block, x)
        keywords: dict[str, Any] = {"timeout": self.timeout}
        if self.name in ("broadcast", "reduce"):
            keywords["root"] = self.root
        if self.name != "broadcast":
            keywords["op"] = self.op
        if self.fixed_order:
            keywords["reproducible"] = "shape"
        work = getattr(self.group, function)(block, **keywords)
        result = ArrayWork(work, (lambda: library.finished(block, x)) if self.writes else (lambda: x))
        return cast("Work[Any]", result)

    def _run(self, source: Any, target: Any) -> None:
        left_s = self._clock.left_s()
        self.group._run(self.name, source, target, self.op, self.root, None, None, left_s, self.fixed_order)

    def _run_coalesced(self, blocks: list[Any], digest: int) -> None:
        left_s = self._clock.left_s()
        self.group._run_list(
            self.name, blocks, self.writes, self.op, self.root, digest, left_s, self.fixed_order
        )

    def _of_ints(self, x: Any, out: Any) -> Any:
        words = to_words(x, self.op)
        target = None if out is None else int_target(self.name, out, words.shape[:-1])
        with mismatches_explained():
            self._run(words, words if self.writes else None)
        if not self.writes:
            return x
        result = from_words(self.name, words, x, self.op)
        if target is None:
            return result
        if self.name != "exscan" or self.group.rank > 0:
            write_ints(self.name, result, self.op, target, out)
        return out

    def _new(self, library: Library, x: Any) -> Any:
        block = library.empty(x, library.shape(x))
        library.assign(block, x)
        self._run(block, block)
        return library.finished(block, x)

    def _in_place(self, library: Library, x: Any, scratch: Scratch) -> Any:
        writable_for(self.name, "x", x)
        block = x if library.is_block(x) else copy_of(library, x, scratch)
        self._run(block, block)
        if block is not x:
            library.assign(x, block)
        return x

    def _into(self, library: Library, x: Any, out: Any, scratch: Scratch) -> Any:
        target = writable_for(self.name, "out", out)
        if library.shape(x) != target.shape(out) or library.dtype(x) != target.dtype(out):
            raise InvalidArgument(
                f"{self.name}: out is {target.dtype(out)} of shape {target.shape(out)}, but x is {library.dtype(x)} "
                f"of shape {library.shape(x)}"
            )
        source = block_of(library, x, scratch)
        if target.is_block(out):
            self._run(source, out)
            return out
        block = unfilled(target, out, target.shape(out), scratch)
        self._run(source, block)
        if self.name != "exscan" or self.group.rank > 0:
            target.assign(out, block)
        return out
