"""The order of samples in an epoch: a pure function of (seed, epoch), the same on every machine.

The numbers are the raw 64-bit outputs of Philox4x64-10 with the key (seed, epoch) from counter 0.
NumPy guarantees that these never change, but gives no such guarantee for Generator.permutation().
Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (2011).

    shuffled           the samples sorted by their numbers; sample i has the i-th number
    drawn              number modulo n: a sample is at most n / 2**64 likelier than another
    drawn by weights   the first sample at which the cumulative weights, divided by their sum,
                       exceed number / 2**64
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Sized
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pycollective.errors import InvalidArgument

__all__ = ["Indices", "Order"]

Indices: TypeAlias = npt.NDArray[np.int64]
MOST = 1 << 64  # seeds and epochs are less than this


class Order:
    """The number of samples, and their order in each epoch."""

    def __init__(
        self,
        call: str,
        n_or_dataset: int | Sized,
        *,
        shuffle: bool,
        replacement: bool,
        weights: npt.ArrayLike | None,
        seed: int,
    ) -> None:
        self.n = _length(call, n_or_dataset)
        self.seed = below_2_to_64(call, "seed", seed)
        self.replacement = replacement
        self.kind = "drawn" if replacement else "shuffled" if shuffle else "in turn"
        self._sums: npt.NDArray[np.float64] | None = None
        if weights is not None:
            if not replacement:
                raise InvalidArgument(f"{call}: weights= are of samples drawn with replacement=True")
            self._sums = _sums(call, weights, self.n)
            self.kind += f" by weights {hashlib.blake2b(self._sums.tobytes(), digest_size=8).hexdigest()}"

    def of(self, epoch: int) -> Callable[[Indices], Indices]:
        """Return a function that maps positions of that epoch, modulo n, to samples."""
        n = self.n
        if self.kind == "in turn" or n == 0:
            return lambda positions: positions % n
        numbers = np.random.Philox(key=np.array([self.seed, epoch], np.uint64)).random_raw(n)
        samples: Indices
        if self._sums is not None:
            samples = _fall(numbers, self._sums)
        elif self.replacement:
            samples = (numbers % np.uint64(n)).astype(np.int64)
        else:
            samples = np.argsort(numbers, kind="stable")  # equal numbers keep the order of the samples
        return lambda positions: samples[positions % n]


def below_2_to_64(call: str, name: str, value: int) -> int:
    """Return the value if it fits a word of a Philox key, and raise InvalidArgument otherwise."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not 0 <= value < MOST:
        raise InvalidArgument(f"{call}: {name}={value!r} is no whole number from 0 to 2**64 - 1")
    return int(value)


def _length(call: str, n_or_dataset: int | Sized) -> int:
    if isinstance(n_or_dataset, (int, np.integer)) and not isinstance(n_or_dataset, bool):
        n = operator.index(n_or_dataset)
        if n < 0:
            raise InvalidArgument(f"{call}: there cannot be {n} samples")
        return n
    try:
        return len(n_or_dataset)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgument(
            f"{call}: a {type(n_or_dataset).__name__} has no length: give a number, a dataset that has one, or take "
            "pc.data.shard() for a stream"
        ) from None


def _sums(call: str, weights: npt.ArrayLike, n: int) -> npt.NDArray[np.float64]:
    array: npt.NDArray[np.float64] = np.asarray(weights, np.float64)
    if array.shape != (n,):
        raise InvalidArgument(f"{call}: weights of shape {array.shape} are not one for each of {n} samples")
    sums: npt.NDArray[np.float64] = np.cumsum(array)
    if n and not (np.all(array >= 0) and 0 < sums[-1] < np.inf):
        raise InvalidArgument(f"{call}: weights must be finite, none below 0, and not all 0")
    return sums


def _fall(numbers: npt.NDArray[np.uint64], sums: npt.NDArray[np.float64]) -> Indices:
    fractions = (numbers >> np.uint64(11)) * 2.0**-53
    # Rounding may make a product equal to the whole sum. The search would then return n.
    last = np.searchsorted(sums, sums[-1])
    samples: Indices = np.minimum(np.searchsorted(sums, fractions * sums[-1], side="right"), last)
    return samples
