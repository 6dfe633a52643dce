"""How the members of a new group agree on its number: by messages through the lowest member.

1. The lowest member sends a request with the mark of its call to every other member. A mark is a
   number that identifies one call of one member.
2. Each other member replies with the request's mark, the mark of its own call, and a checksum of
   its list.
3. When all have replied, the lowest member sends an answer to each: the mark of that member's
   call, and either a reserved number or a member that has another list.

Threads may make groups at the same time. Calls that would exchange messages with the same rank run
one after the other, so that no thread receives the messages of another thread.

A call that ends early leaves messages that were not received. The next call receives and discards
them: a reply counts only for the call that sent the request, and an answer only for the call that
sent the reply. So no member uses the number of an earlier call. Source: the three-way handshake of
TCP (Tomlinson, "Selecting sequence numbers", 1975).
"""

from __future__ import annotations

import contextlib
import enum
import os
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from pycollective._core import Group
from pycollective.base.clock import Clock
from pycollective.errors import CollectiveMismatch, CollectiveTimeout

__all__ = ["agree"]

AGREEMENT_TAG = 0xFFFF_0B00
NONE = -1


class MessageKind(enum.IntEnum):
    """The kind of a message, which is the first of its four integers."""

    REQUEST = 1  # then: mark of the lowest member's call, 0, 0
    REPLY = 2  # then: mark of the request, mark of this member's call, checksum of its list
    ANSWER = 3  # then: mark of the reply's call, a member with another list or NONE, the number


class Exchange:
    """One call of group() on one member."""

    def __init__(self, group: Group, members: list[int], timeout: float | None) -> None:
        from zlib import crc32  # imported here to keep `import pycollective` fast

        self.group = group
        self.lowest, *self.others = sorted(
            members
        )  # not the first: members that list the ranks in different orders must choose the same leader
        self.checksum = crc32(repr(members).encode())
        self.mark = int.from_bytes(os.urandom(8), "little") >> 1
        self._clock = Clock(timeout)

    def left_s(self) -> float | None:
        return self._clock.left_s()

    def send(self, peer: int, what: MessageKind, mark: int, *content: int) -> None:
        message = np.array([what, mark, *content, *[0] * (2 - len(content))], np.int64)
        self.group.send(message, peer, tag=AGREEMENT_TAG, timeout=self._clock.left_s())

    def receive(self, peer: int) -> tuple[int, ...]:
        message: Any = np.empty(4, np.int64)
        self.group.recv(message, peer, tag=AGREEMENT_TAG, timeout=self._clock.left_s())
        return tuple(message.tolist())

    def lead(self) -> tuple[int, int]:
        """Exchange the messages as the lowest member.

        Returns a member with another list (or NONE), and the number.
        """
        for other in self.others:
            self.send(other, MessageKind.REQUEST, self.mark)
        number, odd, marks = self.group._reserve_group_ids(1), NONE, []
        for other in self.others:
            mark, checksum = self._reply_of(other)
            marks.append(mark)
            odd = odd if checksum == self.checksum else other
        for other, mark in zip(self.others, marks, strict=True):
            self.send(other, MessageKind.ANSWER, mark, odd, number)
        return odd, number

    def _reply_of(self, other: int) -> tuple[int, ...]:
        while True:
            what, mark, *content = self.receive(other)
            if (what, mark) == (MessageKind.REPLY, self.mark):
                return tuple(content)

    def follow(self) -> tuple[int, int]:
        """Exchange the messages as any other member. Returns the same as lead().

        This member replies to every request, because only the lowest member knows which requests
        are of an earlier call.
        """
        while True:
            what, mark, odd, number = self.receive(self.lowest)
            if what == MessageKind.REQUEST:
                self.send(self.lowest, MessageKind.REPLY, mark, self.mark, self.checksum)
            elif (what, mark) == (MessageKind.ANSWER, self.mark):
                return odd, number


class ActiveExchanges:
    """The ranks with which this process exchanges messages. Each is in one call at a time."""

    def __init__(self) -> None:
        self._ended = threading.Condition()
        # each is id() of the group that carries the messages, and the rank in that group
        self._peers: set[tuple[int, int]] = set()

    @contextlib.contextmanager
    def one_with(self, peers: Iterable[int], exchange: Exchange) -> Iterator[None]:
        wanted = {(id(exchange.group), peer) for peer in peers}
        with self._ended:
            if not self._ended.wait_for(lambda: self._peers.isdisjoint(wanted), exchange.left_s()):
                raise CollectiveTimeout("other threads of this rank were making groups with the same ranks")
            self._peers |= wanted
        try:
            yield
        finally:
            with self._ended:
                self._peers -= wanted
                self._ended.notify_all()


ACTIVE_EXCHANGES = ActiveExchanges()


def _in_forked_child() -> None:
    """Start with no exchanges: other threads may have held the parent's lock during the fork."""
    global ACTIVE_EXCHANGES
    ACTIVE_EXCHANGES = ActiveExchanges()


os.register_at_fork(after_in_child=_in_forked_child)


def agree(group: Group, members: list[int], timeout: float | None) -> int:
    """Return the number of the new group, which is equal on all members."""
    if len(members) == 1:
        return group._reserve_group_ids(1)
    exchange = Exchange(group, members, timeout)
    leads = group.rank == exchange.lowest
    try:
        with ACTIVE_EXCHANGES.one_with(exchange.others if leads else [exchange.lowest], exchange):
            odd, number = exchange.lead() if leads else exchange.follow()
    except CollectiveTimeout as error:
        error.args = (f"group: not all of {members} have called group() with this list: {error}",)
        raise
    if odd == NONE:
        return number
    raise CollectiveMismatch(
        f"group: rank {odd} makes a group of other ranks, or in another order, than rank {exchange.lowest}; here they "
        f"are {members}. All members must call group() with one list, and make groups that share ranks in one order",
        peer=odd if leads else exchange.lowest,
    )
