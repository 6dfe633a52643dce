"""`await work`: an eventfd notifies the event loop when calls complete."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Generator
from typing import Any

from pycollective._core import Work

__all__ = ["wait_in_loop"]


class _Notifier:
    """A descriptor that the core makes readable when an awaited call completes.

    An event loop has a notifier while any of its tasks awaits a Work.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.waiting: dict[asyncio.Future[None], Work[Any]] = {}
        loop.add_reader(self.fd, self.on_readable)

    def on_readable(self) -> None:
        os.eventfd_read(self.fd)
        for future, work in self.waiting.items():
            if not future.done() and not work._watch(self.fd):
                future.set_result(None)

    def close(self) -> None:
        self.loop.remove_reader(self.fd)
        os.close(self.fd)


_notifiers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Notifier] = weakref.WeakKeyDictionary()


def wait_in_loop(work: Work[Any]) -> Generator[Any, None, Any]:
    """Implement Work.__await__: like wait(), but the event loop runs meanwhile.

    Cancelling the task does not cancel the call.
    """
    loop = asyncio.get_running_loop()
    notifier = _notifiers.get(loop)
    if notifier is None:
        notifier = _notifiers[loop] = _Notifier(loop)
    future = loop.create_future()
    notifier.waiting[future] = work
    try:
        if work._watch(notifier.fd):
            yield from future
    finally:
        del notifier.waiting[future]
        if work not in notifier.waiting.values():
            work._unwatch(notifier.fd)
        if not notifier.waiting:
            del _notifiers[loop]
            notifier.close()
    return work.wait()
