"""Adds named numbers over the ranks in one allreduce that also detects different names.

The reduced vector is float64: a fingerprint of the names, a flag for invalid values, and the
numbers. All ranks get the same sums, so all of them detect an error. They then exchange the error
texts. A rank with invalid values takes part too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from numbers import Complex, Number, Real
from typing import Any, NoReturn, overload

import numpy as np

from pycollective import _core
from pycollective._core import Group
from pycollective.base.advice import advised
from pycollective.base.clock import Clock
from pycollective.errors import CollectiveMismatch, InvalidArgument
from pycollective.objects.object_message import printable
from pycollective.runtime.lifetime import check_timeout

__all__ = ["SINGLE", "Named", "added", "named", "number", "sum"]

SINGLE = ""  # the name of a value without a name
PIECES = 4  # pieces of the fingerprint: 16 bits each, so that sums of squares over 65535 ranks are exact
Named = dict[str, Any]


@overload
def sum(
    values: Mapping[str, Any], *, group: Group | None = None, timeout: float | None = None
) -> dict[str, float]: ...
@overload
def sum(values: Any, *, group: Group | None = None, timeout: float | None = None) -> float: ...  # noqa: ANN401
@advised
def sum(
    values: Any,
    *,
    group: Group | None = None,
    timeout: float | None = None,
) -> dict[str, float] | float:
    """Adds numbers over the ranks in one call.

    Parameters:
        values: a dict of numbers by name, the same names on every rank; or one number. A number may
            be an array or tensor of one element. Integers are exact up to 2**53, because all
            numbers are added as float64.
        group: the ranks that take part; default the world.
        timeout: seconds; default that of the group.

    Returns:
        A dict of floats, or a float for a single number.

    Raises:
        InvalidArgument: on every rank, if a value on a rank is not a single real number. The group
            stays usable.
        CollectiveMismatch: on every rank, if the ranks have different names.

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> pc.metrics.sum({"right": 17, "seen": 20})
        {'right': 17.0, 'seen': 20.0}
        >>> pc.shutdown()
    """
    mine, reason = named(values)
    numbers: list[float] = []
    for name, value in mine.items():
        try:
            numbers.append(number(value, name))
        except InvalidArgument as error:
            numbers.append(0.0)
            reason = reason or str(error)
    totals = added("sum", list(mine), numbers, reason, group, timeout)
    sums = dict(zip(mine, totals, strict=True))
    return sums if isinstance(values, Mapping) else sums[SINGLE]


def named(values: Any) -> tuple[Named, str]:  # noqa: ANN401
    """Returns the values by name, sorted, and an error text ("" if all names are valid)."""
    if not isinstance(values, Mapping):
        return {SINGLE: values}, ""
    if wrong := [name for name in values if not isinstance(name, str) or not name]:
        return {}, f"a value is named by {wrong[0]!r}: names must be texts that are not empty"
    return dict(sorted(values.items())), ""


def number(value: Any, name: str) -> float:  # noqa: ANN401
    """Returns `value` of any library as a float.

    Raises InvalidArgument if it is not a single real number.
    """
    what = f"the value {name!r}" if name else "the value"
    shape: tuple[int, ...] = ()
    try:
        shape = tuple(getattr(value, "shape", ()))
        plain = value.item() if hasattr(value, "item") else value
        is_complex = isinstance(plain, Complex) and not isinstance(plain, Real)
        if isinstance(plain, Number) and not is_complex:  # a Number may also be a Fraction or a Decimal
            return float(plain)  # type: ignore[arg-type]
    except Exception as error:  # of any library: `value` has several elements, is traced, ...
        raise InvalidArgument(f"{what} of shape {shape} cannot be read as one number: {error}") from error
    raise InvalidArgument(f"{what} is a {type(value).__name__}, no real number")


def added(
    call: str, names: list[str], numbers: list[float], reason: str, group: Group | None, timeout: float | None
) -> list[float]:
    """Returns the sums of the numbers over the ranks.

    `reason` is an error text if this rank's values are invalid. All ranks then raise
    InvalidArgument.
    """
    check_timeout(timeout)
    asked = Asked(call, names, reason, _core.world() if group is None else group, Clock(timeout))
    vector = np.array([*fingerprint(call, *names), bool(reason), *numbers], np.float64)
    try:
        asked.group.allreduce(vector, timeout=asked.clock.left_s())
    except CollectiveMismatch as error:
        if reason:
            raise InvalidArgument(f"metrics.{call}: {reason}") from error
        error.args = (f"metrics.{call} of {names}, where all ranks must name the same values: {error}",)
        raise
    sums: list[float] = vector.tolist()
    pieces, squares, refusals = sums[:PIECES], sums[PIECES : 2 * PIECES], sums[2 * PIECES]
    # By the Cauchy-Schwarz inequality both sides are equal exactly if all ranks have the same
    # piece. The sums are the same on all ranks, so all ranks take the same branch.
    is_one = all(p * p == s * asked.group.size for p, s in zip(pieces, squares, strict=True))
    if refusals or not is_one:
        asked.explain()
    return sums[2 * PIECES + 1 :]


@lru_cache
def fingerprint(call: str, *names: str) -> tuple[float, ...]:
    """Returns the pieces and their squares. They differ between calls with different names."""
    digest = blake2b(repr((call, names)).encode("utf-8", "surrogatepass"), digest_size=2 * PIECES).digest()
    pieces = np.frombuffer(digest, "<u2").astype(np.float64)
    return *pieces.tolist(), *(pieces**2).tolist()


@dataclass(frozen=True)
class Asked:
    """One call, as this rank makes it."""

    call: str
    names: list[str]
    reason: str
    group: Group
    clock: Clock

    def explain(self) -> NoReturn:
        """Exchanges the error texts and raises. All ranks call it, because all detect the error."""
        mine = (f"{self.call}: {self.names}", self.reason)
        said: list[tuple[str, str]] = self.group.allgather_object(mine, timeout=self.clock.left_s())
        for rank, (_, reason) in enumerate(said):
            if reason:
                reason_text = printable(reason.encode("utf-8", "replace"))
                raise InvalidArgument(
                    f"metrics.{self.call}: rank {rank}: {reason_text}", rank=self.group.rank, peer=rank
                )
        other = next(rank for rank, (names, _) in enumerate(said) if names != said[0][0])
        raise CollectiveMismatch(
            f"metrics.{self.call}: all ranks must make the same call with the same names: rank 0 calls {said[0][0]}, "
            f"rank {other} {said[other][0]}",
            rank=self.group.rank,
            peer=other,
        )
