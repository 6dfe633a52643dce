"""Cuts an epoch into global batches, and each batch into slices for the ranks, by arithmetic.

Position p is the p-th sample in the epoch's order. Positions from n on are padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from pycollective.errors import InvalidArgument

__all__ = ["Cut", "Uneven", "check_uneven", "slice_of"]

Uneven: TypeAlias = Literal["pad", "drop", "exact"]


@dataclass(frozen=True)
class Cut:
    """Cuts `n` samples into global batches of `batch` samples, and each batch over `size` ranks."""

    n: int
    batch: int
    size: int
    uneven: Uneven

    def steps(self, start: int = 0) -> int:
        """Return the number of global batches from position `start` on."""
        left = max(self.n - start, 0)
        return left // self.batch if self.uneven == "drop" else -(-left // self.batch)

    def end(self, start: int = 0) -> int:
        """Return the position after the last batch if the first one begins at position `start`."""
        return max(self.n, start) if self.uneven == "exact" else start + self.steps(start) * self.batch

    def part(self, step: int, rank: int, start: int = 0) -> range:
        """Return the positions of `rank` in global batch `step`. Batch 0 begins at `start`."""
        begin = start + step * self.batch
        first, behind = slice_of(rank, min(self.batch, self.end(start) - begin), self.size)
        return range(begin + first, begin + behind)


def slice_of(rank: int, length: int, size: int) -> tuple[int, int]:
    """Return begin and end of a rank's share of `length` items.

    The first ranks get one item more if the shares cannot be equal.
    """
    each, more = divmod(length, size)
    begin = rank * each + min(rank, more)
    return begin, begin + each + (rank < more)


def check_uneven(call: str, uneven: str) -> None:
    """Raise InvalidArgument if `uneven` is not a known mode."""
    if uneven not in get_args(Uneven):
        raise InvalidArgument(f"{call}: uneven={uneven!r} is none of {', '.join(get_args(Uneven))}")
