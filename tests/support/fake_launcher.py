"""Servers that implement the launchers' protocols, and ranks that call at the same time."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import struct
import threading
from collections.abc import Callable

S = 20.0  # more than enough


class FakeLauncher:
    """The key-value space of one job. Serves each rank's connection in a thread of its own."""

    def __init__(self, ranks: int) -> None:
        self.vallen_max = 1024
        self.values: dict[str, str] = {}
        self.barrier = threading.Barrier(ranks)
        self.heard: list[str] = []  # requests, of all ranks
        self.rank_waits = threading.Event()  # in a barrier or fence
        self.sockets: list[socket.socket] = []
        self.threads: list[threading.Thread] = []

    def hear(self, request: str) -> None:
        self.heard.append(request)
        if "barrier_in" in request or "fence" in request:
            self.rank_waits.set()

    def connect(self, serve: Callable[[socket.socket], None]) -> int:
        ours, theirs = socket.socketpair()
        self.sockets += [ours, theirs]
        self.threads.append(threading.Thread(target=self.guarded, args=(serve, theirs)))
        self.threads[-1].start()
        os.set_inheritable(ours.fileno(), True)  # as a launcher hands it over
        return ours.fileno()

    def guarded(self, serve: Callable[[socket.socket], None], link: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError, threading.BrokenBarrierError):
            serve(link)

    def hang_up(self) -> None:
        self.barrier.abort()
        for each in self.sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(S)

    def end(self) -> None:
        self.hang_up()
        for each in self.sockets:
            each.close()

    def pmi1(self, link: socket.socket) -> None:
        with link.makefile("r") as stream:
            for line in stream:
                self.hear(line.strip())
                words = dict(word.split("=", 1) for word in line.split())
                link.sendall(self.pmi1_answer(words).encode() + b"\n")

    def pmi1_answer(self, words: dict[str, str]) -> str:
        match words["cmd"]:
            case "init":
                return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
            case "get_maxes":
                return f"cmd=maxes kvsname_max=256 keylen_max=64 vallen_max={self.vallen_max}"
            case "get_my_kvsname":
                return "cmd=my_kvsname kvsname=kvs_0"
            case "put":
                assert words["kvsname"] == "kvs_0"
                assert len(words["value"]) < self.vallen_max
                self.values[words["key"]] = words["value"]
                return "cmd=put_result rc=0 msg=success"
            case "barrier_in":
                self.barrier.wait(S)
                return "cmd=barrier_out"
            case "get" if words["key"] in self.values:
                return f"cmd=get_result rc=0 msg=success value={self.values[words['key']]}"
            case "finalize":
                return "cmd=finalize_ack"
        return "cmd=result rc=-1 msg=no_such_key"

    def pmi2(self, link: socket.socket) -> None:
        with link.makefile("rb") as stream:
            assert stream.readline() in (b"cmd=init pmi_version=2 pmi_subversion=0\n", b"")
            link.sendall(b"cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n")
            while head := stream.read(6):
                text = stream.read(int(head)).decode()
                self.hear(text)
                words = dict(word.split("=", 1) for word in text.split(";") if word)
                answer = self.pmi2_answer(words)
                link.sendall(f"{len(answer):6d}{answer}".encode())

    def pmi2_answer(self, words: dict[str, str]) -> str:
        match words["cmd"]:
            case "fullinit":
                return f"cmd=fullinit-response;rc=0;rank={words['pmirank']};size=2;"
            case "kvs-put":
                self.values[words["key"]] = words["value"]
            case "kvs-fence":
                self.barrier.wait(S)
            case "kvs-get" if words["key"] in self.values:
                return f"cmd=kvs-get-response;rc=0;found=TRUE;value={self.values[words['key']]};"
            case "kvs-get":
                return "cmd=kvs-get-response;rc=0;found=FALSE;"
        return f"cmd={words['cmd']}-response;rc=0;"


class FakeAgent:
    """The store of torch's agent, as far as our protocol uses it."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.changed = threading.Condition()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.links: list[socket.socket] = []
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self.links.append(self.listener.accept()[0])
                self.threads.append(threading.Thread(target=self.serve, args=(self.links[-1],)))
                self.threads[-1].start()

    def end(self) -> None:
        for each in (self.listener, *self.links):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(S)
        for each in (self.listener, *self.links):
            each.close()

    def serve(self, link: socket.socket) -> None:
        with link.makefile("rb") as stream, contextlib.suppress(OSError, struct.error, ValueError):
            assert stream.read(5) == b"\0" + struct.pack("<I", 0x3C85F7CE)
            while kind := stream.read(1):
                if kind in (b"\5", b"\6"):
                    assert stream.read(8) == struct.pack("<Q", 1)
                key = word(stream)
                value = word(stream) if kind == b"\1" else b""
                with self.changed:
                    link.sendall(self.answer(kind[0], key, value))

    def answer(self, kind: int, key: bytes, value: bytes) -> bytes:
        match kind:
            case 1:
                self.values[key] = value
                self.changed.notify_all()
                return b""
            case 3:
                return struct.pack("<Q", len(self.values[key])) + self.values[key]
            case 5:
                return b"\0" if key in self.values else b"\1"
            case 6:
                self.changed.wait_for(lambda: key in self.values, 1)
                return b"\0"
        assert kind == 8
        return struct.pack("<q", self.values.pop(key, None) is not None)


def word(stream: io.BufferedReader) -> bytes:
    return stream.read(struct.unpack("<Q", stream.read(8))[0])


def together(*calls: Callable[[], object]) -> list[object]:
    """Makes the calls at the same time. Returns what they return, or raises what they raise."""
    results: list[object] = [None] * len(calls)

    def call(number: int) -> None:
        try:
            results[number] = calls[number]()
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(S)
    return results
