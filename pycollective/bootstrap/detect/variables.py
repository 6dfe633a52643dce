"""Reads numbers from the environment, with errors that name the variable."""

from __future__ import annotations

from collections.abc import Mapping

from pycollective.errors import InvalidArgument


def integer(env: Mapping[str, str], name: str) -> int:
    try:
        return int(env[name])
    except ValueError:
        raise InvalidArgument(f"{name}={env[name]!r} in the environment is not a whole number") from None


def require(env: Mapping[str, str], names: tuple[str, ...], subject: str) -> None:
    """Raise unless all of `names` are set. An empty value counts as missing."""
    missing = [name for name in names if not env.get(name)]
    if missing:
        found = [name for name in names if env.get(name)]
        raise InvalidArgument(
            f"the environment describes a rank only in part ({subject}): {' '.join(found)} set, but "
            f"{' '.join(missing)} missing. Set them all, or unset them all for a world of one"
        )


def rank_of(env: Mapping[str, str], rank_name: str, size_name: str) -> tuple[int, int]:
    rank, size = integer(env, rank_name), integer(env, size_name)
    if size < 1 or not 0 <= rank < size:
        raise InvalidArgument(f"{rank_name}={rank} {size_name}={size}: ranks count from 0 to {size_name} - 1")
    return rank, size
