"""`pycollective run --nnodes`: one launcher on each of several machines, without an agent.

Their ranks form one world.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from launchers import free_port
from namespaces import Host, hosts, missing
from test_launch import DEADLINE_S, command, run

pytestmark = pytest.mark.timeout(90)
PLACE = """
import os, sys
import numpy as np, pycollective as pc
pc.init(timeout=30)
assert pc.allreduce(np.ones(3))[0] == pc.size()
found = [pc.rank(), pc.size(), pc.local_rank(), *(os.environ[name] for name in ("LOCAL_WORLD_SIZE", "MASTER_ADDR"))]
sys.stdout.write(" ".join(map(str, found)) + "\\n")
if os.environ.get("FAIL_RANK") == str(pc.rank()):
    raise RuntimeError("this rank was asked to fail")
pc.barrier()
pc.shutdown()
"""


@pytest.fixture
def place(tmp_path: Path) -> str:
    path = tmp_path / "place.py"
    path.write_text(PLACE)
    return str(path)


def words(number: int, of: int, master: str, *more: str) -> list[str]:
    return command("--no-prefix", "--nnodes", str(of), "--node-rank", str(number), "--master", master, *more)


def all_end(
    commands: Sequence[Sequence[str]], env: dict[str, str] | None = None
) -> list[tuple[int, str, str]]:
    """Starts them all at once. Returns the exit code, output and errors of each."""
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as stack:
        processes = []
        for each in commands:
            process = subprocess.Popen(
                each, stdout=pipe, stderr=pipe, text=True, env={**os.environ, **(env or {})}
            )
            processes.append(stack.enter_context(process))
            stack.callback(process.kill)
        said = [process.communicate(timeout=DEADLINE_S) for process in processes]
        return [(process.returncode, *texts) for process, texts in zip(processes, said, strict=True)]


def test_ranks_are_numbered_over_machines_and_connect(place: str) -> None:
    master = f"127.0.0.1:{free_port()}"
    ended = all_end([words(number, 3, master, "-n", "2", place) for number in range(3)])
    assert [code for code, *_ in ended] == [0, 0, 0], ended
    for number, (_, out, _) in enumerate(ended):
        ranks = (2 * number, 2 * number + 1)
        assert sorted(out.splitlines()) == [f"{rank} 6 {rank % 2} 2 127.0.0.1" for rank in ranks]


@pytest.mark.parametrize("failing", [0, 3])
def test_a_rank_that_fails_ends_the_ranks_of_the_other_machines(place: str, failing: int) -> None:
    master = f"127.0.0.1:{free_port()}"
    ended = all_end(
        [words(number, 2, master, "-n", "2", place) for number in range(2)], {"FAIL_RANK": str(failing)}
    )
    assert [code for code, *_ in ended] == [1, 1], ended
    guilty, other = failing // 2, 1 - failing // 2
    reported = f"rank {failing} failed first on the machine with --node-rank {guilty} (exit code 1)"
    assert reported in ended[guilty][2]
    assert "RuntimeError: this rank was asked to fail" in ended[guilty][2]
    assert f"failed first on the machine with --node-rank {other}" in ended[other][2]
    assert "pycollective.errors.Peer" in ended[other][2]


def test_ctrl_c_on_one_machine_ends_them_all(tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text(
        "import pycollective as pc\npc.init(timeout=30)\npc.barrier()\nprint('met', flush=True)\n"
        "pc.recv(None, (pc.rank() + 1) % 2)"
    )
    master = f"127.0.0.1:{free_port()}"
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as stack:
        both = []
        for number in range(2):
            process = subprocess.Popen(
                words(number, 2, master, "-n", "1", str(script)), stdout=pipe, stderr=pipe, text=True
            )
            both.append(stack.enter_context(process))
            stack.callback(process.kill)
        for process in both:
            assert process.stdout is not None
            assert process.stdout.readline() == "met\n"
        both[1].send_signal(signal.SIGINT)
        assert [process.wait(DEADLINE_S) for process in both] == [1, 130]


def test_two_machines_with_one_node_rank_are_an_error_that_names_the_processes(place: str) -> None:
    master = f"127.0.0.1:{free_port()}"
    ended = all_end([words(number, 3, master, "-n", "1", place) for number in (0, 1, 1)])
    assert [code for code, *_ in ended] == [1, 1, 1], ended
    assert any("two processes say that they are rank 1: process " in err for _, _, err in ended[1:]), ended
    assert all("on the machine with --node-rank 1" in err for _, _, err in ended[1:])
    assert (
        "two processes say that they are rank 1" in ended[0][2]
    )  # it waits for rank 2, which took the place of another rank


def test_a_port_that_is_taken_is_reported_before_a_rank_is_started(place: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            words(0, 2, f"127.0.0.1:{port}", "-n", "1", place),
            capture_output=True, text=True, timeout=DEADLINE_S,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == (
        f"pycollective run: cannot start the ranks: port {port} of 127.0.0.1 is taken, by another program or by "
        f"another launcher with --node-rank 0. Name a free one on all machines: --master 127.0.0.1:PORT\n"
    )


def test_a_master_that_cannot_be_is_reported_before_a_rank_is_started(place: str) -> None:
    master = "192.0.2.77"  # an address of no machine, by RFC 5737
    done = run("--nnodes", "2", "--node-rank", "0", "--master", master, "-n", "1", place)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"pycollective run: cannot start the ranks: --master {master} is not an address of " in done.stderr


@pytest.mark.parametrize("number", [0, 1])
def test_a_master_that_does_not_resolve_is_waited_for_by_the_ranks(tmp_path: Path, number: int) -> None:
    """A service of a cluster may get its name after the first launcher has started."""
    script = tmp_path / "joins.py"
    script.write_text("import pycollective as pc\npc.init(timeout=0.3)\n")
    master = "no-such-host.invalid"
    done = run("--nnodes", "2", "--node-rank", str(number), "--master", master, "-n", "1", str(script))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"pycollective run: --master {master} does not resolve on " in done.stderr
    last = done.stderr.splitlines()[-1]
    assert f"MASTER_ADDR={master} does not resolve on " in last
    assert "getent hosts" in last


def test_two_hosts_connect_over_their_network(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := missing():
        pytest.skip(reason)
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    monkeypatch.setenv("PYCOLLECTIVE_KEY_FILE", str(key))

    def starts(made: Sequence[Host]) -> list[list[str]]:
        return [
            host.command(words(number, 2, made[0].address, "-n", "2", place))
            for number, host in enumerate(made)
        ]

    with hosts(2) as made:
        ended = all_end(starts(made))
        assert [code for code, *_ in ended] == [0, 0], ended
        said = sorted(line for _, out, _ in ended for line in out.splitlines())
        assert said == [f"{rank} 4 {rank % 2} 2 {made[0].address}" for rank in range(4)]
        failed = all_end(starts(made), {"FAIL_RANK": "2"})
        assert [code for code, *_ in failed] == [1, 1], failed
        assert "pycollective.errors.Peer" in failed[0][2]


def test_machine_ranks_have_no_descriptor_and_no_store_of_a_launcher(tmp_path: Path) -> None:
    script = tmp_path / "environment.py"
    script.write_text(
        "import os, sys\n"
        "names = sorted(name for name in os.environ if name.startswith('PYCOLLECTIVE_'))\n"
        "print(*names, int(os.environ['MASTER_PORT']) - int(os.environ['PYCOLLECTIVE_PORT']))"
    )
    outer = {"PYCOLLECTIVE_RANK": "5", "PYCOLLECTIVE_STORE": "x:1", "PYCOLLECTIVE_LAUNCHER": "slurm"}
    done = subprocess.run(
        words(1, 2, "127.0.0.1", "-n", "1", str(script)),
        capture_output=True, text=True, timeout=DEADLINE_S, env={**os.environ, **outer},
    )  # fmt: skip
    assert done.stdout == "PYCOLLECTIVE_PORT PYCOLLECTIVE_RESTART_COUNT 1\n", done.stderr
