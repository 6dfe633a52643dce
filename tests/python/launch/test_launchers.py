"""One program, unchanged, under every installed launcher; scripts/launchers installs them all."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from launchers import LAUNCHERS, Command, Launcher, free_port, torch, two_agents
from slurm_nodes import two_nodes

from pycollective.bootstrap.addresses import is_usable
from pycollective.bootstrap.interfaces import interfaces

ANYWHERE = str(Path(__file__).resolve().parents[3] / "examples/anywhere.py")
LINE = re.compile(r"rank (\d+) of (\d+), local (\d+) of (\d+), init \d+ ms")
DEADLINE_S = 100.0
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with two_nodes(tmp_path_factory.mktemp("slurm")) as env:
        yield env


def drawn_if_installed(each: Launcher) -> Any:
    reason = each.missing()
    return pytest.param(each, marks=[pytest.mark.skip(reason=reason)] if reason else [])


@pytest.fixture(params=[drawn_if_installed(each) for each in LAUNCHERS], ids=str)
def launcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    each: Launcher = request.param
    if each.slurm:
        for name, value in request.getfixturevalue("slurm").items():
            monkeypatch.setenv(name, value)
    return each


@pytest.fixture(autouse=True)
def a_host_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network two hosts look alike, so the variable must allow loopback."""
    if not any(is_usable(each) for each in interfaces()):
        monkeypatch.setenv("PYCOLLECTIVE_INTERFACE", "lo")


@contextlib.contextmanager
def started(command: Command) -> Iterator[subprocess.Popen[str]]:
    pipe, env = subprocess.PIPE, {**os.environ, **command.env}
    with subprocess.Popen(
        command.words,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:  # it timed out, so its ranks end with it
                os.killpg(process.pid, signal.SIGKILL)


def run(commands: Sequence[Command]) -> tuple[list[int], str, str]:
    """Returns the exit codes, and the standard output and standard error of all."""
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(started(each)) for each in commands]
        said = [process.communicate(timeout=DEADLINE_S) for process in processes]
    return [process.returncode for process in processes], *(
        "".join(texts) for texts in zip(*said, strict=True)
    )


