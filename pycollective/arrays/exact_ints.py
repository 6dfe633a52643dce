"""Python's ints in reductions. Each is sent as three int64, so that overflow is always detected.

A Python int has no width. Whether a sum fits into 64 bits is known only after all numbers have been
added. Therefore no rank refuses its own number before the call: its peers would wait for it. The
operation combines each of the three words of an int separately:

    sum         the low 32 bits; the rest, which may be negative; 1 if the int exceeds 64 bits
    prod        the int modulo 2**64; 3**k, where k is its logarithm in units of 2**-24 bit;
                its sign
    min, max    the nearest int64; the excess above that, from 2**63 on; -1 or 1 if it exceeds
                64 bits
    band, ...   its bits: the lowest 64, the next 64, and all higher bits; refused beyond 192 bits
    land, ...   1 or 0

A product of powers of 3 modulo 2**64 is again a power of 3, and its exponent, the sum of the
exponents, can be decoded. So the same call also yields the size of the product. NumPy's integers
wrap around, as they do in NumPy. An int64 is sent as three words too, because other ranks may pass
a Python int; only the decoding differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pycollective.errors import InvalidArgument

__all__ = ["WORDS", "array_of", "from_words", "is_exact", "to_words"]

WORDS = 3  # int64 words per int
LEAST, MOST = -(2**63), 2**64 - 1  # the range that fits into int64 or uint64
NO_FIT = 2**128  # represents a result that does not fit
Words = npt.NDArray[np.int64]
Three = tuple[int, int, int]

_MASK = 2**64 - 1
# Units per bit of a logarithm. The rounding errors of 64 factors, the most that fit, sum to less
# than 2**-18.
_UNIT = 2.0**24
# Cap for the logarithm of one factor, in bits. A larger logarithm makes no difference, and with the
# cap the sum of the exponents of all factors stays below 2**62.
_MOST_BITS = 80.0


class _Encoding(NamedTuple):
    """How an operation encodes ints."""

    split: Callable[[int], Three]
    joined: Callable[[Three], int]  # decodes the combined words
    exact: str = ""  # the Python function that computes the result exactly; empty if there is none
    wraps: bool = False  # whether a NumPy int64 wraps around in this operation


def _int64(x: int) -> int:
    """Return the int64 that is equal to `x` modulo 2**64."""
    return (x + 2**63 & _MASK) - 2**63


def _fits(x: int) -> bool:
    return LEAST <= x <= MOST


def _halves(x: int) -> Three:
    if _fits(x):
        return x & 2**32 - 1, x >> 32, 0
    return x & 2**32 - 1, (x & _MASK) >> 32, 1


def _sum_of_halves(words: Three) -> int:
    low, high, unfit = words
    return low + (high << 32) + (NO_FIT if unfit else 0)


def _factors(x: int) -> Three:
    exponent = round(min(math.log2(abs(x)), _MOST_BITS) * _UNIT) if x else 0
    return _int64(x), _int64(pow(3, exponent, 2**64)), (x > 0) - (x < 0)


def _product(words: Three) -> int:
    residue, power, sign = words
    if sign == 0:
        return 0
    size = sign * residue & _MASK
    bits = _exponent(power & _MASK) / _UNIT
    if size and bits < math.log2(size) + 0.25:
        return sign * size
    return residue + NO_FIT


def _exponent(power: int) -> int:
    """Return the exponent of a power of 3 modulo 2**64, bit by bit.

    This works because 3**2**j is 1 modulo 2**(j + 2), but not modulo 2**(j + 3).
    """
    found, inverse = 0, pow(3, -1, 2**64)
    for bit in range(62):
        if power % 2 ** (bit + 3) != 1:
            found |= 1 << bit
            power = power * inverse & _MASK
        inverse = inverse * inverse & _MASK
    return found


def _bounds(x: int) -> Three:
    inner = max(LEAST, min(x, 2**63 - 1))
    return inner, max(-1, min(x - 2**63, 2**63 - 1)), (x > MOST) - (x < LEAST)


def _bound(words: Three) -> int:
    inner, above, beyond = words
    if beyond:
        return beyond * NO_FIT
    return inner if above < 0 else above + 2**63


def _bits(x: int) -> Three:
    high = x >> 128
    if high != _int64(high):
        raise InvalidArgument(f"an int of {x.bit_length()} bits is too long for operations on bits")
    return _int64(x), _int64(x >> 64), high


def _number_of_bits(words: Three) -> int:
    low, middle, high = words
    return (low & _MASK) + ((middle & _MASK) << 64) + (high << 128)


def _truth(x: int) -> Three:
    return int(x != 0), 0, 0


_SUM = _Encoding(_halves, _sum_of_halves, "sum", wraps=True)
_BOUNDS = _Encoding(_bounds, _bound)
_BITS = _Encoding(_bits, _number_of_bits)
_TRUTH = _Encoding(_truth, lambda words: words[0])
_ENCODINGS: dict[str, _Encoding] = {
    "sum": _SUM,
    "add": _SUM,
    "prod": _Encoding(_factors, _product, "math.prod", wraps=True),
    **dict.fromkeys(("min", "max"), _BOUNDS),
    **dict.fromkeys(("band", "bor", "bxor"), _BITS),
    **dict.fromkeys(("land", "lor", "lxor"), _TRUTH),
}


def is_exact(x: Any, op: Any) -> bool:
    """Return whether `x` is an int, a vector of ints or a NumPy int64, and `op` encodes ints.

    In sums and products, bools (including NumPy's) count as ints. In other operations they count as
    ints only if `x` also has ints.
    """
    if not isinstance(op, str) or op not in _ENCODINGS:
        return False
    if isinstance(x, np.generic):
        return x.dtype == np.int64 or (x.dtype == np.bool_ and _ENCODINGS[op].wraps)
    if not isinstance(x, (int, list, tuple)):
        return False
    members = x if isinstance(x, (list, tuple)) else (x,)
    if not members or not all(isinstance(each, (int, np.integer, np.bool_)) for each in members):
        return False
    return _ENCODINGS[op].wraps or not all(isinstance(each, (bool, np.bool_)) for each in members)


def to_words(x: Any, op: str) -> Words:
    """Encode `x`. The last axis of the result holds the WORDS words of each int."""
    split = _ENCODINGS[op].split
    words = [split(int(each)) for each in x] if isinstance(x, (list, tuple)) else split(int(x))
    return np.array(words, np.int64)


def from_words(function: str, words: Words, x: Any, op: str) -> Any:
    """Decode combined ints to the type of `x`, or to a list if `x` has another number of ints.

    Raises:
        InvalidArgument: a number does not fit into 64 bits. The call itself has completed on all
            ranks.
    """
    encoding = _ENCODINGS[op]
    values = [encoding.joined((a, b, c)) for a, b, c in words.reshape(-1, WORDS).tolist()]
    if isinstance(x, np.generic) and encoding.wraps:
        return np.int64(_int64(values[0]))
    if not all(map(_fits, values)):
        raise _no_fit(function, op)
    if isinstance(x, np.generic):
        return array_of(function, values[0], op, "int64")[()]
    if words.ndim == 1:
        return values[0]
    if not isinstance(x, (list, tuple)) or len(x) != len(values):
        return values
    return x._make(values) if hasattr(x, "_make") else type(x)(values)


def array_of(function: str, values: int | Sequence[int], op: str, dtype: str = "") -> npt.NDArray[Any]:
    """Return the values as an array of `dtype`, by default int64, or uint64 if necessary.

    Raises:
        InvalidArgument: a value does not fit into that dtype.
    """
    members = [values] if isinstance(values, int) else values
    dtype = dtype or ("uint64" if max(members, default=0) >= 2**63 else "int64")
    bounds = np.iinfo(dtype)
    if not all(bounds.min <= each <= bounds.max for each in members):
        raise _no_fit(function, op, dtype)
    return np.array(values, dtype)


def _no_fit(function: str, op: str, dtype: str = "64 bits") -> InvalidArgument:
    exact = _ENCODINGS[op].exact
    instead = (
        f"{exact}(pc.allgather_object(x)) is exact for any int"
        if exact
        else "pc.allgather_object(x) moves any int"
    )
    return InvalidArgument(
        f'{function}: the "{op}" of all x does not fit into {dtype}: {instead}, and float(x) is rounded'
    )
