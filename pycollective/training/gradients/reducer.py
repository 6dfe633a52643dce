"""Reduces one training step's gradients over all ranks in buckets, while backward computes."""

# ruff: noqa: ANN401  arrays of any library
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pycollective._core import Group, Scaled, world
from pycollective.arrays.gpu_arrays import is_on_gpu
from pycollective.arrays.libraries import Library, library_of, on_the_host
from pycollective.base.advice import advised
from pycollective.calls.blocks import check_block, library_for
from pycollective.errors import CollectiveError, CollectiveMismatch, InvalidArgument
from pycollective.training.gradients.bucket import Bucket, Place
from pycollective.training.gradients.compression import check_format
from pycollective.training.gradients.layout import Slot, check_same_on_all_ranks, cut
from pycollective.training.gradients.parameter_check import ParameterCheck

if TYPE_CHECKING:
    from pycollective._core import Op

__all__ = ["GradientReducer"]


class GradientReducer:
    """Reduces the gradients of a training step over all ranks, in buckets, in the background.

    Unlike allreduce(), it does not change the gradients that it is given: use the returned ones.

        reducer = pc.GradientReducer(parameters)              # {"weight": array, "bias": array}
        for batch in batches:
            gradients = reducer.reduce(gradient_of(parameters, batch))

    To overlap communication with computation, call `ready(name, gradient)` for each gradient as
    soon as it is computed, the last layer first, and `finish()` after the last one. Every step
    ends, on every rank, with either finish() or reset().

    Every bucket holds gradients of one dtype, in reverse order of the parameters, and is one
    allreduce in the background. Buckets begin in the order of their numbers, and not in the order
    in which they are completed. So ranks that compute gradients in different orders, or not at all,
    still make the same calls. (Li et al., PyTorch Distributed, VLDB 2020.)

    Parameters:
        parameters: (name, array) pairs or a dict, in the same order on all ranks. Only shapes and
            dtypes are used. Arrays of NumPy, torch, JAX or CuPy; GPU arrays must be on one GPU. JAX
            arrays on a GPU are copied through the host.
        op: how gradients are combined, as in allreduce(). "avg" weighs ranks equally, regardless of
            their number of samples: for batches of different sizes scale the loss by `samples here
            * size / samples everywhere`.
        group: the ranks that take part; default the world. Ranks outside a subgroup hold None for
            it, and None means the world, so they must not call this.
        bucket_nbytes: the maximum size of a bucket; a larger gradient has its own bucket.
        first_bucket_nbytes: the same for the first bucket, which is small so that it is sent early.
        compression: "bf16" or "f16" sends float32 and float64 gradients in 16 bits. They are
            rounded before sending and by every addition. A value beyond the range of f16 becomes
            infinite in float32, where loss scalers detect it; in float64 finish() raises
            InvalidArgument on all ranks.
        timeout: seconds for each bucket; default that of init().

    The buckets use their own group: calls on `group`, also during backward, have no order relative
    to them and do not wait for them. Buckets are in memory that the ranks of a host share, if there
    is any. Buckets of GPU gradients are on the GPU, and are queued on the current stream of their
    library. Compute all gradients of a step on one stream; finish() orders that stream after the
    results and does not wait for them. Thread-safety: one thread at a time.

    With PYCOLLECTIVE_CHECK=strict, each step also compares the ranks' parameters before the step:
    those that are writable arrays on the host and have changed. This detects a rank that has
    stepped with its own gradients. In pc.torch.join() parameters are not compared.

    Raises:
        InvalidArgument: a name or an array occurs twice, or an argument is invalid.
        Unsupported: `op` does not support a dtype.
        CollectiveMismatch: the ranks have different parameters or settings. All ranks raise it,
            with the first parameter that differs, and the group stays usable.
        As allreduce(), since the ranks compare their parameters.

    Example:
        >>> import numpy as np, pycollective as pc
        >>> _ = pc.init()
        >>> reducer = pc.GradientReducer({"weight": np.zeros((2, 2)), "bias": np.zeros(2)})
        >>> gradients = reducer.reduce({"weight": np.ones((2, 2)), "bias": np.array([1.0, 2.0])})
        >>> gradients["bias"]
        array([1., 2.])
        >>> pc.shutdown()
    """

    @advised
    def __init__(
        self,
        parameters: Mapping[str, Any] | Iterable[tuple[str, Any]],
        *,
        op: Op = "avg",
        group: Group | None = None,
        bucket_nbytes: int = 25 << 20,
        first_bucket_nbytes: int = 1 << 20,
        compression: Literal["bf16", "f16"] | None = None,
        timeout: float | None = None,
    ) -> None:
        check_format(compression)
        if min(bucket_nbytes, first_bucket_nbytes) < 1:
            raise InvalidArgument("GradientReducer: a bucket has at least one byte")
        ranks = world() if group is None else group
        self._op = op
        self._timeout = timeout
        self._next = 0  # number of the first bucket that has not begun
        self._given_up = False  # true from the beginning of reset() to its end
        arrays = dict(_checked(parameters, op))
        slots = [_slot(name, x) for name, x in arrays.items()]
        how = op if isinstance(op, str) else f"{op.op} * {op.factor}"
        settings = [
            f"op {how}",
            f"buckets {first_bucket_nbytes}, {bucket_nbytes} B",
            f"compression {compression}",
        ]
        # The arrays "(...)" that the torch hooks add follow from the parameters. They are compared
        # last, so that an error names a parameter.
        compared = sorted(slots, key=lambda slot: slot.name.startswith("("))
        check_same_on_all_ranks(ranks, compared, settings, timeout)
        own = ranks.split(0, timeout=timeout)
        assert own is not None
        self._group = own
        self._parameter_check = ParameterCheck(arrays, own) if own._is_strict else None
        self._compares = self._will_compare = (
            True  # whether PYCOLLECTIVE_CHECK=strict compares parameters in this step, and in the next one
        )
        self._buckets: list[Bucket] = []
        self._places: dict[str, Place] = {}
        parts = cut(slots, bucket_nbytes, first_bucket_nbytes)
        for number, together in enumerate(parts):
            like = arrays[together[0].name]
            title = f'bucket {number + 1} of {len(parts)}, "{together[0].name}" to "{together[-1].name}"'
            bucket = Bucket(together, _library(like), like, compression, title)
            begin_nbytes = begin = 0
            for slot in together:
                like = arrays[slot.name]
                self._places[slot.name] = Place(slot, _library(like), bucket, begin_nbytes, begin, like)
                begin_nbytes += slot.nbytes
                begin += math.prod(slot.shape)
            self._buckets.append(bucket)

    @property
    def group(self) -> Group:
        """The group of the buckets, which has the ranks that take part."""
        return self._group

    @property
    def buckets(self) -> tuple[tuple[str, ...], ...]:
        """The names in each bucket, in the order in which they are sent."""
        return tuple(bucket.names for bucket in self._buckets)

    @property
    def begun(self) -> bool:
        """Whether this step has taken a gradient or sent a bucket."""
        return any(
            bucket.work is not None or len(bucket.missing) < len(bucket.names) for bucket in self._buckets
        )

    def compare_parameters(self, compares: bool, *, in_a_step: bool) -> None:
        """Sets whether PYCOLLECTIVE_CHECK=strict compares the parameters.

        The setting applies now or, if `in_a_step`, from the next step on. pc.torch.join() uses it.
        It must be the same on all ranks.
        """
        self._will_compare = compares
        if not in_a_step:
            self._compares = compares

    def close(self) -> None:
        """Releases the resources of the reducer's group: see Group.close().

        No gradient can be reduced after this.
        """
        self._group.close()

    def view(self, name: str) -> Any:
        """Returns the array in the bucket that holds a gradient.

        It belongs to the parameter's library, or to NumPy for JAX, and is the same array at every
        call. To save a copy, compute the gradient there and pass the array to ready().
        """
        return self._place(name).view

    def has(self, name: str) -> bool:
        """Returns whether this step has that gradient."""
        return name not in self._place(name).bucket.missing

    def missing(self) -> list[str]:
        """Returns the names of the gradients that this step does not have yet."""
        return [name for bucket in self._buckets for name in bucket.names if name in bucket.missing]

    def ready(self, name: str, gradient: Any) -> Any:
        """Adds a gradient to this step, and begins buckets that have become complete.

        The gradient is copied to view(name) unless it is that array.

        Returns:
            view(name), which will contain the result: do not use it until finish() has returned.

        Raises:
            InvalidArgument: the name is unknown, the shape or dtype differs, or the gradient was
                given before in this step. The gradient was not taken, and the step continues.
            As allreduce_async(), if a bucket cannot begin. The gradient was taken; finish()
                tries again.
        """
        self._check_not_given_up()
        place = self._place(name)
        missing = place.bucket.missing
        if name not in missing:
            raise InvalidArgument(
                f'GradientReducer: "{name}" was given before in this step: add its gradients up and give it once; '
                "finish() or reset() ends a step"
            )
        if gradient is not place.view:
            place.check(gradient)
        place.take(gradient)
        missing.remove(name)
        if not missing:
            self._launch()
        return place.view

    def ready_together(self, names: Sequence[str], places: Sequence[Any], gradients: Sequence[Any]) -> None:
        """Does what ready() does for gradients of one bucket and library, in one copy.

        The caller must have checked the gradients. Names that this step has already are ignored, so
        that the call can be repeated after Ctrl-C.

        Parameters:
            names: the names of the gradients that are ready, at least one.
            places: view() of the names with gradients that are not in their bucket yet.
            gradients: the gradients to copy to `places`.
        """
        self._check_not_given_up()
        place = self._place(names[0])
        missing = place.bucket.missing
        if missing.isdisjoint(names):
            return
        place.library.assign_many(places, gradients)
        missing.difference_update(names)
        if not missing:
            self._launch()

    def launch_all(self) -> None:
        """Begins all buckets of this step; missing gradients count as zeros. finish() calls it.

        If several reducers end a step together, call it on each before the first finish(), so that
        no rank waits in one reducer for a rank that waits in another one.

        Raises:
            As allreduce_async(), if a bucket cannot begin; finish() tries again.
        """
        self._check_not_given_up()
        for bucket in self._buckets[self._next :]:
            for name in bucket.missing:
                self._places[name].zero()
            bucket.missing.clear()
        self._launch()

    def finish(self) -> dict[str, Any]:
        """Ends a step: waits for the buckets. Missing gradients count as zeros.

        Returns:
            the reduced gradients by name. Those of NumPy and torch are view(name), which the next
            step overwrites; those of JAX are new arrays.

        Raises:
            As allreduce(); as in allreduce(), the next call reports a later GPU failure. The step
            has ended nevertheless; gradients are unspecified. CollectiveMismatch also if another
            rank has abandoned this step with reset(), and with PYCOLLECTIVE_CHECK=strict on all
            ranks if the parameters differ: the group and all reducers stay usable.
            KeyboardInterrupt: the step has not ended: call finish() again.
        """
        results: dict[str, Any] = {}
        self._end(results)
        return results

    def finish_in_views(self) -> None:
        """Does what finish() does, if all arrays are writable: each result is view(name)."""
        self._end(None)

    def _end(self, results: dict[str, Any] | None) -> None:
        """Ends a step, and stores the reduced gradients in `results`."""
        self.launch_all()
        calls = self._calls()
        errors = [each.error() for each in calls]
        if results is not None and not any(errors):
            results.update((name, place.result()) for name, place in self._places.items())
        self._clear()
        failed = next((number for number, error in enumerate(errors) if error is not None), None)
        if failed is not None:
            try:
                raise _explained(errors[failed], calls[failed].title)
            finally:
                errors.clear()  # otherwise each error and this frame would refer to each other

    def reduce(self, gradients: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> dict[str, Any]:
        """Runs a whole step: ready() for each gradient, and finish(). Missing ones count as zeros.

        gradients: a dict, or (name, gradient) pairs.

        The given gradients are unchanged, so write `gradients = reducer.reduce(gradients)`. Returns
        and raises as finish() does. An InvalidArgument is raised before anything is sent.
        """
        gradients = _by_name(gradients)
        for name, gradient in gradients.items():
            place = self._place(name)
            if gradient is not place.view:
                place.check(gradient)
            if self.has(name):
                raise InvalidArgument(f'GradientReducer: "{name}" was given before in this step')
        for bucket in self._buckets:
            for names in self._by_library(name for name in bucket.names if name in gradients):
                copied = [name for name in names if gradients[name] is not self._places[name].view]
                places = [self._places[name].view for name in copied]
                self.ready_together(names, places, [gradients[name] for name in copied])
        return self.finish()

    def reset(self) -> None:
        """Abandons this step on this rank, after an exception. The next step can begin at once.

        The other ranks may have sent, or may still send, buckets that this rank will not send. A
        collective cannot be left out, so this rank makes a barrier in place of each. Then finish()
        on the other ranks raises CollectiveMismatch, which reports the reset, and no rank trains on
        incomplete gradients. If all ranks abandon the step, none raises. reset() waits until the
        other ranks have reached this step. With PYCOLLECTIVE_CHECK=off none of this works, because
        a barrier is not distinguished from an allreduce. On a GPU with NCCL calls,
        CollectiveMismatch ends the reducer's group: make another reducer.

        Raises:
            As barrier_async(), if the group has ended. Other errors are raised on the other ranks.
            KeyboardInterrupt: the step has not been abandoned yet: call reset() again.
        """
        self._given_up = True
        for each in self._calls():
            if each.work is None:
                each.work = self._group.barrier_async(timeout=self._timeout)
        for each in self._calls():
            assert each.work is not None
            each.work.exception()
        self._clear()

    def __repr__(self) -> str:
        nbytes = sum(bucket.nbytes for bucket in self._buckets)
        return (
            f"<GradientReducer of {len(self._places)} gradients, {nbytes} B in {len(self._buckets)} buckets>"
        )

    def _place(self, name: str) -> Place:
        try:
            return self._places[name]
        except KeyError:
            raise InvalidArgument(f'GradientReducer: there is no parameter "{name}"') from None

    def _by_library(self, names: Iterable[str]) -> Iterable[list[str]]:
        """Returns the names, grouped by the library of their arrays."""
        found: dict[str, list[str]] = {}
        for name in names:
            found.setdefault(self._places[name].library.name, []).append(name)
        return found.values()

    def _launch(self) -> None:
        """Begins complete buckets in order, up to the first incomplete one."""
        while self._next < len(self._buckets) and not self._buckets[self._next].missing:
            if self._next == 0 and (alike := self._compared()) is not None and alike.work is None:
                alike.begin(self._timeout)
            self._buckets[self._next].launch(self._group, self._op, self._timeout)
            self._next += 1

    def _clear(self) -> None:
        for bucket in self._buckets:
            bucket.clear()
        self._next = 0
        self._given_up = False
        self._compares = self._will_compare
        if self._parameter_check is not None:
            self._parameter_check.work = None

    def _compared(self) -> ParameterCheck | None:
        """Returns the check of the parameters if this step makes it, else None."""
        return self._parameter_check if self._compares and self._buckets else None

    def _calls(self) -> list[ParameterCheck | Bucket]:
        """Returns the objects that make a call in each step, in the order of the calls."""
        compared = self._compared()
        return [*([] if compared is None else [compared]), *self._buckets]

    def _check_not_given_up(self) -> None:
        if self._given_up:
            raise InvalidArgument("GradientReducer: reset() was interrupted: call it again")


def _library(x: Any) -> Library:
    """Returns the parameter's library; for JAX arrays on a GPU that of JAX on the host."""
    return on_the_host(library_of(x))


def _gpu_of(x: Any) -> Any:
    """Returns the GPU of the parameter's bucket, or None for the host."""
    library = _library(x)
    return (library.name, getattr(x, "device", None)) if library.name != "jax" and is_on_gpu(x) else None


def _slot(name: str, x: Any) -> Slot:
    library = library_of(x)
    return Slot(name, library.shape(x), library.dtype(x), library.nbytes(x), library.order(x))


def _by_name(gradients: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> dict[str, Any]:
    try:
        pairs = list(gradients.items() if isinstance(gradients, Mapping) else gradients)
        by_name = dict(pairs)
    except (TypeError, ValueError):
        raise InvalidArgument(
            "GradientReducer: gradients must be a dict or (name, gradient) pairs: give names, as "
            "dict(zip(names, gradients))"
        ) from None
    if len(by_name) < len(pairs):
        raise InvalidArgument("GradientReducer: two gradients have one name")
    return by_name


def _checked(parameters: Mapping[str, Any] | Iterable[tuple[str, Any]], op: Op) -> Iterable[tuple[str, Any]]:
    """Yields the pairs of `parameters`, each after checking it."""
    if not isinstance(op, (str, Scaled)) or op in ("minloc", "maxloc"):
        raise InvalidArgument(
            f"GradientReducer: op {op!r} does not combine gradients: take an operation on elements"
        )
    names: set[str] = set()
    owners: dict[int, str] = {}
    gpus: dict[str, str] = {}
    for pair in parameters.items() if isinstance(parameters, Mapping) else parameters:
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
            raise InvalidArgument(
                "GradientReducer: parameters must be a dict or (name, array) pairs, and this one is a "
                f"{type(pair).__name__}: give names, as dict(zip(names, arrays))"
            )
        name, x = pair
        if not isinstance(name, str):
            raise InvalidArgument(
                f"GradientReducer: the name {name!r:.60} is of type {type(name).__name__}: names are texts"
            )
        if name in names:
            raise InvalidArgument(f'GradientReducer: two parameters are called "{name}"')
        library = library_for("GradientReducer", f'parameter "{name}"', x)
        if library.name == "numbers":
            raise InvalidArgument(f'GradientReducer: parameter "{name}" is no array: pass numpy.array({x!r})')
        if library.mutable and owners.setdefault(id(x), name) != name:
            raise InvalidArgument(
                f'GradientReducer: "{owners[id(x)]}" and "{name}" are one array: give it once, with the sum of its '
                "gradients"
            )
        check_block("GradientReducer", f'parameter "{name}"', library, x, op)
        gpus.setdefault(str(_gpu_of(x)), name)
        if len(gpus) > 1:
            raise InvalidArgument(
                f'GradientReducer: "{gpus.popitem()[1]}" does not lie where "{next(iter(gpus.values()))}" does: make a '
                "reducer for the parameters of each GPU, and one for those of the CPU"
            )
        names.add(name)
        yield name, x


def _explained(error: CollectiveError | None, title: str) -> CollectiveError:
    assert error is not None
    text = f"{str(error).rstrip('.')}.\nThis was {title}."
    if isinstance(error, CollectiveMismatch) and "barrier" in str(error):
        text += " A rank that made a barrier instead may have given this step up, with reset()."
    error.args = (text,)
    return error
