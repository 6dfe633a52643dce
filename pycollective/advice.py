"""Errors for arguments that a call does not take say what to write. The tables are read when there is such an error."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["advised"]

P = ParamSpec("P")
T = TypeVar("T")


def advised(function: Callable[P, T]) -> Callable[P, T]:
    """Decorates a function: its error for an argument that it does not take says what to write."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if _is_of_the_call(error.__traceback__):
                from pycollective.foreign_words import advise

                advise(error, function)
            raise

    return call


def _is_of_the_call(traceback: TracebackType | None) -> bool:
    """Whether nothing of the function has run."""
    return traceback is not None and traceback.tb_next is None
