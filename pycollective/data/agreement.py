"""Steps before a collective call: all ranks raise an error of one rank, so that no rank waits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from pycollective._core import Group
from pycollective.errors import CollectiveError, CollectiveMismatch
from pycollective.objects import objects
from pycollective.objects.remote_error import record_of, reraised

__all__ = ["check_alike", "on_all"]

T = TypeVar("T")


def on_all(group: Group, call: str, function: Callable[[], T], *, timeout: float | None = None) -> list[T]:
    """Return the results of `function` by rank. An exception on one rank is raised on all ranks.

    Raises:
        CollectiveMismatch: the ranks make different calls.
    """
    try:
        result = function()
    except BaseException as error:
        # the caller gets the exception of `function`, not that of this call
        with contextlib.suppress(CollectiveError):
            objects.allgather_object(group, (call, record_of(error), None), timeout=timeout)
        raise
    answers = objects.allgather_object(group, (call, None, result), timeout=timeout)
    for rank, (theirs, words, _) in enumerate(answers):
        if words is not None:
            raise reraised(words, rank)
        if theirs != answers[0][0]:
            raise CollectiveMismatch(
                f"{call}: rank 0 calls {answers[0][0]} and rank {rank} {theirs}: all ranks must make the same call",
                peer=rank,
                operation=call,
            )
    return [result for *_, result in answers]


def check_alike(call: str, facts: Sequence[Mapping[str, object]]) -> None:
    """Raise CollectiveMismatch unless the facts, listed by rank, are equal on all ranks."""
    for rank, theirs in enumerate(facts):
        for name, value in facts[0].items():
            if theirs[name] != value:
                raise CollectiveMismatch(
                    f"{call}: the ranks disagree: {name} is {value!r} on rank 0 and {theirs[name]!r} on rank {rank}. "
                    "All ranks must make this call on the same data, with the same arguments",
                    peer=rank,
                    operation=call,
                )
