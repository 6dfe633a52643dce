"""A world that starts among foreign processes, at a wrong address or with too few ranks.

It starts, or every rank reports why not. These tests do not know our protocol, and observe it only
from outside.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import re
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import pycollective as pc
from pycollective import bootstrap, testing
from pycollective.launching.environment import free_port

pytestmark = pytest.mark.timeout(60)

SOON_S = 20.0  # far below the default timeout of 600 s, far above what a loaded machine needs
WAIT_S = 1.5  # the deadline of an init() that must fail
CLOSED_S = 10.0  # how long a foreign connection that sends nonsense may stay open
MOST_GROWTH = 64 << 20  # bytes; a length that is trusted would be gigabytes
NONSENSE = {
    "nothing, and leaves": b"",
    "one byte": b"P",
    "HTTP": b"GET / HTTP/1.1\r\nHost: pycollective\r\n\r\n" * 4,
    "zeros": bytes(4096),
    "4 GiB lengths": b"\xff" * 4096,
    "8-byte lengths of 4 GiB": (1 << 32).to_bytes(8, "little") * 512,
    "lengths in network order": (1 << 32).to_bytes(8, "big") * 512,
    "a megabyte": os.urandom(64) * (1 << 14),
}

Outcome = tuple[str, str, float]


def joining(*place: Any, **how: Any) -> Outcome:
    """Returns the type and message of what init() raises, and how long that took."""
    began = time.monotonic()
    try:
        pc.init(*place, **how)
    except pc.CollectiveError as error:
        return type(error).__name__, str(error), time.monotonic() - began
    return "joined", "", time.monotonic() - began


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=CLOSED_S)


def send_nonsense(address: str, what: bytes) -> bytes:
    """Returns what is received until the other side closes.

    Raises TimeoutError if it never does.
    """
    with connect(address) as stranger:
        came = b""
        try:
            stranger.sendall(what)
            stranger.shutdown(socket.SHUT_WR)
            while part := stranger.recv(4096):
                came += part
        except TimeoutError:
            raise
        except OSError:  # closed with our bytes unread, which is correct
            pass
        return came


def exact() -> bool:
    return bool(pc.allreduce(np.arange(5.0) + pc.rank())[3] == 3 * pc.size() + sum(range(pc.size())))


def beside_foreign_connections() -> Any:
    """Rank 0 is last: the other ranks wait in init() while the store gets nonsense."""
    if os.environ["PYCOLLECTIVE_RANK"] != "0":
        pc.init(timeout=SOON_S)
        works = [exact(), exact()]
        pc.shutdown()
        return works
    store, host = os.environ["PYCOLLECTIVE_STORE"], psutil.Process(os.getppid())
    before = host.memory_info().rss
    with contextlib.ExitStack() as silent:
        for _ in range(50):
            silent.enter_context(connect(store))
        answers = {name: send_nonsense(store, what) for name, what in NONSENSE.items()}
        pc.init(timeout=SOON_S)
        works = [exact()]
        for what in NONSENSE.values():
            # it may have closed, since all ranks have joined
            with contextlib.suppress(ConnectionRefusedError):
                send_nonsense(store, what)
        works.append(exact())
        pc.shutdown()
    return works, answers, host.memory_info().rss - before


def test_foreign_connections_to_the_store_change_nothing() -> None:
    (works, answers, growth), *others = testing.run(beside_foreign_connections, 3, init=False, timeout_s=45)
    assert works == [True, True]
    assert others == [[True, True]] * 2
    assert all(len(answer) < 256 for answer in answers.values()), answers
    assert growth < MOST_GROWTH


def leave(connection: socket.socket) -> None:
    connection.close()


def stay(connection: socket.socket) -> None:
    del connection


def serve_http(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 4294967296\r\n\r\n" * 40)
    connection.close()


def echo(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(connection.recv(4096))


@contextlib.contextmanager
def impostor(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A foreign process listens on the port of rank 0."""
    kept = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                connection, _ = server.accept()
                if ended.is_set():
                    connection.close()
                    return
                kept.append(connection)
                connection.settimeout(CLOSED_S)
                answer(connection)

        ended = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        try:
            yield address
        finally:
            ended.set()
            connect(address).close()
            thread.join()
            for connection in kept:
                connection.close()


@pytest.mark.parametrize("answer", [stay, leave, serve_http, echo])
def test_an_impostor_on_rank_0s_port_is_a_timeout_that_names_the_address(
    answer: Callable[[socket.socket], None],
) -> None:
    with impostor(answer) as address:
        kind, message, seconds = joining(address, rank=1, size=2, timeout=0.5)
    assert kind == "CollectiveTimeout"
    assert address in message
    assert "Check that rank 0 runs" in message
    assert 0.4 < seconds < SOON_S
    assert not pc.is_initialized()


def test_no_listener_on_rank_0s_port_is_a_timeout_that_names_the_address() -> None:
    address = f"127.0.0.1:{free_port()}"
    kind, message, seconds = joining(address, rank=1, size=2, timeout=0.5)
    assert (kind, address in message) == ("CollectiveTimeout", True)
    assert "refused" in message
    assert "Check that rank 0 runs" in message
    assert seconds < SOON_S


