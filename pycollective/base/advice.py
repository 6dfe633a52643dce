"""Errors for unknown arguments and attributes, with advice on what to write instead.

The tables in foreign_words are loaded only when such an error is raised.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["advised", "answers_for_attributes", "elsewhere", "is_of_the_call"]

P = ParamSpec("P")
T = TypeVar("T")


def advised(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function so that its TypeError for an unknown argument advises what to write."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if is_of_the_call(error.__traceback__):
                from pycollective.base.foreign_words import advise

                advise(error, function, kwargs)
            raise

    return call


class Elsewhere:
    """An attribute that the similar class of another library has, and this class has not.

    Access to it, on an object or on the class, raises an AttributeError with advice.
    """

    def __init__(self, kind: str, name: str) -> None:
        self._kind = kind
        self._name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        from pycollective.base.foreign_words import missing_in

        raise missing_in(owner, self._kind, self._name)


def elsewhere(*names: str) -> Callable[[type[T]], type[T]]:
    """Decorate a class: access to any of `names`, which other libraries use, gives advice.

    dir() of the class lists these names, but dir() of its objects does not.
    """

    def decorate(owner: type[T]) -> type[T]:
        for name in names:
            setattr(owner, name, Elsewhere(owner.__name__, name))
        all_of = owner.__dir__

        def __dir__(self: T) -> list[str]:
            from inspect import getattr_static

            return [
                each for each in all_of(self) if not isinstance(getattr_static(self, each, None), Elsewhere)
            ]

        owner.__dir__ = __dir__  # type: ignore[assignment]
        return owner

    return decorate


def answers_for_attributes(owner: type[T]) -> type[T]:
    """Decorate a class: the error for a missing attribute of its objects advises what to write.

    Python calls __getattr__ only if an attribute is missing.
    """
    kind = owner.__name__

    def __getattr__(self: T, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name)
        from pycollective.base.foreign_words import missing_in

        raise missing_in(owner, kind, name)

    owner.__getattr__ = __getattr__  # type: ignore[attr-defined]
    return owner


def is_of_the_call(traceback: TracebackType | None) -> bool:
    """Return whether the call itself failed, before any code of the called function ran."""
    return traceback is not None and traceback.tb_next is None
