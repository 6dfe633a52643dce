"""Weighted means: values are summed locally; the sums of all ranks are added, then divided once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, overload

from pycollective._core import Group
from pycollective.base.advice import advised, answers_for_attributes
from pycollective.errors import InvalidArgument
from pycollective.metrics.sums import SINGLE, added, named, number

__all__ = ["Meter", "compute", "mean"]


@answers_for_attributes
class Meter:
    """A weighted running mean: local to this rank until compute() combines all ranks.

    Attributes:
        total: the sum of value times weight on this rank.
        weight: the sum of the weights on this rank.

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> loss = pc.metrics.Meter()
        >>> loss.update(0.5, 32)
        >>> loss.update(0.25, 32)
        >>> loss.mean, loss.compute()
        (0.375, 0.375)
        >>> pc.shutdown()
    """

    @advised
    def __init__(self) -> None:
        self.reset()

    def __repr__(self) -> str:
        return f"Meter(mean={self.mean:.6g}, weight={self.weight:g})"

    def reset(self) -> None:
        """Sets the meter to its initial state."""
        self.total = 0.0
        self.weight = 0.0

    @advised
    def update(self, value: Any, weight: Any = 1) -> None:  # noqa: ANN401
        """Adds `value` as the mean of `weight` samples; or adds another Meter with its weight.

        A value of weight 0 is ignored. Raises InvalidArgument if the value is not a single real
        number, or if the weight is negative, infinite or nan.
        """
        if isinstance(value, Meter):
            self.total += value.total
            self.weight += value.weight
            return
        times = number(weight, "weight")
        if not 0 <= times < math.inf:
            raise InvalidArgument(f"a weight must be finite and not negative, not {times}")
        if times:
            self.total += number(value, "") * times
            self.weight += times

    @property
    def mean(self) -> float:
        """The mean on this rank alone; nan if the sum of the weights is 0."""
        return ratio(self.total, self.weight)

    def compute(self, *, group: Group | None = None, timeout: float | None = None) -> float:
        """Returns the mean over all ranks of the group; nan if the sum of all weights is 0.

        All ranks of the group must call it.
        """
        return compute(self, group=group, timeout=timeout)


@overload
def compute(meters: Meter, *, group: Group | None = None, timeout: float | None = None) -> float: ...
@overload
def compute(
    meters: Mapping[str, Meter], *, group: Group | None = None, timeout: float | None = None
) -> dict[str, float]: ...
@advised
def compute(
    meters: Mapping[str, Meter] | Meter, *, group: Group | None = None, timeout: float | None = None
) -> dict[str, float] | float:
    """Computes the means of several meters over the ranks in one call. The meters are unchanged.

    Parameters:
        meters: a dict of meters by name, the same names on every rank; or one meter.
        group: the ranks that take part; default the world.
        timeout: seconds; default that of the group.

    Returns:
        A dict of floats, or a float for a single meter. A mean is nan if its weights on all ranks
        are zero.

    Raises:
        InvalidArgument: on every rank, if a value on a rank is not a Meter. The group stays usable.
        CollectiveMismatch: on every rank, if the ranks have different names.

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> loss, right = pc.metrics.Meter(), pc.metrics.Meter()
        >>> loss.update(0.5, 32), right.update(24 / 32, 32)
        (None, None)
        >>> pc.metrics.compute({"loss": loss, "right": right})
        {'loss': 0.5, 'right': 0.75}
        >>> pc.shutdown()
    """
    mine, reason = named(meters)
    for name, meter in mine.items():
        if not isinstance(meter, Meter):
            reason = reason or f"{name or 'the argument'!r} is a {type(meter).__name__}, no Meter"
            mine[name] = Meter()
    means = _means("compute", mine, reason, group, timeout)
    return means if isinstance(meters, Mapping) else means[SINGLE]


@overload
def mean(
    values: Mapping[str, Any],
    *,
    weight: Any = 1,  # noqa: ANN401
    group: Group | None = None,
    timeout: float | None = None,
) -> dict[str, float]: ...
@overload
def mean(
    values: Any,  # noqa: ANN401
    *,
    weight: Any = 1,  # noqa: ANN401
    group: Group | None = None,
    timeout: float | None = None,
) -> float: ...
@advised
def mean(
    values: Any,
    *,
    weight: Any = 1,
    group: Group | None = None,
    timeout: float | None = None,
) -> dict[str, float] | float:
    """Computes weighted means over the ranks in one call.

    Parameters:
        values: a dict of numbers by name, the same names on every rank; or one number. A number may
            be an array or tensor of one element, added as float64, or a Meter with its own weight.
        weight: the weight of this rank's values, usually its batch size. A rank of weight 0 is
            ignored, even if its values are nan.
        group: the ranks that take part; default the world.
        timeout: seconds; default that of the group.

    Returns:
        A dict of floats, or a float for a single number; nan if all weights are zero.

    Raises:
        InvalidArgument: on every rank, if a value on a rank is not a single real number, or a
            weight is negative, infinite or nan. The group stays usable.
        CollectiveMismatch: on every rank, if the ranks have different names.

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> pc.metrics.mean({"loss": 0.5, "accuracy": 0.75}, weight=32)
        {'accuracy': 0.75, 'loss': 0.5}
        >>> pc.shutdown()
    """
    mine, reason = named(values)
    meters = {name: Meter() for name in mine}
    for name, meter in meters.items():
        try:
            meter.update(mine[name], weight)
        except InvalidArgument as error:
            reason = reason or (f"{name!r}: {error}" if name else str(error))
    means = _means("mean", meters, reason, group, timeout)
    return means if isinstance(values, Mapping) else means[SINGLE]


def _means(
    call: str, meters: dict[str, Meter], reason: str, group: Group | None, timeout: float | None
) -> dict[str, float]:
    numbers = [each for meter in meters.values() for each in (meter.total, meter.weight)]
    sums = added(call, list(meters), numbers, reason, group, timeout)
    return {
        name: ratio(*pair) for name, pair in zip(meters, zip(sums[::2], sums[1::2], strict=True), strict=True)
    }


def ratio(total: float, weight: float) -> float:
    return total / weight if weight else math.nan
