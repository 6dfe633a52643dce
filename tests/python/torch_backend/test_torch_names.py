"""Torch programs that name another backend, are started by mpirun, or make their own groups."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from arrays import torch

import pycollective as pc
from pycollective import testing
from pycollective.launching.environment import free_port
from pycollective.runtime import lifetime

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch.distributed as dist

from pycollective.torch import replacing
from pycollective.torch.backend.reduce_ops import divide

DEADLINE_S = 60.0
SAID = "torch.distributed's backend gloo is pycollective here"


def script(path: Path, text: str, **environment: str) -> tuple[str, str]:
    """Returns the standard output and standard error of a program in that environment."""
    path.write_text(text)
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


ALONE = """
import torch, torch.distributed as dist
for _ in range(2):
    dist.init_process_group({backend}, store=dist.HashStore(), rank=0, world_size=1)
    print(dist.get_backend(), type(dist.group.WORLD).__name__, type(dist.new_group([0])).__name__)
    dist.monitored_barrier()
    dist.destroy_process_group()
"""


MISSPELT = """
import torch.distributed as dist
for _ in range(2):
    dist.init_process_group("gloo", init_method="{method}", rank=0, world_size=1)
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("method", ["env://", "tcp://127.0.0.1:{port}"])
def test_a_misspelt_variable_is_reported_once_to_programs_that_never_use_pycollective(
    tmp_path: Path, method: str
) -> None:
    port = str(free_port())
    text = MISSPELT.format(method=method.format(port=port))
    env = {"PYCOLLECTIVE_REPLACE": "gloo", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    _, err = script(tmp_path / "a.py", text, **env)
    (warning,) = [line for line in err.splitlines() if "nothing reads" in line]
    assert "/a.py:4: UserWarning: " in warning
    assert "PYCOLLECTIVE_REPLACE (did you mean PYCOLLECTIVE_REPLACES?)" in warning


def test_a_variable_puts_pycollective_in_the_place_of_gloo_and_says_so_once(tmp_path: Path) -> None:
    out, err = script(tmp_path / "a.py", ALONE.format(backend='"gloo"'), PYCOLLECTIVE_REPLACES="gloo")
    assert out.splitlines() == ["gloo ProcessGroupPycollective ProcessGroupPycollective"] * 2
    assert err.count(SAID) == 1
    assert "PYCOLLECTIVE_REPLACES=gloo" in err
    assert "nothing reads" not in err


def test_without_the_variable_gloo_is_gloo(tmp_path: Path) -> None:
    out, err = script(tmp_path / "a.py", ALONE.format(backend='"gloo"'), PYCOLLECTIVE_REPLACES="")
    assert out.splitlines() == ["gloo ProcessGroup ProcessGroup"] * 2
    assert "pycollective" not in err


def test_a_misspelt_backend_in_the_variable_is_a_warning_and_torch_is_imported(tmp_path: Path) -> None:
    out, err = script(tmp_path / "a.py", "import torch; print(torch.ones(1))", PYCOLLECTIVE_REPLACES="glo")
    assert out == "tensor([1.])\n"
    assert "PYCOLLECTIVE_REPLACES=glo" in err
    assert "gloo, nccl" in err


@pytest.fixture
def replaced() -> object:
    yield
    pc.torch.replace()


def one_group(backend: str) -> tuple[str, str, object]:
    timeout = timedelta(seconds=20)
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)
    try:
        return dist.get_backend(), type(dist.group.WORLD).__name__, dist.get_backend_config()
    finally:
        dist.destroy_process_group()


@pytest.mark.usefixtures("replaced")
def test_what_is_replaced_may_change_and_end() -> None:
    pc.torch.replace("gloo", "nccl")
    assert one_group("gloo")[:2] == ("gloo", "ProcessGroupPycollective")
    assert one_group("nccl")[:2] == ("nccl", "ProcessGroupPycollective")
    assert one_group("cpu:gloo,cuda:nccl")[1:] == ("ProcessGroupPycollective", "cpu:gloo,cuda:nccl")
    pc.torch.replace("gloo")
    with pytest.warns(UserWarning, match="has nccl as well.*PYCOLLECTIVE_REPLACES=gloo,nccl"):
        assert not replacing._is_ours(dist.Backend("cpu:gloo,cuda:nccl"))  # torch may have no NCCL here
    pc.torch.replace()
    assert one_group("gloo")[1] == "ProcessGroup"


def test_a_backend_that_cannot_be_replaced_is_refused() -> None:
    with pytest.raises(pc.InvalidArgument, match="'mpi'.*gloo, nccl"):
        pc.torch.replace("mpi")


def trained() -> list[object]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    ddp(torch.full((1, 2), dist.get_rank() + 1.0)).sum().backward()
    objects: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(objects, dist.get_rank())
    sub = dist.new_group([1])
    name = type(dist.group.WORLD).__name__, pc.size(), sub is dist.GroupMember.NON_GROUP_MEMBER
    dist.destroy_process_group()
    return [model.weight.grad.tolist(), objects, *name]


def test_an_unchanged_ddp_program_trains_on_pycollective_by_the_variable_alone() -> None:
    env = {"PYCOLLECTIVE_REPLACES": "gloo"}
    of_ranks = testing.run(trained, 2, init=False, timeout_s=DEADLINE_S, env=env)
    for rank, found in enumerate(of_ranks):
        assert found == [[[1.5, 1.5]], [0, 1], "ProcessGroupPycollective", 2, rank == 0]


