"""A small shared dictionary of the ranks: for addresses, file names, flags and counters.

It is not meant for gradients.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

from pycollective import _core
from pycollective.errors import InvalidArgument
from pycollective.runtime import lifetime, store_codec
from pycollective.runtime.store_codec import Value

__all__ = ["Store", "store"]


def store(prefix: str = "") -> Store:
    """Return the store of the current world: what one rank sets, every rank can get.

    It exists from init() to shutdown(), in the process of `pycollective run`, or under other
    launchers in that of rank 0. Every world begins with an empty store. A world of one has a store
    too.

    Parameters:
        prefix: prepended to every key, with a slash, so that libraries with different prefixes
            do not collide.

    Raises:
        NotInitialized: there is no world.
        ForkedProcess: the world belongs to the process that this one was forked from.

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> shared = pc.store("my-library")
        >>> if pc.rank() == 0:
        ...     shared.set("run", {"name": "first", "seed": 7})
        >>> shared.get("run", timeout=10)["seed"]
        7
        >>> shared.add("finished")
        1
        >>> pc.shutdown()
    """
    return Store(lifetime.native_store(), _joined("", prefix) if prefix else "")


class Store:
    """Values by key. Several threads, and all ranks, may call all methods at the same time.

    Values are None, bool, int, float, str, bytes, NumPy arrays and numbers, and lists, tuples and
    dicts of these, at most 8 MiB each. Nothing is pickled. A key is a str of at most 4 KiB.
    `timeout` is in seconds; default that of init(). It limits the wait for a key, not the
    communication with the store: get(key, timeout=0) does not wait for the key.

    Every method raises CollectiveTimeout (its message shows whether the key is missing or the store
    does not answer), PeerFailure if the process with the store (rank 0 or the launcher) has ended,
    InvalidArgument for a bad key, TypeError for a value of another type, Unsupported if the store
    is full (100,000 keys, 1 GiB), NotInitialized after shutdown().

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> shared = pc.store()
        >>> shared.set("list", [1, 2.5, "three"])
        >>> shared.pop("list")
        [1, 2.5, 'three']
        >>> shared.add("seen", 2)
        2
        >>> shared.prefix("part").set("k", b"bytes")
        >>> shared.wait("part/k")
        >>> shared.check("part/k"), shared.try_get("nothing"), shared.keys()
        (True, None, ['part/k', 'seen'])
        >>> shared.delete("part/k")
        True
        >>> pc.shutdown()
    """

    def __init__(self, native: _core.Store, prefix: str) -> None:
        self._native = native
        self._prefix = prefix

    if not TYPE_CHECKING:  # with a __getattr__, type checkers would accept every attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(f"'Store' object has no attribute {name!r}", name=name)
            from pycollective.base.foreign_words import missing_in

            raise missing_in(Store, "Store", name)

    def __repr__(self) -> str:
        return f"<pycollective.Store prefix={self._prefix!r}>"

    def prefix(self, prefix: str) -> Store:
        """Return a view of this store that has only the keys with this prefix."""
        return Store(self._native, _joined(self._prefix, prefix))

    def set(self, key: str, value: Value, *, timeout: float | None = None) -> None:
        """Set the value of the key, and replace any existing value."""
        self._native.set(self._key(key), store_codec.encode(value), _checked(timeout))

    def get(self, key: str, *, timeout: float | None = None) -> Value:
        """Wait until a rank has set the key, and return its value. Arrays are writable copies."""
        return store_codec.decode(self._native.get(self._key(key), _checked(timeout)))

    def pop(self, key: str, *, timeout: float | None = None) -> Value:
        """Wait until the key exists, remove it and return its value.

        If several callers wait, the first of them gets the value. If a call times out at the moment
        when the value arrives, it may nevertheless remove the value.
        """
        return store_codec.decode(self._native.pop(self._key(key), _checked(timeout)))

    def add(self, key: str, delta: int = 1, *, timeout: float | None = None) -> int:
        """Add to a 64-bit int, which is 0 if the key is missing, and return the sum.

        The addition is atomic.
        """
        if type(delta) is not int:
            raise TypeError(f"delta must be an int, not {type(delta).__name__}")
        if not -(1 << 63) <= delta < 1 << 63:
            raise InvalidArgument(f"delta={delta} does not fit into 64 bits")
        return self._native.add(self._key(key), delta, _checked(timeout))

    def wait(self, *keys: str, timeout: float | None = None) -> None:
        """Wait until all of `keys` have been set. `timeout` applies to each of them."""
        names, seconds = [self._key(key) for key in keys], _checked(timeout)
        for name in names:
            self._native.wait(name, seconds)

    def try_get(self, key: str, default: Value = None, *, timeout: float | None = None) -> Value:
        """Return the value, or `default` if the key is missing. It does not wait for the key.

        `timeout` applies only to the communication with the store. CollectiveTimeout means that the
        store does not answer.
        """
        data = self._native.try_get(self._key(key), _checked(timeout))
        return default if data is None else store_codec.decode(data)

    def check(self, *keys: str, timeout: float | None = None) -> bool:
        """Return whether all of `keys` exist now, without waiting. See try_get() for `timeout`."""
        names, seconds = [self._key(key) for key in keys], _checked(timeout)
        return all(self._native.check(name, seconds) for name in names)

    def delete(self, key: str, *, timeout: float | None = None) -> bool:
        """Delete the key, and return whether it existed. See try_get() for `timeout`."""
        return self._native.erase(self._key(key), _checked(timeout))

    def keys(self, *, timeout: float | None = None) -> list[str]:
        """Return all keys of this view, sorted, without the prefix of the view.

        See try_get() for `timeout`.
        """
        begin = f"{self._prefix}/" if self._prefix else ""
        return [key[len(begin) :] for key in self._native.keys(begin, _checked(timeout))]

    def _key(self, key: str) -> str:
        return _joined(self._prefix, key)


def _joined(prefix: str, key: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a key must be a str, not {type(key).__name__}{_instead(key)}")
    if not key:
        raise InvalidArgument("a key must not be empty")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"the key {key!r} is no Unicode text") from None
    return f"{prefix}/{key}" if prefix else key


def _instead(key: object) -> str:
    """Return advice if `key` is an argument that torch's stores accept in this position, or ""."""
    if isinstance(key, (list, tuple)):
        return ": give keys one by one, as store.wait(*keys)"
    return ": give a time by its name, as timeout=10" if isinstance(key, (int, float, timedelta)) else ""


def _checked(timeout: float | None) -> float | None:
    lifetime.check_timeout(timeout)
    return timeout