def test_a_port_that_is_taken_is_reported_to_rank_0_at_once() -> None:
    with impostor(stay) as address:
        kind, message, seconds = joining(address, rank=0, size=2, timeout=WAIT_S)
    assert kind == "CollectiveError"
    assert address in message
    assert "EADDRINUSE" in message
    assert "is another rank 0, or another job, using this address?" in message
    assert seconds < WAIT_S


def test_an_address_of_another_host_is_reported_to_rank_0_at_once() -> None:
    kind, message, seconds = joining("192.0.2.77:4000", rank=0, size=2, timeout=WAIT_S)
    assert kind == "CollectiveError"
    assert "192.0.2.77:4000" in message
    assert seconds < WAIT_S


@pytest.mark.parametrize("rank", [0, 1])
def test_a_host_that_does_not_resolve_is_named_with_where_it_was_said(
    monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    host = "no-such-host.invalid"
    kind, message, seconds = joining(f"{host}:4000", rank=rank, size=2, timeout=WAIT_S)
    assert (kind, host in message, "init(address=" in message) == ("InvalidArgument", True, True)
    assert seconds < SOON_S
    place = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "MASTER_ADDR": host, "MASTER_PORT": 4000}
    for name, value in place.items():
        monkeypatch.setenv(name, str(value))
    kind, message, seconds = joining(timeout=WAIT_S)
    assert (kind, f"MASTER_ADDR={host}" in message) == ("InvalidArgument", True)
    assert seconds < SOON_S


def without_rank_2(pipes: Sequence[Path]) -> Outcome | None:
    rank = int(os.environ["PYCOLLECTIVE_RANK"])
    if rank == 2:  # lives as long as the others without joining, since its end would be reported to them
        for pipe in pipes:
            pipe.read_text()
        return None
    try:
        return joining(timeout=WAIT_S)
    finally:
        pipes[rank].write_text("over")


def test_a_rank_that_never_arrives_is_named_on_every_other(tmp_path: Path) -> None:
    pipes = [tmp_path / str(rank) for rank in range(2)]
    for pipe in pipes:
        os.mkfifo(pipe)
    *came, _ = testing.run(without_rank_2, 3, pipes, init=False)
    for kind, message, seconds in came:
        assert kind == "CollectiveTimeout"
        assert "of 3 ranks these never came: 2. Look whether" in message
        assert seconds < SOON_S


def two_with_one_number() -> Outcome:
    if os.environ["PYCOLLECTIVE_RANK"] == "2":
        os.environ["PYCOLLECTIVE_RANK"] = os.environ["PYCOLLECTIVE_LOCAL_RANK"] = "1"
    return joining(timeout=WAIT_S)


def test_two_ranks_with_one_number_are_reported_to_both_and_to_rank_0_at_once() -> None:
    first, *both = testing.run(two_with_one_number, 3, init=False)
    assert first[0] == "CollectiveMismatch"
    for kind, message, seconds in (first, *both):
        assert kind in ("CollectiveMismatch", "Aborted")  # one of the two may receive the report of rank 0
        assert re.search(
            r"two processes say that they are rank 1: process \d+ on \S+ and process \d+ on", message
        )
        assert "Give every process its own rank" in message
        assert seconds < WAIT_S


def out_of_descriptors(spare: int) -> Outcome:
    if os.environ["PYCOLLECTIVE_RANK"] == "1":
        for module in pkgutil.walk_packages(bootstrap.__path__, "pycollective.bootstrap."):
            importlib.import_module(module.name)  # which needs descriptors too
        use_up_descriptors(spare)
    return joining(timeout=WAIT_S)


def use_up_descriptors(spare: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
    taken = []
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    for fd in taken[:spare]:
        os.close(fd)


@pytest.mark.parametrize("spare", [0, 2, 6, 8])
def test_a_rank_out_of_descriptors_says_so_and_the_others_do_not_hang(spare: int) -> None:
    first, starved, last = testing.run(out_of_descriptors, 3, spare, init=False)
    assert "Too many open files (EMFILE)" in starved[1]
    assert starved[0] in ("CollectiveError", "CollectiveTimeout")
    for kind, message, seconds in (first, last):
        assert kind in ("CollectiveTimeout", "PeerFailure", "Aborted"), message
        assert re.search(r"rank [012]\b|never came: 1\b", message), (
            message
        )  # 0 and 2 may report each other first
        assert seconds < SOON_S


def test_a_rank_out_of_descriptors_is_not_taken_for_another_host() -> None:
    kinds = {testing.run(out_of_descriptors, 3, spare, init=False)[1][0] for spare in (3, 4, 5)}
    assert "InvalidArgument" not in kinds


def test_a_rank_out_of_descriptors_says_what_to_do() -> None:
    assert "ulimit -n" in testing.run(out_of_descriptors, 3, 0, init=False)[1][1]