def reduced_by_torchs_own_hook() -> list[float]:
    dist.init_process_group("pycollective", timeout=timedelta(seconds=20))
    model = torch.nn.Linear(2, 1, bias=False)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    ddp(torch.full((1, 2), dist.get_rank() + 1.0)).sum().backward()
    dist.destroy_process_group()
    return model.weight.grad.flatten().tolist()


def test_ddps_built_in_hooks_go_by_pycollective() -> None:
    of_ranks = testing.run(reduced_by_torchs_own_hook, 2, init=False, timeout_s=DEADLINE_S)
    assert of_ranks == [[1.5, 1.5], [1.5, 1.5]]


def quorums(folder: str) -> list[float]:
    """Three ranks, then the remaining two, beside a world that does not change."""
    rank = pc.rank()
    sums = []
    for number, members in enumerate(([0, 1, 2], [0, 2], [0, 2])):
        if rank not in members:
            continue
        store = dist.FileStore(f"{folder}/store.{min(number, 1)}", len(members))
        group = pc.torch.make_process_group(
            store, members.index(rank), len(members), timeout=timedelta(seconds=20), name=f"quorum {number}"
        )
        x = torch.tensor([float(rank)])
        group.allreduce([x], dist.AllreduceOptions()).wait()
        sums.append(x.item())
        group.shutdown()
    sums.append(pc.allreduce(1.0))
    return sums


def test_a_process_group_of_its_own_is_made_again_with_other_ranks(tmp_path: Path) -> None:
    of_ranks = testing.run(quorums, 3, str(tmp_path), timeout_s=DEADLINE_S)
    assert of_ranks == [[3.0, 2.0, 2.0, 3.0], [3.0, 3.0], [3.0, 2.0, 2.0, 3.0]]


@pytest.mark.parametrize(("rank", "size"), [(1, 1), (-1, 2), (0, 0)])
def test_a_place_that_cannot_be_is_refused(rank: int, size: int) -> None:
    with pytest.raises(pc.InvalidArgument, match="ranks count from 0"):
        pc.torch.make_process_group(dist.HashStore(), rank, size)


def caught() -> bool:
    dist.init_process_group("pycollective", timeout=timedelta(seconds=20))
    try:
        dist.all_reduce(torch.ones(3 + dist.get_rank()))
    except RuntimeError as error:  # as programs for torch's own backends handle it
        return isinstance(error, pc.CollectiveMismatch)
    finally:
        dist.destroy_process_group()
    return False


def test_errors_are_runtime_errors_as_those_of_torch_are() -> None:
    assert testing.run(caught, 2, init=False, timeout_s=DEADLINE_S) == [True, True]


LOCAL = ("LOCAL_RANK", "LOCAL_WORLD_SIZE")


def without_torchs_variables(address: str, asked: dict[str, str]) -> list[str | None]:
    """Imitates mpirun, which specifies rank and size in its own variables.

    `asked`: variables that the user has set.
    """
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", *LOCAL):
        os.environ.pop(name, None)
    os.environ.update(asked)
    if address:
        pc.init(address, rank=int(os.environ["PYCOLLECTIVE_RANK"]), size=2)
    dist.init_process_group("pycollective", timeout=timedelta(seconds=20))
    assert [dist.get_rank(), dist.get_world_size()] == [pc.rank(), 2]
    found = [os.environ.get(name) for name in LOCAL]
    dist.destroy_process_group()
    if address:
        pc.shutdown()
    assert [os.environ.get(name) for name in LOCAL] == [asked.get(name) for name in LOCAL], "after the world"
    return found


def test_a_program_finds_its_local_rank_where_the_launcher_does_not_set_torchs_variables(
    tmp_path: Path,
) -> None:
    def found(address: str = "", **asked: str) -> list[list[str | None]]:
        return testing.run(without_torchs_variables, 2, address, asked, init=False, timeout_s=DEADLINE_S)

    assert found() == [["0", "2"], ["1", "2"]]
    assert found(LOCAL_RANK="5") == [["5", "2"], ["5", "2"]]
    assert found(f"file://{tmp_path}/rendezvous") == [[None, None]] * 2  # no launcher started these


@pytest.mark.parametrize(
    ("dtype", "size"), [("int8", 200), ("uint8", 300), ("int16", 40000), ("int64", 70000)]
)
def test_sums_of_integers_are_divided_by_any_number_of_ranks(dtype: str, size: int) -> None:
    sums = torch.tensor([100, 0, 7], dtype=getattr(torch, dtype))
    divide(sums, size)
    assert sums.tolist() == [100 // size, 0, 0]


def test_a_standalone_group_is_on_one_host_for_no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    placements: list[Any] = []

    def note(placement: Any, **_: object) -> None:
        placements.append(placement)
        raise StopIteration  # there is no second rank to connect to

    monkeypatch.setattr(lifetime, "join", note)
    with pytest.raises(StopIteration):
        pc.torch.make_process_group(dist.HashStore(), 0, 2)
    assert [each.one_host for each in placements] == [False]


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_time_that_cannot_be_is_refused(timeout: float) -> None:
    with pytest.raises(pc.InvalidArgument, match="timeout"):
        pc.torch.make_process_group(dist.HashStore(), 0, 1, timeout=timeout)
