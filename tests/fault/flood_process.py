"""A process that floods several listeners with connections, and reports what became of them.

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

SOURCES = tuple(f"127.0.0.{last}" for last in range(1, 9))  # the first is also the source of honest ranks
LATE_PORT = 24  # IP_BIND_ADDRESS_NO_PORT: connect() chooses the port, so that each source has all of them
# SO_LINGER: close() resets the connection, so no port stays taken for a minute
NO_FAREWELL = struct.pack("ii", 1, 0)
EVENTS = 64  # between two looks at the supervisor's commands
HEARD_BYTES = 96  # read from a rank that takes this process for the store


@dataclass
class Listener:
    address: tuple[str, int]
    words: bytes  # what each connection sends at once
    asked: int  # connections that shall be open
    tried: int = 0  # connections begun
    came: int = 0  # connections established
    shut_out: int = 0
    inside: set[int] = field(default_factory=set)  # descriptors of the present connections
    closed: bool = False  # the listener is closed


class Flood:
    def __init__(self, me: Rank) -> None:
        self.me = me
        self.poller = select.epoll()
        self.poller.register(me.commands, select.EPOLLIN)
        self.connections: dict[int, tuple[socket.socket, Listener]] = {}
        self.listeners: list[Listener] = []
        self.come_back = False  # reconnect at once when a listener closes a connection
        self.announced = True  # whether "there" was reported: all requested connections are established

    def serve(self) -> None:
        commands: dict[str, Callable[..., None]] = {
            each.__name__: each for each in (self.overhear, self.come, self.count, self.leave)
        }
        while True:
            for fd, _ in self.poller.poll(maxevents=EVENTS):
                if fd == self.me.commands:
                    what, *arguments = self.me.next_command()
                    commands[what](*arguments)
                else:
                    self.move(fd)
            if not self.announced and all(each.came >= each.asked for each in self.listeners):
                self.announced = True
                self.me.report("there")

    def overhear(self, host: str, port: int) -> None:
        """Takes the place of a store until a rank has sent a hello to it."""
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen()
            self.me.report("listens")
            listener.settimeout(20)
            guest, _ = listener.accept()
        with guest:
            said = guest.recv(HEARD_BYTES, socket.MSG_WAITALL)
            guest.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_FAREWELL)
        self.me.report("overheard", hello=said.hex())

    def come(self, each: int, come_back: bool, *listeners: tuple[str, int, str]) -> None:
        """Opens `each` connections to every listener, given as (host, port, the bytes to send)."""
        self.announced = False
        self.come_back = come_back
        for host, port, words in listeners:
            self.listeners.append(Listener((host, port), bytes.fromhex(words), each))
        for number in range(each):
            for listener in self.listeners:
                self.approach(listener, number)

    def approach(self, listener: Listener, number: int) -> None:
        connection = socket.socket()
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_FAREWELL)
        connection.setsockopt(socket.IPPROTO_IP, LATE_PORT, 1)
        connection.bind((SOURCES[number % len(SOURCES)], 0))
        listener.tried += 1
        error = connection.connect_ex(listener.address)
        if error not in (0, errno.EINPROGRESS):
            connection.close()
            listener.closed = True
            return
        self.connections[connection.fileno()] = connection, listener
        self.poller.register(connection.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def move(self, fd: int) -> None:
        if fd not in self.connections:
            return
        connection, listener = self.connections[fd]
        try:
            if fd not in listener.inside:
                if error := connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    listener.closed = error == errno.ECONNREFUSED
                    raise ConnectionError
                listener.inside.add(fd)
                listener.came += 1
                self.poller.modify(fd, select.EPOLLIN)
                if listener.words:
                    connection.send(listener.words)
            elif not connection.recv(1 << 16):
                raise ConnectionError
        except BlockingIOError:
            return
        except OSError:
            listener.shut_out += fd in listener.inside
            self.forget(fd)
            if self.come_back and not listener.closed:
                self.approach(listener, listener.tried)

    def forget(self, fd: int) -> None:
        connection, listener = self.connections.pop(fd)
        listener.inside.discard(fd)
        self.poller.unregister(fd)
        connection.close()

    def count(self) -> None:
        self.me.report(
            "counted",
            tried=[each.tried for each in self.listeners],
            shut_out=[each.shut_out for each in self.listeners],
            inside=[len(each.inside) for each in self.listeners],
        )

    def leave(self) -> None:
        for fd in list(self.connections):
            self.forget(fd)
        self.listeners.clear()
        self.me.report("left")


def flood(me: Rank) -> None:
    Flood(me).serve()
