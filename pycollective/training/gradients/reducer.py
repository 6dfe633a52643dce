"""One training step's gradients, reduced over all ranks bucket by bucket while the rest is still being computed."""

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
    """Reduces the gradients of a training step over all ranks of a group, in buckets, in the background.

    The gradients given stay as they are, unlike with allreduce(): use those that are returned.

        reducer = pc.GradientReducer(parameters)              # {"weight": array, "bias": array}
        for batch in batches:
            gradients = reducer.reduce(gradient_of(parameters, batch))

    To overlap communication with computing, call `ready(name, gradient)` for each gradient as it comes to be, the last
    layer first, and `finish()` after the last. Every step ends, on every rank, with either finish() or reset().

    Every bucket holds gradients of one dtype, in reverse order of the parameters, and is one allreduce in the
    background. They are begun by number and never by which is complete first, so ranks whose gradients come in another
    order, or not at all, still make the same calls. (Li et al., PyTorch Distributed, VLDB 2020.)

    Parameters:
        parameters: (name, array) pairs or a dict, in the same order on all ranks. Only shapes and dtypes are looked
            at. Arrays of NumPy, torch, JAX or CuPy; on a GPU, all on the same. JAX's go through the host there.
        op: how gradients are combined, as in allreduce(). "avg" weighs ranks equally, however many samples each had:
            for batches of different sizes scale the loss by `samples here * size / samples everywhere`.
        group: whose ranks take part, default the world. Non-members hold None, which is the world: they must not call.
        bucket_nbytes: most bytes of a bucket; a larger gradient has one of its own.
        first_bucket_nbytes: the same for the first bucket, which is small to be under way early.
        compression: "bf16" or "f16" sends float32 and float64 gradients in 16 bits. They are rounded on the way out
            and by every addition. What f16 cannot hold becomes infinite in float32, where scalers of losses look for
            it, and is an InvalidArgument of finish() on all ranks in float64.
        timeout: seconds for each bucket, default that of init().

    The buckets travel in a group of their own: calls on `group`, during backward too, stand in no order to them and do
    not wait for them. They lie in memory that the ranks of a host share, where they do. Those of gradients on a GPU lie
    there, and are queued on the stream of their library: give all gradients of a step on one stream; finish() puts that
    behind the results and does not wait for them. Thread-safety: one thread at a time.

    With PYCOLLECTIVE_CHECK=strict the ranks compare the parameters themselves in each step, as they were before it,
    where they are arrays that can be written, on the host, and have changed: a rank that has stepped with its own
    gradients is found. In pc.torch.join() they are not compared.

    Raises:
        InvalidArgument: a name or an array comes twice, or an argument cannot be right.
        Unsupported: a dtype that `op` does not have.
        CollectiveMismatch: the ranks have different parameters or settings; all of them raise it, and the group can be
            used on. It names the first parameter that differs.
        As allreduce(), since the ranks compare.

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
        self._next = 0  # the first bucket that is not launched
        self._given_up = False  # reset() has begun and not ended
        arrays = dict(_checked(parameters, op))
        slots = [_slot(name, x) for name, x in arrays.items()]
        how = op if isinstance(op, str) else f"{op.op} * {op.factor}"
        settings = [
            f"op {how}",
            f"buckets {first_bucket_nbytes}, {bucket_nbytes} B",
            f"compression {compression}",
        ]
        # What the hooks of torch put in front of the parameters, "(...)", follows from these: it is compared last.
        compared = sorted(slots, key=lambda slot: slot.name.startswith("("))
        check_same_on_all_ranks(ranks, compared, settings, timeout)
        own = ranks.split(0, timeout=timeout)
        assert own is not None
        self._group = own
        self._parameter_check = ParameterCheck(arrays, own) if own._is_strict else None
        self._compares = self._will_compare = (
            True  # with PYCOLLECTIVE_CHECK=strict, in this step and in the next
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
        """The ranks that take part, as the group in which the buckets travel."""
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
        """Whether PYCOLLECTIVE_CHECK=strict compares them, from now on or, `in_a_step`, from the next step on.

        For the ranks that are in pc.torch.join(). It must be the same on all ranks.
        """
        self._will_compare = compares
        if not in_a_step:
            self._compares = compares

    def close(self) -> None:
        """Give back what the reducer's group has taken: see Group.close(). No gradient can be reduced any more."""
        self._group.close()

    def view(self, name: str) -> Any:
        """The place of a gradient in its bucket. What computes a gradient there, and gives it to ready(), saves a copy.

        An array of the parameter's library, of NumPy for JAX; the same one at every call.
        """
        return self._place(name).view

    def has(self, name: str) -> bool:
        """Whether this step has that gradient."""
        return name not in self._place(name).bucket.missing

    def missing(self) -> list[str]:
        """The names whose gradient has not been given in this step."""
        return [name for bucket in self._buckets for name in bucket.names if name in bucket.missing]

    def ready(self, name: str, gradient: Any) -> Any:
        """Takes a gradient into this step, and begins the buckets whose turn has come.

        It is copied to view(name) unless it is that.

        Returns:
            view(name), which will have the result: do not touch it until finish() has returned.

        Raises:
            InvalidArgument: no such name, another shape or dtype, or it was given before in this step. Nothing of it
                was taken, and the step goes on.
            As allreduce_async(), if a bucket cannot be begun. The gradient was taken; finish() tries again.
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
        """As ready() for gradients of one bucket and library, in one copy. The caller has checked them.

        It does nothing for names that it was called with before in this step, as after Ctrl-C.

        Parameters:
            names: those whose gradients are ready by this, one at least.
            places: view() of the names whose gradients do not lie there yet.
            gradients: what is copied to these places.
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
        """Begins all buckets of this step; gradients that were not given count as zeros. finish() begins with this.

        Where several reducers end a step together, call it on each before the first finish(): so none waits for ranks
        that wait in another one.

        Raises:
            As allreduce_async(), if a bucket cannot be begun; finish() tries again.
        """
        self._check_not_given_up()
        for bucket in self._buckets[self._next :]:
            for name in bucket.missing:
                self._places[name].zero()
            bucket.missing.clear()
        self._launch()

    def finish(self) -> dict[str, Any]:
        """Ends a step: gradients that were not given count as zeros, and what is under way is waited for.

        Returns:
            the reduced gradients by name. Those of NumPy and torch are view(name), in which the next step writes; those
            of JAX are new arrays.

        Raises:
            As allreduce(), and of what goes wrong on a GPU later as its next call. The step has ended all the same;
            gradients are unspecified. CollectiveMismatch also if another rank has given this step up with reset(), and
            with PYCOLLECTIVE_CHECK=strict on all ranks if the parameters differ: the group and all reducers go on.
            KeyboardInterrupt: the step has not ended: call finish() again.
        """
        results: dict[str, Any] = {}
        self._end(results)
        return results

    def finish_in_views(self) -> None:
        """As finish(), for those whose arrays can be written: the results are view(name) of each."""
        self._end(None)

    def _end(self, results: dict[str, Any] | None) -> None:
        """Ends a step, and puts what it has come to into `results`."""
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
                errors.clear()  # else the error would hold this frame, and this frame the error

    def reduce(self, gradients: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> dict[str, Any]:
        """A whole step at once: ready() for each gradient, and finish(). Names that are left out count as zeros.

        gradients: a dict, or (name, gradient) pairs.

        The gradients given stay as they are, so write `gradients = reducer.reduce(gradients)`. Returns and raises as
        finish(); InvalidArgument before anything is sent.
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
        """Gives this step up, on this rank, after an exception in the middle of it. The next step can begin at once.

        The others may have sent, or be going to send, buckets that this rank will not. A collective cannot be left
        out, so this rank makes a barrier in place of each: the others' finish() raises CollectiveMismatch, which
        says so, and nobody trains on half a gradient. Ranks that all give the step up raise nothing.
        It waits until the others have come to this step. PYCOLLECTIVE_CHECK=off takes all this away: nothing tells a
        barrier from an allreduce there. On a GPU, where calls go by NCCL, CollectiveMismatch ends the reducer's group:
        make another reducer.

        Raises:
            As barrier_async(), if the group has ended. Other errors are the others' to see.
            KeyboardInterrupt: the step has not been given up yet: call reset() again.
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
        """The names of each library."""
        found: dict[str, list[str]] = {}
        for name in names:
            found.setdefault(self._places[name].library.name, []).append(name)
        return found.values()

    def _launch(self) -> None:
        """Begins the buckets that are complete, up to the first that is not."""
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
        """What compares the parameters in this step, if anything does."""
        return self._parameter_check if self._compares and self._buckets else None

    def _calls(self) -> list[ParameterCheck | Bucket]:
        """What makes a call in each step, in the order of the calls."""
        compared = self._compared()
        return [*([] if compared is None else [compared]), *self._buckets]

    def _check_not_given_up(self) -> None:
        if self._given_up:
            raise InvalidArgument("GradientReducer: reset() was interrupted: call it again")


def _library(x: Any) -> Library:
    """That of its place in a bucket, which is written in parts."""
    return on_the_host(library_of(x))


def _gpu_of(x: Any) -> Any:
    """Where its place will be; None: on the host."""
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
    """The pairs, when each has been looked at."""
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
