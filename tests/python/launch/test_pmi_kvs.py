"""PMI-1 and PMI-2 against a fake of mpiexec and of srun."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from fake_launcher import FakeLauncher, S, together

from pycollective.bootstrap.kvs.open_once import open_once
from pycollective.bootstrap.kvs.pmi1 import Pmi1
from pycollective.bootstrap.kvs.pmi2 import Pmi2
from pycollective.errors import CollectiveTimeout, ForkedProcess, PeerFailure

pytestmark = pytest.mark.timeout(60)
SHORT = 0.5  # for calls that must time out; the answers before take milliseconds
TEXT = "x" * 900


@pytest.fixture
def launcher() -> Iterator[FakeLauncher]:
    fake = FakeLauncher(2)
    yield fake
    fake.end()


@pytest.fixture(params=["pmi1", "pmi2"])
def both_kvs(request: pytest.FixtureRequest, launcher: FakeLauncher) -> tuple[Pmi1 | Pmi2, Pmi1 | Pmi2]:
    """Yields the KVSs of two ranks of one job."""
    if request.param == "pmi1":
        return Pmi1(launcher.connect(launcher.pmi1), "a fake"), Pmi1(
            launcher.connect(launcher.pmi1), "a fake"
        )
    return (
        Pmi2(launcher.connect(launcher.pmi2), "a fake", job="7.0", rank=0),
        Pmi2(launcher.connect(launcher.pmi2), "a fake", job="7.0", rank=1),
    )


def test_what_rank_0_publishes_is_read_and_worlds_are_kept_apart(
    both_kvs: tuple[Pmi1 | Pmi2, Pmi1 | Pmi2],
) -> None:
    root, other = both_kvs
    for number in range(3):  # init() after shutdown() uses the same connection
        key, text = f"pycollective.{number}", f"{number}{TEXT[1:]}"
        results = together(
            lambda key=key, text=text: root.publish(key, text, timeout_s=S),  # type: ignore[misc]
            lambda key=key: other.read(key, timeout_s=S),  # type: ignore[misc]
        )
        assert results == [None, text]
    assert not os.get_inheritable(root.channel.fd)


@pytest.mark.parametrize("late", [0, 1])
def test_a_rank_that_comes_in_vain_says_so_and_can_come_again(
    both_kvs: tuple[Pmi1 | Pmi2, Pmi1 | Pmi2], launcher: FakeLauncher, late: int
) -> None:
    root, other = both_kvs
    calls = [
        lambda timeout_s: root.publish("key", TEXT, timeout_s=timeout_s),
        lambda timeout_s: other.read("key", timeout_s=timeout_s),
    ]
    for _ in range(2):
        with pytest.raises(
            CollectiveTimeout, match=r"not every rank came to init\(\) in 0.5 s, for a fake waits"
        ):
            calls[1 - late](SHORT)
    assert together(lambda: calls[0](S), lambda: calls[1](S)) == [None, TEXT]
    # one line of each rank
    assert sum("barrier_in" in line or "fence" in line for line in launcher.heard) == 2
    assert sum("put" in line for line in launcher.heard) == 1


def test_a_launcher_that_has_exited_is_reported_in_words(
    both_kvs: tuple[Pmi1 | Pmi2, Pmi1 | Pmi2], launcher: FakeLauncher
) -> None:
    launcher.hang_up()
    with pytest.raises(PeerFailure, match="the connection to a fake is broken: .*The launcher is ending"):
        both_kvs[1].read("key", timeout_s=S)


def test_a_launcher_that_dies_during_a_wait_is_noticed_at_once(
    both_kvs: tuple[Pmi1 | Pmi2, Pmi1 | Pmi2], launcher: FakeLauncher
) -> None:
    thread = threading.Thread(target=lambda: (wait_for_barrier(launcher), launcher.hang_up()))
    thread.start()
    with pytest.raises(PeerFailure, match="it closed the connection"):
        both_kvs[1].read("key", timeout_s=S)
    thread.join(S)


def wait_for_barrier(launcher: FakeLauncher) -> None:
    assert launcher.rank_waits.wait(S)


def test_a_refusal_is_passed_on(both_kvs: tuple[Pmi1 | Pmi2, Pmi1 | Pmi2]) -> None:
    root, other = both_kvs
    _, found = together(
        lambda: root.publish("another", TEXT, timeout_s=S), lambda: other.read("key", timeout_s=S)
    )
    assert isinstance(found, PeerFailure)
    assert "no_such_key" in str(found) or "no value for key" in str(found)


def test_a_long_text_travels_in_pieces_where_values_must_be_short(launcher: FakeLauncher) -> None:
    launcher.vallen_max = 64
    root, other = (Pmi1(launcher.connect(launcher.pmi1), "a fake") for _ in range(2))
    text = "".join(chr(ord("a") + i % 26) for i in range(900))
    assert together(
        lambda: root.publish("key", text, timeout_s=S), lambda: other.read("key", timeout_s=S)
    ) == [None, text]
    assert len(launcher.values) == 15


def test_garbage_in_place_of_a_length_is_refused(launcher: FakeLauncher) -> None:
    def serve(link: socket.socket) -> None:
        link.recv(1000)
        link.sendall(b"cmd=response_to_init rc=0\nGARBAGE!")
        link.recv(1000)

    kvs = Pmi2(launcher.connect(serve), "a fake", job="7.0", rank=1)
    with pytest.raises(PeerFailure, match="b'GARBAG' where the length"):
        kvs.read("key", timeout_s=S)


def test_ctrl_c_ends_the_wait(both_kvs: tuple[Pmi1 | Pmi2, Pmi1 | Pmi2], launcher: FakeLauncher) -> None:
    def press() -> None:
        wait_for_barrier(launcher)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        both_kvs[1].read("key", timeout_s=S)
    thread.join(S)


FINALIZE = """
import os, sys
from pycollective.bootstrap.kvs.pmi1 import Pmi1
kvs = Pmi1(int(sys.argv[1]), "a fake")
os.set_inheritable(kvs.channel.fd, True)
kvs.publish("key", "text", timeout_s=20)
"""


@pytest.mark.parametrize(
    ("ending", "finalized"),
    [("", True), ("raise SystemExit(3)", True), ("raise ValueError", False), ("os._exit(0)", False)],
)
def test_only_a_clean_end_is_reported_to_the_launcher(ending: str, finalized: bool) -> None:
    fake = FakeLauncher(1)
    fd = fake.connect(fake.pmi1)
    try:
        subprocess.run(
            [sys.executable, "-c", FINALIZE + ending, str(fd)],
            pass_fds=[fd],
            stderr=subprocess.DEVNULL,
            timeout=S,
            check=False,
        )
    finally:
        fake.end()
    assert ("cmd=finalize" in fake.heard) == finalized
    assert "cmd=barrier_in" in fake.heard


def test_a_forked_child_neither_uses_the_kvs_nor_finalizes_it() -> None:
    fake = FakeLauncher(1)
    fd = fake.connect(fake.pmi1)
    program = FINALIZE + "if os.fork() == 0: sys.exit()\nos.wait()\nos._exit(0)"
    try:
        subprocess.run([sys.executable, "-c", program, str(fd)], pass_fds=[fd], timeout=S, check=True)
    finally:
        fake.end()
    assert "cmd=barrier_in" in fake.heard
    assert "cmd=finalize" not in fake.heard


def test_a_kvs_is_opened_once_per_process_and_not_by_a_forked_child(launcher: FakeLauncher) -> None:
    fd = launcher.connect(launcher.pmi1)
    kvs = open_once(f"test {fd}", lambda: Pmi1(fd, "a fake"))
    assert open_once(f"test {fd}", lambda: Pmi1(fd, "a fake")) is kvs
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            try:
                open_once(f"test {fd}", lambda: Pmi1(fd, "a fake"))
            except ForkedProcess:
                os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
