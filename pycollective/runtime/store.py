"""A small shared dictionary of the ranks: for addresses, file names, flags and counters, not for gradients."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

from pycollective import _core
from pycollective.errors import InvalidArgument
from pycollective.runtime import lifetime, store_codec
from pycollective.runtime.store_codec import Value

__all__ = ["Store", "store"]


def store(prefix: str = "") -> Store:
    """The store of the current world: what one rank sets, every rank can get.

    It lives in `pycollective run`, under other launchers in the process of rank 0, from init() to shutdown(); every
    world begins with an empty one. A world of one has one too.

    Parameters:
        prefix: put before every key, with a slash: libraries with different prefixes do not meet by accident.

    Raises:
        NotInitialized: there is no world.
        ForkedProcess: the world is that of the process that this one was forked from.

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
    """Values under names. All methods may be called from several threads, and by all ranks at once.

    Values are None, bool, int, float, str, bytes, NumPy arrays and numbers, and lists, tuples and dicts of these; at
    most 8 MiB each. Nothing is pickled. A key is a str of at most 4 KiB. `timeout` is in seconds, that of init() unless
    given. It is for what is waited for, and not for the way to the store: get(key, timeout=0) looks without waiting.

    Every method raises CollectiveTimeout (its text says whether the key is missing or the store does not answer),
    PeerFailure if the store is gone (rank 0 or the launcher has ended), InvalidArgument for a bad key, TypeError for a
    value of another type, Unsupported if the store is full (100,000 keys, 1 GiB), NotInitialized after shutdown().

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

    if not TYPE_CHECKING:  # to which every attribute would seem to be there

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(f"'Store' object has no attribute {name!r}", name=name)
            from pycollective.base.foreign_words import missing_in

            raise missing_in(Store, "Store", name)

    def __repr__(self) -> str:
        return f"<pycollective.Store prefix={self._prefix!r}>"

    def prefix(self, prefix: str) -> Store:
        """The part of this store whose keys begin with `prefix`."""
        return Store(self._native, _joined(self._prefix, prefix))

    def set(self, key: str, value: Value, *, timeout: float | None = None) -> None:
        """Puts `value` there, in place of what was there."""
        self._native.set(self._key(key), store_codec.encode(value), _checked(timeout))

    def get(self, key: str, *, timeout: float | None = None) -> Value:
        """Waits until somebody has set it. Arrays come as copies that may be written."""
        return store_codec.decode(self._native.get(self._key(key), _checked(timeout)))

    def pop(self, key: str, *, timeout: float | None = None) -> Value:
        """Waits until it is there, and takes it away: of several that wait, one gets it, the first to come.

        A pop that times out at the very moment when the value comes may take it with it.
        """
        return store_codec.decode(self._native.pop(self._key(key), _checked(timeout)))

    def add(self, key: str, delta: int = 1, *, timeout: float | None = None) -> int:
        """Adds to an int of 64 bits, 0 if there is none, and returns the sum. No two calls get in each other's way."""
        if type(delta) is not int:
            raise TypeError(f"delta must be an int, not {type(delta).__name__}")
        if not -(1 << 63) <= delta < 1 << 63:
            raise InvalidArgument(f"delta={delta} does not fit into 64 bits")
        return self._native.add(self._key(key), delta, _checked(timeout))

    def wait(self, *keys: str, timeout: float | None = None) -> None:
        """Waits until all of `keys` have been set. `timeout` is for each of them."""
        names, seconds = [self._key(key) for key in keys], _checked(timeout)
        for name in names:
            self._native.wait(name, seconds)

    def try_get(self, key: str, default: Value = None, *, timeout: float | None = None) -> Value:
        """The value, or `default` if the key is missing: this waits for no rank.

        `timeout` is for the way to the store alone. CollectiveTimeout means that the store does not answer.
        """
        data = self._native.try_get(self._key(key), _checked(timeout))
        return default if data is None else store_codec.decode(data)

    def check(self, *keys: str, timeout: float | None = None) -> bool:
        """Whether all of `keys` are there now, without waiting for them; see try_get() for `timeout`."""
        names, seconds = [self._key(key) for key in keys], _checked(timeout)
        return all(self._native.check(name, seconds) for name in names)

    def delete(self, key: str, *, timeout: float | None = None) -> bool:
        """Takes the key away, and says whether it was there; see try_get() for `timeout`."""
        return self._native.erase(self._key(key), _checked(timeout))

    def keys(self, *, timeout: float | None = None) -> list[str]:
        """All keys of this part of the store, sorted, without its prefix; see try_get() for `timeout`."""
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
    """What torch's stores take in the place of a key."""
    if isinstance(key, (list, tuple)):
        return ": give keys one by one, as store.wait(*keys)"
    return ": give a time by its name, as timeout=10" if isinstance(key, (int, float, timedelta)) else ""


def _checked(timeout: float | None) -> float | None:
    lifetime.check_timeout(timeout)
    return timeout
