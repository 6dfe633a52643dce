"""The fork server of these tests (fork_server.py): a forked rank is as good as a fresh one."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import re
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked_ranks import LIBRARIES_OWN, ForkServer, Server, level_of

from pycollective import testing
from pycollective.launching import child

pytestmark = pytest.mark.timeout(60)

SUPPORT = str(Path(__file__).resolve().parents[2] / "support")
LATE_S = 20.0
# A program with two fork servers and two ranks. They print their process numbers and kill it.
KILLED = """
import forked_ranks, test_fork_server
from pycollective import testing
from pycollective.launching import child
server = forked_ranks.ForkServer(late=("",))
child.start = server.start
testing.run(test_fork_server.outlives_its_parent, 2, init=False)
"""


@pytest.fixture
def forks(fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> ForkServer:
    """Also forks with --fresh-ranks."""
    monkeypatch.setattr(child, "start", fork_server.start)
    return fork_server


def is_forked() -> bool:
    return "fork_server" in sys.modules


def as_it_begins() -> dict[str, Any]:
    links = [os.readlink(fd) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
    return {
        "parent": os.getppid(),
        "leads": (os.getsid(0), os.getpgid(0)) == (os.getpid(), os.getpid()),
        "descriptors": sorted(re.sub(r"\d+", "", link) for link in links if not link.startswith("/proc")),
        "threads": len(os.listdir("/proc/self/task")),
        "variables": sorted(name for name in os.environ if not name.startswith(LIBRARIES_OWN)),
        "streams": [
            (file.encoding, file.line_buffering, file.write_through) for file in (sys.stdout, sys.stderr)
        ],
        "signals": [signal.getsignal(number) for number in range(1, signal.NSIG)],
        "folder": os.getcwd(),
        "path": sys.path,
        "arguments": sys.argv,
        "program": sorted(vars(sys.modules["__main__"]).keys() - {"serve"}),
    }


def test_a_forked_rank_begins_as_a_fresh_one(forks: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    forked = testing.run(as_it_begins, 2, init=False)
    monkeypatch.setattr(child, "start", forks.start_fresh)
    fresh = testing.run(as_it_begins, 2, init=False)
    assert forked == fresh
    assert forked[0]["parent"] == os.getpid()
    assert forked[0]["leads"]


def loaded_by_server() -> list[str]:
    return [name for name in ("pytest", "torch", "jax") if name in sys.modules]


@pytest.mark.usefixtures("forks")
def test_ranks_are_forked_from_a_process_that_has_imported_what_their_file_names() -> None:
    names = ["test_groups.py", "test_objects.py", "test_jax_functional.py"]
    assert [level_of(name) for name in names] == [0, 1, 2]
    assert level_of(Path(__file__).name) == 2  # level 2 has torch and jax
    (here,) = testing.run(loaded_by_server, 1, init=False)
    assert here == [name for name in ("pytest", "torch", "jax") if importlib.util.find_spec(name)]


def variable() -> tuple[bool, str | None]:
    return is_forked(), os.environ.get("PYCOLLECTIVE_LOG")


@pytest.mark.usefixtures("forks")
def test_variables_reach_forked_ranks() -> None:
    assert testing.run(variable, 2, env={"PYCOLLECTIVE_LOG": "error"}) == [(True, "error")] * 2
    assert testing.run(variable, 2) == [(True, None)] * 2


@pytest.mark.usefixtures("forks")
def test_a_variable_that_imports_read_gives_fresh_ranks() -> None:
    assert testing.run(is_forked, 1, env={"MKL_NUM_THREADS": "1"}) == [False]


@pytest.mark.fresh_ranks
def test_ranks_of_a_marked_test_are_fresh() -> None:
    assert testing.run(is_forked, 2) == [False, False]


def hashed() -> int:
    return hash("a word")


@pytest.mark.usefixtures("forks")
def test_forked_ranks_have_one_hash_seed() -> None:
    """So the order of their sets is the same.

    A test that needs different orders has the mark fresh_ranks.
    """
    assert len(set(testing.run(hashed, 2))) == 1


@pytest.mark.fresh_ranks
def test_fresh_ranks_have_a_hash_seed_each() -> None:
    assert len(set(testing.run(hashed, 2))) == 2


def drawn() -> list[float]:
    numbers = [random.random(), np.random.random(), np.random.default_rng().random()]
    if (torch := sys.modules.get("torch")) is not None:
        numbers.append(torch.rand(1, dtype=torch.float64).item())
    return numbers


@pytest.mark.usefixtures("forks")
def test_forked_ranks_draw_numbers_of_their_own() -> None:
    numbers = [n for _ in range(2) for rank in testing.run(drawn, 2, init=False) for n in rank]
    assert len(set(numbers)) == len(numbers) >= 12


def loaded() -> list[object]:
    found: list[object] = []
    with contextlib.suppress(ImportError):
        import torch

        found += [torch.get_num_threads(), torch.get_default_dtype()]
    with contextlib.suppress(ImportError):
        import jax._src.xla_bridge

        found += [jax._src.xla_bridge.backends_are_initialized(), jax.numpy.zeros(3).sum().item()]
    return found


@pytest.mark.daily(0)
def test_torch_and_jax_are_as_in_a_fresh_rank(forks: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    forked = testing.run(loaded, 1, init=False)
    monkeypatch.setattr(child, "start", forks.start_fresh)
    assert forked == testing.run(loaded, 1, init=False)


def leaves(how: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL) if how == "killed by SIGKILL" else os._exit(7)


@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize("how", ["killed by SIGKILL", "ended with exit code 7"])
def test_the_end_of_a_forked_rank_is_reported(how: str) -> None:
    with pytest.raises(testing.WorldFailed) as info:
        testing.run(leaves, 1, how, init=False)
    assert info.value.errors[0].summary == how


def fails() -> None:
    raise LookupError("in a forked rank")


@pytest.mark.usefixtures("forks")
def test_what_a_forked_rank_raises_is_reported() -> None:
    with pytest.raises(testing.WorldFailed, match="LookupError: in a forked rank"):
        testing.run(fails, 2)


def outlives_its_parent() -> None:
    print(os.getpid(), flush=True)
    sys.stdin.close()
    threading.Event().wait()


def test_ranks_and_server_end_with_the_program() -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", KILLED],
        cwd=Path(__file__).parent,
        env={
            **os.environ,
            "PYTHONPATH": SUPPORT,
            "PYTEST_CURRENT_TEST": "test_objects.py",
        },  # the second server forks the ranks of that file
        stdout=subprocess.PIPE,
        text=True,
    )
    with program:
        assert program.stdout is not None
        ranks = [int(program.stdout.readline().split()[1]) for _ in range(2)]
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text()
        ends = [os.pidfd_open(int(pid)) for pid in children.split()]
        assert {str(rank) for rank in ranks} < set(children.split())
        assert len(children.split()) == 5  # with the launching guard and two servers
        program.kill()
        for end in ends:
            assert select.select([end], [], [], LATE_S)[0]
            os.close(end)


class Interrupted:
    """A socket that is interrupted by Ctrl-C while it waits for an answer."""

    def __init__(self, requests: Any) -> None:
        self.requests = requests
        self.sendmsg, self.close = requests.sendmsg, requests.close

    def recv(self, _: int) -> bytes:
        raise KeyboardInterrupt


@pytest.mark.daily(0)
def test_a_server_that_is_interrupted_is_followed_by_another(forks: ForkServer) -> None:
    assert testing.run(is_forked, 1) == [True]
    first = forks.servers[-1]
    interrupted: Any = Interrupted(first.requests)
    forks.servers[-1] = Server(first.pid, interrupted)
    with pytest.raises(KeyboardInterrupt):
        testing.run(is_forked, 2)
    assert forks.servers == []
    assert testing.run(is_forked, 2) == [True, True]
    assert forks.servers[-1].pid != first.pid
