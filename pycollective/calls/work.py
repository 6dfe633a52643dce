"""`await work`: an eventfd tells the loop that calls have ended."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Generator
from typing import Any

from pycollective._core import Work

__all__ = ["wait_in_loop"]


class _Bell:
    """One per loop, open while a task of that loop awaits a Work: a descriptor that the core makes readable."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.waiting: dict[asyncio.Future[None], Work[Any]] = {}
        loop.add_reader(self.fd, self.rang)

    def rang(self) -> None:
        os.eventfd_read(self.fd)
        for future, work in self.waiting.items():
            if not future.done() and not work._watch(self.fd):
                future.set_result(None)

    def close(self) -> None:
        self.loop.remove_reader(self.fd)
        os.close(self.fd)


_bells: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Bell] = weakref.WeakKeyDictionary()


def wait_in_loop(work: Work[Any]) -> Generator[Any, None, Any]:
    """Work.__await__: ends as wait() does, and lets the loop run meanwhile. A cancelled task leaves the call alone."""
    loop = asyncio.get_running_loop()
    bell = _bells.get(loop)
    if bell is None:
        bell = _bells[loop] = _Bell(loop)
    future = loop.create_future()
    bell.waiting[future] = work
    try:
        if work._watch(bell.fd):
            yield from future
    finally:
        del bell.waiting[future]
        if work not in bell.waiting.values():
            work._unwatch(bell.fd)
        if not bell.waiting:
            del _bells[loop]
            bell.close()
    return work.wait()
