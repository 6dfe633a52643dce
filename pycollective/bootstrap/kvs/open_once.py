"""Opens, only once, key-value spaces that allow a single connection per process."""

from __future__ import annotations

import os
from collections.abc import Callable

from pycollective.bootstrap.kvs.kvs import Kvs
from pycollective.errors import ForkedProcess

_opened: dict[str, tuple[int, Kvs]] = {}  # by name, with the id of the process that opened it


def open_once(name: str, make: Callable[[], Kvs]) -> Kvs:
    """Return the KVS of that name, the same one for every init() of this process.

    A forked child gets an error, because the launcher knows only the child's parent.
    """
    if name not in _opened:
        _opened[name] = os.getpid(), make()
    owner, kvs = _opened[name]
    if owner != os.getpid():
        raise ForkedProcess(
            f"this process was forked from rank process {owner}, and cannot use its connection to "
            f"its launcher ({name}): give it a place of its own with init(address, rank=, size=), or start it by spawn"
        )
    return kvs