@pytest.mark.daily(4)
def test_the_program_runs_anywhere(launcher: Launcher) -> None:
    codes, out, err = run(launcher.start(4, [ANYWHERE]))
    assert set(codes) == {0}, out + err
    places = sorted(tuple(map(int, found)) for found in LINE.findall(out))
    assert [place[:2] for place in places] == [(rank, 4) for rank in range(4)], out + err
    assert sum(Fraction(1, local_size) for *_, local_size in places) == launcher.hosts
    for local_size in {place[3] for place in places}:
        local_ranks = sorted(place[2] for place in places if place[3] == local_size)
        assert local_ranks == sorted([*range(local_size)] * (len(local_ranks) // local_size))


@pytest.mark.daily(2)
def test_a_rank_that_fails_ends_the_job(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIL_RANK", "1")
    codes, out, err = run(launcher.start(4, [ANYWHERE]))
    assert any(codes), out + err
    assert "RuntimeError: this rank was asked to fail" in err


WORLDS = """
import sys
import numpy as np, pycollective as pc
for world in range(3):
    pc.init()
    assert pc.allreduce(np.ones(1)) == pc.size() == 2
    pc.shutdown()
sys.stdout.write(f"joined {world + 1} worlds\\n")
"""


@pytest.mark.daily(2)
def test_worlds_follow_each_other(launcher: Launcher, tmp_path: Path) -> None:
    script = tmp_path / "worlds.py"
    script.write_text(WORLDS)
    codes, out, err = run(launcher.start(2, [str(script)]))
    assert set(codes) == {0}, out + err
    assert out.count("joined 3 worlds") == 2


DDP = """
import sys
import torch, torch.distributed as dist
for _ in range(2):
    dist.init_process_group("pycollective")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    model(torch.full((1, 2), dist.get_rank() + 1.0)).sum().backward()
    objects = [None] * dist.get_world_size()
    dist.all_gather_object(objects, dist.get_rank())
    assert objects == [0, 1] and dist.new_group([0, 1]) is not None
    sys.stdout.write(f"gradient {model.module.weight.grad.tolist()} of {dist.get_world_size()}\\n")
    dist.destroy_process_group()
"""


@pytest.mark.skipif(torch() is not None, reason=str(torch()))
@pytest.mark.daily(1)
def test_init_process_group_alone_starts_ddp(launcher: Launcher, tmp_path: Path) -> None:
    script = tmp_path / "ddp.py"
    script.write_text(DDP)
    codes, out, err = run(launcher.start(2, [str(script)]))
    assert set(codes) == {0}, out + err
    assert out.count("gradient [[1.5, 1.5]] of 2") == 4, out + err


FORK = """
import os, sys
import numpy as np, pycollective as pc
pc.init()
child = os.fork()
if child == 0:
    try:
        pc.init(timeout=20)
    except pc.ForkedProcess:
        sys.exit(7)  # not os._exit: what runs at exit must not speak for the parent
    sys.exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert pc.allreduce(np.ones(1)) == 2
pc.shutdown()
pc.init()
assert pc.allreduce(np.ones(1)) == 2
sys.stdout.write("still here\\n")
"""


# The other launchers hand nothing over: a child may use everything that its parent has.
HANDING_OVER = [
    drawn_if_installed(each)
    for each in LAUNCHERS
    if each.name not in ("pycollective-2machines", "variables", "paddle-variables", "srun")
]


@pytest.mark.daily(2)
@pytest.mark.parametrize("launcher", HANDING_OVER, indirect=True, ids=str)
def test_a_forked_child_leaves_the_launcher_alone(launcher: Launcher, tmp_path: Path) -> None:
    script = tmp_path / "fork.py"
    script.write_text(FORK)
    codes, out, err = run(launcher.start(2, [str(script)]))
    assert set(codes) == {0}, out + err
    assert out.count("still here") == 2


RESTART = """
import os, sys, threading
from pathlib import Path
import numpy as np, pycollective as pc
failed = Path(sys.argv[1])
first_time = not failed.exists()
pc.init()
assert pc.allreduce(np.ones(1)) == 4  # from here on all ranks have looked
if first_time:
    if pc.rank() == 3:
        for other in range(3):  # a rank that is still in the call would fail by itself
            pc.recv(np.zeros(1), other)
        failed.touch()
        os._exit(1)
    pc.send(np.ones(1), 3)
    threading.Event().wait(90)  # its own agent ends it, and does not count that as a restart
pc.barrier()
sys.stdout.write(f"restarts of this agent: {os.environ['TORCHELASTIC_RESTART_COUNT']}\\n")
"""


@pytest.mark.daily(1)
@pytest.mark.skipif(torch() is not None, reason=str(torch()))
@pytest.mark.parametrize("shared_store", ["0", "1"])
def test_agents_restart_their_ranks_though_they_count_differently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared_store: str
) -> None:
    script = tmp_path / "restart.py"
    script.write_text(RESTART)
    if shared_store == "0":  # then the key is in the user's one home folder
        monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    commands = two_agents(
        4, [str(script), str(tmp_path / "failed")], homes=tmp_path, options=["--max-restarts", "2"]
    )
    if shared_store == "0":
        commands = [Command(each.words) for each in commands]
    codes, out, err = run(commands)
    assert codes == [0, 0], out + err
    counts = sorted(re.findall(r"restarts of this agent: (\d)", out))
    assert counts == ["0", "0", "1", "1"], out + err


BY_HAND = """
import sys
import numpy as np, pycollective as pc
address = sys.argv[1].removeprefix("tcp://" if sys.argv[2] == "1" else "")  # both spellings mean the same
pc.init(address, rank=int(sys.argv[2]), size=3, timeout=60)
assert pc.allreduce(np.ones(1)) == 3
sys.stdout.write(f"joined as {pc.rank()}\\n")
"""


def by_hand(tmp_path: Path, address: str) -> tuple[list[int], str, str]:
    script = tmp_path / "by_hand.py"
    script.write_text(BY_HAND)
    return run([Command([sys.executable, str(script), address, str(rank)]) for rank in range(3)])


ADDRESSES: dict[str, Callable[[Path], str]] = {
    "file": lambda folder: f"file://{folder}/a%20run",
    "folder": lambda folder: f"file://{folder}",
    "port": lambda folder: f"127.0.0.1:{free_port()}",
    "tcp": lambda folder: f"tcp://127.0.0.1:{free_port()}",
}


@pytest.mark.daily(2)
@pytest.mark.parametrize("kind", ADDRESSES)
def test_by_hand(tmp_path: Path, kind: str) -> None:
    (tmp_path / "shared").mkdir()
    for _ in range(2):  # two runs on the same path, one after the other
        codes, out, err = by_hand(tmp_path, ADDRESSES[kind](tmp_path / "shared"))
        assert codes == [0, 0, 0], err
        assert sorted(out.splitlines()) == ["joined as 0", "joined as 1", "joined as 2"]
    assert list((tmp_path / "shared").iterdir()) == []


@pytest.mark.daily(2)
@pytest.mark.parametrize("address", ["file://shared/x", "file://", "file:///", "file:/x"])
def test_what_is_no_path_is_refused(tmp_path: Path, address: str) -> None:
    codes, _, err = by_hand(tmp_path, address)
    assert codes == [1, 1, 1]
    assert err.count("InvalidArgument: init(address=") == 3
