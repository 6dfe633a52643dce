"""A process full of strangers: it holds many sockets at each of several listeners, and says what became of them.

Run it as the only rank of a world of its own, so that its supervisor ends it whatever happens.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from .rank import Rank

SOURCES = tuple(f"127.0.0.{last}" for last in range(1, 9))  # the first is also where honest ranks come from
LATE_PORT = 24  # IP_BIND_ADDRESS_NO_PORT: connect() chooses the port, so that each source has all of them
NO_FAREWELL = struct.pack("ii", 1, 0)  # SO_LINGER: close() resets, and no port stays taken for a minute
EVENTS = 64  # between two looks at the supervisor's commands
HEARD_BYTES = 96  # of whoever takes us for the store


@dataclass
class Listener:
    address: tuple[str, int]
    words: bytes  # what each stranger says at once
    asked: int  # strangers that shall be here
    tried: int = 0  # connections begun
    came: int = 0  # and established
    shut_out: int = 0
    inside: set[int] = field(default_factory=set)  # descriptors of those who are there now
    closed: bool = False  # nobody listens any more


class Siege:
    def __init__(self, me: Rank) -> None:
        self.me = me
        self.poller = select.epoll()
        self.poller.register(me.commands, select.EPOLLIN)
        self.strangers: dict[int, tuple[socket.socket, Listener]] = {}
        self.listeners: list[Listener] = []
        self.come_back = False  # who is shut out, at once
        self.announced = True  # that all who were asked for have come

    def serve(self) -> None:
        orders: dict[str, Callable[..., None]] = {
            each.__name__: each for each in (self.overhear, self.come, self.count, self.leave)
        }
        while True:
            for fd, _ in self.poller.poll(maxevents=EVENTS):
                if fd == self.me.commands:
                    what, *arguments = self.me.hear()
                    orders[what](*arguments)
                else:
                    self.move(fd)
            if not self.announced and all(each.came >= each.asked for each in self.listeners):
                self.announced = True
                self.me.say("there")

    def overhear(self, host: str, port: int) -> None:
        """Takes the place of a store until somebody has said hello to it."""
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen()
            self.me.say("listens")
            listener.settimeout(20)
            guest, _ = listener.accept()
        with guest:
            said = guest.recv(HEARD_BYTES, socket.MSG_WAITALL)
            guest.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_FAREWELL)
        self.me.say("overheard", hello=said.hex())

    def come(self, each: int, come_back: bool, *listeners: tuple[str, int, str]) -> None:
        """`each` strangers go to every listener: host, port, what they say there."""
        self.announced = False
        self.come_back = come_back
        for host, port, words in listeners:
            self.listeners.append(Listener((host, port), bytes.fromhex(words), each))
        for number in range(each):
            for listener in self.listeners:
                self.approach(listener, number)

    def approach(self, listener: Listener, number: int) -> None:
        stranger = socket.socket()
        stranger.setblocking(False)
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_FAREWELL)
        stranger.setsockopt(socket.IPPROTO_IP, LATE_PORT, 1)
        stranger.bind((SOURCES[number % len(SOURCES)], 0))
        listener.tried += 1
        error = stranger.connect_ex(listener.address)
        if error not in (0, errno.EINPROGRESS):
            stranger.close()
            listener.closed = True
            return
        self.strangers[stranger.fileno()] = stranger, listener
        self.poller.register(stranger.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def move(self, fd: int) -> None:
        if fd not in self.strangers:
            return
        stranger, listener = self.strangers[fd]
        try:
            if fd not in listener.inside:
                if error := stranger.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    listener.closed = error == errno.ECONNREFUSED
                    raise ConnectionError
                listener.inside.add(fd)
                listener.came += 1
                self.poller.modify(fd, select.EPOLLIN)
                if listener.words:
                    stranger.send(listener.words)
            elif not stranger.recv(1 << 16):
                raise ConnectionError
        except BlockingIOError:
            return
        except OSError:
            listener.shut_out += fd in listener.inside
            self.forget(fd)
            if self.come_back and not listener.closed:
                self.approach(listener, listener.tried)

    def forget(self, fd: int) -> None:
        stranger, listener = self.strangers.pop(fd)
        listener.inside.discard(fd)
        self.poller.unregister(fd)
        stranger.close()

    def count(self) -> None:
        self.me.say(
            "counted",
            tried=[each.tried for each in self.listeners],
            shut_out=[each.shut_out for each in self.listeners],
            inside=[len(each.inside) for each in self.listeners],
        )

    def leave(self) -> None:
        for fd in list(self.strangers):
            self.forget(fd)
        self.listeners.clear()
        self.me.say("left")


def besiege(me: Rank) -> None:
    Siege(me).serve()
