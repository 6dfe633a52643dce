"""In every failure each rank soon raises the right type, and names the rank to blame."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sampled

import pycollective as pc
from pycollective import testing
from pycollective.launching.environment import free_port

SOON_S = 20  # far below the default timeout of 600 s, far above what a loaded machine needs


def outcome(call: Any) -> tuple[str, str, float]:
    """Returns the type and message of the error that `call` raises, and how long that took."""
    began = time.monotonic()
    try:
        call()
    except (pc.CollectiveError, KeyboardInterrupt) as error:
        return type(error).__name__, str(error), time.monotonic() - began
    return "nothing", "", time.monotonic() - began


# The rank that differs, its call, and the call of the other ranks.
DISAGREEMENTS: dict[str, tuple[int, Any, Any]] = {
    "count": (1, lambda: pc.allreduce(np.zeros(5)), lambda: pc.allreduce(np.zeros(4))),
    "dtype": (1, lambda: pc.allreduce(np.zeros(4, np.int32)), lambda: pc.allreduce(np.zeros(4, np.float32))),
    "op": (0, lambda: pc.allreduce(np.zeros(4), "max"), lambda: pc.allreduce(np.zeros(4))),
    "call": (1, lambda: pc.barrier(), lambda: pc.allreduce(np.zeros(4))),
}


def disagree(what: str) -> tuple[str, str, float]:
    odd_rank, call, others = DISAGREEMENTS[what]
    result = outcome(call if pc.rank() == odd_rank else others)
    assert pc.allreduce(np.ones(2)).tolist() == [pc.size()] * 2, "the group goes on"
    return result


@pytest.mark.daily(4)
@pytest.mark.parametrize("what", DISAGREEMENTS)
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_that_disagree_all_raise_a_mismatch_that_names_them(what: str, ranks: int) -> None:
    for rank, (kind, message, seconds) in enumerate(testing.run(disagree, ranks, what)):
        assert kind == "CollectiveMismatch", message
        assert seconds < SOON_S, message
        assert f"on rank {rank} " in message
        assert f"rank {DISAGREEMENTS[what][0]} " in message, message
        assert message.count(" at world/test_failures.py:") == 2, message  # with the lines of the calls


def send_too_little() -> tuple[str, str, float]:
    if pc.rank() == 1:
        result = outcome(lambda: pc.recv(np.zeros(5), 0))
    else:
        result = outcome(lambda: pc.send(np.zeros(4, np.float32), 1))
    pc.barrier()
    return result


def test_a_message_of_another_size_is_a_mismatch_that_says_both() -> None:
    sent, received = testing.run(send_too_little, 2)
    assert sent[0] == "nothing"  # small messages are done before they are received
    assert received[0] == "CollectiveMismatch"
    assert "rank 0 sent float32[4]" in received[1]
    assert "40 B float64" in received[1]


def come_too_late() -> None:
    x = np.zeros(3)
    if pc.rank() == 1:
        pc.recv(x, 0)  # until rank 0 has given up
    try:
        pc.allreduce(x, timeout=0.3)
    except pc.CollectiveTimeout as error:
        assert error.rank == pc.rank()
        assert error.sequence is not None
        assert "allreduce" in (error.operation or "")
        assert error.elapsed_s is not None
        assert error.elapsed_s < SOON_S
        if pc.rank() == 0:
            assert error.peer == 1
            assert error.elapsed_s >= 0.3
            assert "in come_too_late" in str(error)  # the position of rank 1
    else:
        raise AssertionError("not all ranks were there")
    if pc.rank() == 0:
        pc.send(x, 1)
    assert pc.allreduce(np.ones(2)).tolist() == [2, 2], "the group goes on"


def test_a_rank_that_comes_too_late_is_named_and_both_go_on() -> None:
    testing.run(come_too_late, 2)


def die_or_wait(how: str) -> Any:
    x = np.zeros(1)
    if pc.rank() == 1:
        for other in (0, 2):
            pc.recv(x, other)  # until they need nothing more from init()
        if how == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL)
    pc.send(x, 1)
    return outcome(lambda: pc.allreduce(np.zeros(1000)))


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_a_rank_that_dies_is_a_peer_failure_on_all_others(how: str) -> None:
    with pytest.raises(testing.WorldFailed) as failed:
        testing.run(die_or_wait, 3, how)
    assert set(failed.value.errors) == {1}
    kinds = {rank: result[0] for rank, result in failed.value.results.items()}
    assert set(kinds) == {0, 2}
    assert set(kinds.values()) == {"PeerFailure"}
    assert all("rank 1" in message and "pid" in message for _, message, _ in failed.value.results.values())
    assert all(seconds < SOON_S for _, _, seconds in failed.value.results.values())


def interrupted() -> str:
    kind = "nothing"
    if pc.rank() == 1:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        kind = outcome(lambda: pc.recv(np.zeros(1), 0))[0]
        timer.join()
    assert pc.allreduce(np.ones(2)).tolist() == [2, 2], "the group goes on"
    return kind


def test_ctrl_c_ends_a_waiting_recv_and_nothing_else() -> None:
    assert testing.run(interrupted, 2) == ["nothing", "KeyboardInterrupt"]


def late_interrupted() -> str:
    if pc.rank() == 0:
        pc.recv(np.zeros(1), 1)  # arrives when rank 1 has been interrupted
        kind = outcome(pc.barrier)[0]
    else:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        kind = outcome(pc.barrier)[0]
        timer.join()
        pc.send(np.zeros(1), 0)
    assert pc.allreduce(np.ones(2)).tolist() == [2, 2], "the group goes on"
    return kind


def test_ctrl_c_in_a_collective_ends_it_for_all_and_the_group_goes_on() -> None:
    other, kind = testing.run(late_interrupted, 2)
    assert kind == "KeyboardInterrupt"
    assert other in ("PeerInterrupted", "nothing")  # all that it needs may have arrived before the report


class Alarm(Exception):
    pass


def alarmed() -> Any:
    def ring(*_: Any) -> None:
        raise Alarm

    if pc.rank() == 1:
        return outcome(lambda: pc.recv(np.zeros(1), 0))[0]
    signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        pc.recv(np.zeros(1), 1)
    except Alarm:
        return "Alarm"
    return "nothing"


def test_what_a_signal_handler_raises_comes_out_of_the_waiting_call() -> None:
    assert testing.run(alarmed, 2)[0] == "Alarm"


def absent(pipe: Path) -> Any:
    if os.environ["PYCOLLECTIVE_RANK"] == "1":  # lives, but does not call init()
        return pipe.read_text()
    try:
        return outcome(lambda: pc.init(timeout=0.5))
    finally:
        pipe.write_text("over")


def test_init_names_the_ranks_that_never_came(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (kind, message, seconds), _ = testing.run(absent, 2, tmp_path / "pipe", init=False)
    assert kind == "CollectiveTimeout"
    assert "1" in message
    assert seconds < SOON_S


def shut_down_alone() -> Any:
    if pc.rank() == 1:
        return outcome(lambda: pc.recv(np.zeros(1), 0))[0]
    kind = outcome(lambda: pc.shutdown(timeout=0.3))[0]
    assert not pc.is_initialized()
    return kind


def test_shutdown_gives_up_at_its_deadline_and_has_left_all_the_same() -> None:
    kind, other = testing.run(shut_down_alone, 2)
    assert kind in ("CollectiveTimeout", "CollectiveMismatch")
    assert other != "nothing"


def run_ranks(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "program.py"
    program.write_text("import os, subprocess, sys\nimport numpy as np\nimport pycollective as pc\n" + script)
    cli = [sys.executable, "-c", "import sys; from pycollective.cli import main; sys.exit(main())"]
    return subprocess.run(
        [*cli, "run", "-n", "2", str(program)], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_process_may_end_without_shutdown(tmp_path: Path) -> None:
    ended = run_ranks(tmp_path, "pc.init()\nassert pc.allreduce(np.ones(1)) == 2\n")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_ranks_that_end_of_a_mismatch_do_not_hide_it_from_the_others(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
import numpy as np, pycollective as pc
pc.init()
pc.allreduce(np.ones(3 + (pc.rank() == 1)))
"""
    )
    cli = [sys.executable, "-c", "import sys; from pycollective.cli import main; sys.exit(main())"]
    for _ in range(5 if sampled.FULL else 2):
        command = [*cli, "run", "-n", "4", str(program)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert "CollectiveMismatch" in ended.stderr
        assert "PeerFailure" not in ended.stderr, ended.stderr


def test_a_wrong_call_that_only_the_end_of_the_process_detects_is_reported(tmp_path: Path) -> None:
    ended = run_ranks(
        tmp_path,
        """
pc.init()
pc.broadcast(np.zeros(1), root=pc.rank())  # each sends, no rank receives
pc.barrier()
""",
    )
    assert "was wrong" in ended.stderr


def test_an_exception_that_ends_a_process_is_known_to_the_others_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    ended = run_ranks(
        tmp_path,
        """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher's, which may come before the notice has been printed
pc.init()
try:
    pc.barrier()  # of which rank 1 may not have heard the end when rank 0 is gone
    if pc.rank() == 0:
        raise ValueError("the cause")
    pc.recv(np.zeros(1), 0)
except pc.PeerFailure:
    print("noticed", flush=True)
""",
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "ValueError: the cause"
    assert "[1] noticed" in ended.stdout
    assert time.monotonic() - began < SOON_S


def test_a_message_that_does_not_come_is_explained_by_the_program_and_not_only_by_its_threads(
    tmp_path: Path,
) -> None:
    ended = run_ranks(
        tmp_path,
        """
import threading
pc.init()
if pc.rank() == 1:
    loading, loaded = threading.Event(), threading.Event()
    def serve():
        loading.wait()
        pc.send(np.zeros(1), 0, tag=6)  # the main thread has come to load_data()
        pc.recv(np.zeros(1), 0, tag=7)
        loaded.set()
    def load_data():
        loading.set()
        loaded.wait()
    server = threading.Thread(target=serve)
    server.start()
    load_data()
    server.join()
else:
    pc.recv(np.zeros(1), 1, tag=6)
    try:
        pc.recv(np.zeros(1), 1, tag=5, timeout=0.5)
    except pc.CollectiveTimeout as error:
        print(error, flush=True)
    pc.send(np.zeros(1), 1, tag=7)
pc.shutdown()
""",
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "rank 1" in ended.stdout, ended.stdout
    assert re.search(r"called from \S*program.py:\d+ in load_data", ended.stdout), ended.stdout


def test_a_rank_that_exits_while_it_is_needed_is_named_and_its_exit_code_counts(tmp_path: Path) -> None:
    ended = run_ranks(
        tmp_path,
        """
pc.init()
pc.barrier()
if pc.rank() == 1:
    sys.exit(3)
pc.allreduce(np.zeros(1000))
""",
    )
    assert ended.returncode == 3, ended.stderr
    assert "PeerExited" in ended.stderr
    # by either source of the report
    exits = r"rank 1( \(host .*\))? called shutdown\(\)(, aborted this group)? or ended"
    assert re.search(exits, ended.stderr), ended.stderr


def test_daemon_threads_in_a_call_do_not_crash_the_interpreter_at_its_end(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
import threading
import pycollective as pc
calls = [0, 0]
def poll(mine):
    while True:
        try:
            pc.barrier()
        except pc.NotInitialized:
            calls[mine] += 1
for mine in range(2):
    threading.Thread(target=poll, args=(mine,), daemon=True).start()
while min(calls) < 5000:
    pass
"""
    )
    for _ in range(8 if sampled.FULL else 3):
        ended = subprocess.run([sys.executable, str(program)], capture_output=True, timeout=60, check=False)
        assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_tool_that_a_rank_starts_or_forks_is_not_that_rank(tmp_path: Path) -> None:
    ended = run_ranks(
        tmp_path,
        """
tool = [sys.executable, "-c", "import pycollective as pc; pc.init(timeout=5)"]
started = subprocess.run(tool, close_fds=False, capture_output=True, text=True)
assert "is not a rank" in started.stderr.replace("\\n", " "), started.stderr
child = os.fork()
if child == 0:
    try:
        pc.init(timeout=5)
    except pc.ForkedProcess:
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
pc.init()
assert pc.allreduce(np.ones(1)) == 2
pc.shutdown()
""",
    )
    assert ended.returncode == 0, ended.stderr


def come_late(address: str, marker: str) -> Any:
    rank = int(os.environ["PYCOLLECTIVE_RANK"])
    kind = "nothing"
    if rank == 0:
        kind = outcome(lambda: pc.init(address, rank=0, size=2, timeout=0.5))[0]
        Path(marker).write_text("")
    else:
        while not Path(marker).exists():
            threading.Event().wait(0.01)
    pc.init(address, rank=rank, size=2, timeout=30)
    total = float(pc.allreduce(np.ones(1))[0])
    pc.shutdown()
    return kind, total


def test_init_may_be_tried_again_after_a_timeout(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    results = testing.run(come_late, 2, address, str(tmp_path / "marker"), init=False)
    assert results == [("CollectiveTimeout", 2.0), ("nothing", 2.0)]


def test_sigusr2_prints_the_last_calls_of_a_rank_that_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "program.py.err")
    ended = run_ranks(
        tmp_path,
        """
import select, signal
fifo = sys.argv[0] + ".err"
if os.environ["PYCOLLECTIVE_RANK"] == "1":
    os.dup2(os.open(fifo, os.O_RDWR), 2)
pc.init()
pids = pc.allreduce(np.array([os.getpid() * (pc.rank() == r) for r in range(2)]))
if pc.rank() == 1:
    pc.recv(np.zeros(1), 0)
else:
    reader = os.open(fifo, os.O_RDWR)
    printed = ""
    while "recv" not in printed:  # the first may come before rank 1 waits
        os.kill(int(pids[1]), signal.SIGUSR2)
        while select.select([reader], [], [], 0.2)[0]:
            printed += os.read(reader, 65536).decode()
    print(printed, flush=True)
    pc.send(np.zeros(1), 1)
pc.barrier()
""",
    )
    assert ended.returncode == 0, ended.stderr
    assert "allreduce int64[2] sum" in ended.stdout
    assert "program.py:" in ended.stdout
