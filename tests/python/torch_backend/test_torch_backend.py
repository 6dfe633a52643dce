"""torch.distributed over the backend "pycollective". Trainers on it: test_torch_trainers.py."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import sampled
from arrays import torch

import pycollective as pc
from pycollective import testing

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch.distributed as dist
from torch_backend_checking import CHECKS
from torch_backend_checks import some_checks
from waiting import eventually

from pycollective.torch import entry
from pycollective.torch.backend import store_servers

SOON_S = 20  # far below the default timeout, far above what a loaded machine needs


# Daily each check is made in one of the two worlds.
ROWS = [(size, name) for name in CHECKS for size in sampled.some((2, 3), 1, of=name)]


@functools.cache
def failures(size: int) -> list[dict[str, str]]:
    names = [name for of_size, name in ROWS if of_size == size]
    return testing.run(some_checks, size, names, init=False, timeout_s=100)


@pytest.mark.parametrize(("size", "name"), ROWS)
def test_on_every_rank(size: int, name: str) -> None:
    reports = [f"rank {rank}: {failed[name]}" for rank, failed in enumerate(failures(size)) if name in failed]
    assert not reports, "\n".join(reports)


def killed_in_backward() -> tuple[str, float, str]:
    torch.set_num_threads(1)
    dist.init_process_group("pycollective")
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(6)])
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.02)
    ddp(torch.ones(4, 64)).sum().backward()
    if dist.get_rank() == 1:
        model[2].weight.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
    began = time.monotonic()
    try:
        ddp(torch.ones(4, 64)).sum().backward()
    except pc.CollectiveError as error:
        return type(error).__name__, time.monotonic() - began, str(error)
    return "nothing", 0, ""


def test_a_rank_killed_in_backward_is_a_peer_failure_in_the_loop_of_ddp_long_before_a_deadline() -> None:
    with pytest.raises(testing.WorldFailed) as failed:
        testing.run(killed_in_backward, 2, init=False)
    assert list(failed.value.errors) == [1]
    kind, seconds, words = failed.value.results[0]
    assert kind == "PeerFailure", words
    assert "rank 1" in words
    assert seconds < SOON_S


def of_its_own() -> tuple[float, bool, str]:
    """Makes a group of ours beside a default group of gloo."""
    dist.init_process_group("gloo")
    group = dist.new_group([0, 1], backend="pycollective")
    x = torch.full((3,), dist.get_rank() + 1.0)
    if dist.get_rank() < 2:
        dist.all_reduce(x, group=group)
    result = x[0].item(), pc.is_initialized(), dist.get_backend(group) if dist.get_rank() < 2 else ""
    dist.barrier()
    dist.destroy_process_group()
    return result


def test_a_group_stands_beside_another_backends_default_group() -> None:
    assert testing.run(of_its_own, 3, init=False) == [
        (3.0, False, "pycollective"),
        (3.0, False, "pycollective"),
        (3.0, False, ""),
    ]


def again_and_again() -> list[float]:
    seen = []
    for _ in range(3):
        dist.init_process_group("pycollective")
        x = torch.ones(2)
        dist.all_reduce(x)
        seen.append(x[0].item())
        dist.destroy_process_group()
        assert not pc.is_initialized()
    pc.init()  # a world that existed before stays
    dist.init_process_group("pycollective")
    dist.destroy_process_group()
    assert pc.allreduce(1) == 2
    store = dist.HashStore()
    with pytest.raises(pc.InvalidArgument, match="rank 0 of 1"):
        dist.init_process_group("pycollective", store=store, rank=0, world_size=1)
    return seen


def test_a_world_can_be_destroyed_and_made_again_and_one_that_was_there_is_used() -> None:
    assert testing.run(again_and_again, 2, init=False) == [[2.0] * 3] * 2


def keys_of_earlier_groups(backends: list[str], folder: str) -> list[list[int]]:
    """Makes default groups in sequence at one address. Returns which earlier keys each finds."""
    seen = []
    for number, backend in enumerate(backends):
        dist.init_process_group(backend)
        rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
        seen.append([earlier for earlier in range(number) if store.check([f"key {earlier}"])])
        part = dist.new_group(backend="gloo", timeout=timedelta(seconds=20))
        for group in (part, dist.group.WORLD):
            x = torch.ones(2)
            dist.all_reduce(x, group=group)
            assert x.tolist() == [2.0, 2.0]
        store.set(f"key {number}", "")
        dist.barrier()
        del store, part, group
        dist.destroy_process_group()
        Path(folder, f"{number} {rank}").touch()
        assert eventually(Path(folder, f"{number} 0").exists)  # as torch's own groups need it
    return seen


def test_the_store_ends_with_a_group_of_ours_so_that_later_groups_read_no_addresses_of_earlier_ones(
    tmp_path: Path,
) -> None:
    backends = ["pycollective", "pycollective", "gloo", "gloo"]
    found = testing.run(keys_of_earlier_groups, 2, backends, str(tmp_path), init=False)
    assert found == [[[], [], [], []]] * 2


def before_rank_0_has_come(folder: str) -> tuple[list[float], int]:
    dist.init_process_group("pycollective")
    rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
    dist.destroy_process_group()
    tried, found = Path(folder, "rank 1 has found the old store"), []
    looks = store_servers._is_of_the_past

    def is_of_the_past(store: dist.Store, rank: int) -> bool:
        is_old = looks(store, rank)
        if is_old:
            found.append(1)
            tried.touch()
        return is_old

    with pytest.MonkeyPatch.context() as patch:
        if rank == 0:  # its store exists as long as a reference to it
            assert eventually(tried.exists)
        patch.setattr(store_servers, "_is_of_the_past", is_of_the_past)
        del store
        dist.init_process_group("gloo")
    x = torch.ones(2)
    dist.all_reduce(x)
    dist.destroy_process_group()
    return x.tolist(), len(found)


def test_a_rank_that_rejoins_before_rank_0_waits_for_the_new_store(tmp_path: Path) -> None:
    (numbers, _), (others, found) = testing.run(before_rank_0_has_come, 2, str(tmp_path), init=False)
    assert numbers == others == [2.0, 2.0]
    assert found > 0


def again_at_once(folder: str) -> list[float]:
    """Captures what is printed below Python, too."""
    out = os.open(f"{folder}/{os.environ['RANK']}", os.O_WRONLY | os.O_CREAT)
    os.dup2(out, 2)
    for backend in ("pycollective",) * 5 + ("gloo",):
        dist.init_process_group(backend)
        x = torch.ones(2)
        dist.all_reduce(x)
        dist.destroy_process_group()
    return x.tolist()


def test_groups_that_follow_each_other_at_once_end_and_begin_without_a_warning(tmp_path: Path) -> None:
    assert testing.run(again_at_once, 2, str(tmp_path), init=False) == [[2.0, 2.0]] * 2
    said = "".join((tmp_path / str(rank)).read_text() for rank in range(2))
    assert "TCPStore" not in said


def with_the_old_store_held() -> list[float]:
    dist.init_process_group("pycollective")
    held = dist.distributed_c10d._get_default_store()
    dist.destroy_process_group()
    dist.init_process_group("pycollective")
    x = torch.ones(2)
    dist.all_reduce(x)
    assert dist.get_rank() != 0 or held.num_keys() > 0
    dist.destroy_process_group()
    return x.tolist()


def test_a_store_that_the_program_holds_is_the_next_groups_too() -> None:
    assert testing.run(with_the_old_store_held, 2, init=False) == [[2.0, 2.0]] * 2


def with_receives_under_way() -> None:
    dist.init_process_group("pycollective")
    dist.barrier()
    # from any source, without a matching send
    works = [dist.irecv(torch.zeros(1), tag=tag) for tag in (0, 0, 1)]
    futures = [work.get_future() for work in works]
    dist.destroy_process_group()
    for wait in [each.wait for each in (*works, *futures)]:
        with pytest.raises((pc.NotInitialized, pc.PeerFailure)):
            wait()
    assert eventually(lambda: not any(each.name == "pc-any-source" for each in threading.enumerate()))


def test_receives_from_any_source_end_with_their_group() -> None:
    testing.run(with_receives_under_way, 2, init=False)


def test_a_program_may_end_with_a_receive_from_any_source_under_way(tmp_path: object) -> None:
    program = (
        "import sys, torch, torch.distributed as dist\n"
        "place = dict(init_method='file://' + sys.argv[1], rank=int(sys.argv[2]), world_size=2)\n"
        "dist.init_process_group('pycollective', **place)\n"
        "dist.barrier()\n"
        "work = dist.irecv(torch.zeros(1))\n"
    )
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", program, f"{tmp_path}/store", str(rank)], stderr=subprocess.PIPE
        )
        for rank in range(2)
    ]
    assert [(each.communicate(timeout=60)[1], each.returncode) for each in ranks] == [(b"", 0)] * 2


def test_a_world_of_one_needs_no_peer(tmp_path: object) -> None:
    program = (
        "import torch, torch.distributed as dist\n"
        f"dist.init_process_group('pycollective', init_method='file://{tmp_path}/store', rank=0, world_size=1)\n"
        "x = torch.ones(3)\n"
        "dist.all_reduce(x, async_op=True).get_future().wait()\n"
        "print(x.tolist(), dist.get_backend())\n"
    )  # and the program forgets to destroy it
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "[1.0, 1.0, 1.0] pycollective\n"), done.stderr


def test_torch_is_imported_even_if_pycollective_cannot_be(tmp_path: object) -> None:
    """The entry point is a separate package, so a folder without a compiled module does no harm."""
    broken = f"{tmp_path}/pycollective"
    os.mkdir(broken)
    with open(f"{broken}/__init__.py", "w") as file:
        file.write("raise ImportError('broken')\n")
    program = (
        "import sys\n"  # without the finder of an editable installation, which would find the real package
        "sys.meta_path[:] = [each for each in sys.meta_path if not type(each).__module__.startswith('_editable')]\n"
        "import torch\n"
        "try:\n"
        "    store = torch.distributed.HashStore()\n"
        "    torch.distributed.init_process_group('pycollective', store=store, rank=0, world_size=1)\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "broken\n"), done.stderr


@pytest.mark.parametrize("broken", ["register_backend", "PYCOLLECTIVE"])
def test_torch_is_imported_even_if_it_has_no_such_registry(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(dist.Backend, "PYCOLLECTIVE", raising=False)
    monkeypatch.delattr(dist.Backend, "_plugins")
    if broken == "register_backend":
        monkeypatch.delattr(dist.Backend, broken)
    with pytest.warns(UserWarning, match="does not know all of pycollective"):
        entry.register()


@pytest.mark.parametrize(
    ("world", "local", "size", "one_host"),
    [("2", "2", 2, True), ("4", "2", 4, False), ("2", "2", 4, False), ("", "", 2, False)],
)
def test_loopback_is_enough_where_the_launcher_says_that_all_ranks_are_here(
    monkeypatch: pytest.MonkeyPatch, world: str, local: str, size: int, one_host: bool
) -> None:
    from pycollective.torch.backend import joining

    monkeypatch.setenv("WORLD_SIZE", world)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
    assert joining._all_here(size) == one_host
