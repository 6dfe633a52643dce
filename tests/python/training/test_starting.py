"""What ranks do before the first step: seeds, devices, rank 0's parameters for all."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import named_checks
import numpy as np
import pytest
from arrays import torch

import pycollective as pc
from pycollective.runtime import devices

CHECKS = named_checks.Checks()
DRAWN = 20


def drawn() -> dict[str, list[float]]:
    """Returns the next numbers of every global generator."""
    numbers = {
        "random": [random.random() for _ in range(DRAWN)],
        "numpy": np.random.random(DRAWN).tolist(),
    }
    if torch is not None:
        numbers["torch"] = torch.rand(DRAWN).tolist()
    return numbers


def streams(of_all: list[dict[str, list[float]]]) -> set[tuple[float, ...]]:
    return {tuple(numbers) for one in of_all for numbers in one.values()}


# ---- seeds


@CHECKS.on(1, 2, 3)
def every_rank_and_every_generator_has_a_stream_of_its_own() -> None:
    pc.seed(7)
    of_all = pc.allgather_object(drawn())
    assert len(streams(of_all)) == sum(map(len, of_all))


@CHECKS.on(1, 2, 3)
def a_seed_depends_on_base_and_rank_alone() -> None:
    expected = 2**62 + int(
        np.random.SeedSequence(7, spawn_key=(pc.rank(),)).generate_state(1, np.uint64)[0]
    ) % (2**62)
    assert pc.seed(7) == expected
    first = drawn()
    assert pc.seed(7) == expected
    assert drawn() == first
    assert pc.seed(8) != expected


@CHECKS.on(2, 3)
def with_per_rank_false_all_have_the_streams_of_the_base() -> None:
    assert pc.seed(7, per_rank=False) == 7
    found = drawn()
    random.seed(7)
    assert found["random"] == [random.random() for _ in range(DRAWN)]
    np.random.seed(7)
    assert found["numpy"] == np.random.random(DRAWN).tolist()
    if torch is not None:
        torch.manual_seed(7)
        assert found["torch"] == torch.rand(DRAWN).tolist()


@CHECKS.on(1, 2, 3)
def without_a_base_rank_0_draws_one_for_all() -> None:
    base = pc.seed(per_rank=False)
    assert set(pc.allgather_object(base)) == {base}
    mine = pc.allgather_object(pc.seed())
    assert len(set(mine)) == pc.size()
    assert mine[pc.rank()] != pc.seed()


@CHECKS.on(2)
def workers_of_all_ranks_have_streams_of_their_own() -> None:
    mine = pc.seed(7)
    found = [drawn()]
    for worker in range(3):
        assert pc.seed(mine, worker=worker) >= 2**62
        found.append(drawn())
    of_all = [one for some in pc.allgather_object(found) for one in some]
    assert len(streams(of_all)) == sum(map(len, of_all))


@CHECKS.on(2)
def a_worker_needs_no_world() -> None:
    mine = pc.seed(7)
    expected = pc.seed(mine, worker=1)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, str(pc.seed(mine, worker=1)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(reading, 100)) == expected
    os.close(reading)
    os.close(writing)


@CHECKS.on(2)
def workers_that_would_be_equal_on_all_ranks_are_refused() -> None:
    for base in (None, 7):
        with pytest.raises(pc.InvalidArgument, match="mine = pc.seed"):
            pc.seed(base, worker=0)
    assert pc.allreduce(1) == pc.size()


if torch is not None:

    @CHECKS.on(2)
    def torchs_loader_hands_its_workers_their_numbers() -> None:
        loader = torch.utils.data.DataLoader(
            Draws(), num_workers=2, worker_init_fn=Begin(pc.seed(7)), multiprocessing_context="fork"
        )
        numbers = [float(number) for number in loader]
        of_all = [number for some in pc.allgather_object(numbers) for number in some]
        assert len(set(of_all)) == 2 * len(numbers)


class Draws:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, place: int) -> float:
        return random.random()


class Begin:
    def __init__(self, mine: int) -> None:
        self.mine = mine

    def __call__(self, worker: int) -> None:
        pc.seed(self.mine, worker=worker)


@pytest.mark.parametrize(
    ("base", "worker", "error"),
    [
        (-1, None, pc.InvalidArgument),
        (2**63, None, pc.InvalidArgument),
        (7.0, None, TypeError),
        (2**62, -1, pc.InvalidArgument),
    ],
)
def test_what_is_no_seed_is_refused(base: Any, worker: int | None, error: type[Exception]) -> None:
    state = random.getstate()
    with pytest.raises(error):
        pc.seed(base, worker=worker)
    assert random.getstate() == state


def test_ranks_have_no_seeds_before_there_is_a_world() -> None:
    with pytest.raises(pc.NotInitialized):
        pc.seed(7)
    with pytest.raises(pc.NotInitialized):
        pc.seed()
    assert pc.seed(7, per_rank=False) == 7


def test_a_seed_imports_no_framework() -> None:
    code = "import sys, pycollective as pc; pc.init(); pc.seed(7); pc.device(); print('torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "False\n", ended.stderr


# ---- devices


def present(monkeypatch: pytest.MonkeyPatch, count: int, *, with_cuda: str | None = "13.0") -> None:
    """Imitates a machine with that many GPUs."""
    monkeypatch.setattr(devices, "_present", lambda: count)
    fake = types.SimpleNamespace(version=types.SimpleNamespace(cuda=with_cuda))
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("local_rank", "name"), [(0, "cuda:0"), (1, "cuda:1"), (2, "cuda:2"), (3, "cuda:0"), (7, "cuda:1")]
)
def test_ranks_of_a_host_take_its_gpus_round_robin(
    monkeypatch: pytest.MonkeyPatch, local_rank: int, name: str
) -> None:
    present(monkeypatch, 3)
    monkeypatch.setattr(devices, "_local_rank", lambda: local_rank)
    assert pc.device() == name


class FakeCuda:
    """Imitates torch.cuda, where some calls are delayed until CUDA is initialized."""

    def __init__(self, *, initialized: bool, count: int = 3) -> None:
        self.initialized, self.count = initialized, count
        self.queued: list[Callable[[], None]] = []
        self.device = 0

    def is_initialized(self) -> bool:
        return self.initialized

    def _lazy_call(self, call: Callable[[], None]) -> None:
        self.queued.append(call)

    def set_device(self, device: int) -> None:
        assert device < self.count, "CUDA error: invalid device ordinal"
        self.device = device

    def device_count(self) -> int:
        return self.count


class FakePaddleDevice:
    """Imitates paddle.device of a build for GPUs."""

    def __init__(self, device: str) -> None:
        self.device = device

    def is_compiled_with_cuda(self) -> bool:
        return True

    def get_device(self) -> str:
        return self.device

    def set_device(self, device: str) -> None:
        self.device = device


def test_init_makes_the_device_of_the_rank_that_of_torch_and_paddle(monkeypatch: pytest.MonkeyPatch) -> None:
    present(monkeypatch, 3)
    monkeypatch.setattr(devices, "_local_rank", lambda: 4)
    cuda, place = FakeCuda(initialized=False), FakePaddleDevice("gpu:0")
    monkeypatch.setattr(sys.modules["torch"], "cuda", cuda, raising=False)
    monkeypatch.setitem(sys.modules, "paddle", types.SimpleNamespace(device=place))
    pc.init()
    pc.shutdown()
    assert cuda.device == 0, "CUDA is not initialized by init()"
    for call in cuda.queued:
        call()
    assert (cuda.device, place.device) == (1, "gpu:1")


@pytest.mark.parametrize(
    ("visible", "count", "number"),
    [("2", 1, 0), ("1,2", 2, 1), (None, 3, 1), ("", 0, 0), ("0,1", 1, 0)],
)
def test_gpus_count_as_they_are_when_torch_initializes_cuda(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, count: int, number: int
) -> None:
    """A script may set CUDA_VISIBLE_DEVICES after init().

    In the last row torch sees fewer GPUs than that names.
    """
    present(monkeypatch, 3)
    monkeypatch.setattr(devices, "_local_rank", lambda: 1)
    cuda = FakeCuda(initialized=False, count=count)
    monkeypatch.setattr(sys.modules["torch"], "cuda", cuda, raising=False)
    devices.make_default()
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    for call in cuda.queued:
        call()
    assert cuda.device == number


def test_a_device_that_the_program_has_chosen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    present(monkeypatch, 3)
    monkeypatch.setattr(devices, "_local_rank", lambda: 2)
    cuda = FakeCuda(initialized=True)
    monkeypatch.setattr(sys.modules["torch"], "cuda", cuda, raising=False)
    for chosen in ("cpu", "gpu:1"):
        place = FakePaddleDevice(chosen)
        monkeypatch.setitem(sys.modules, "paddle", types.SimpleNamespace(device=place))
        devices.make_default()
        assert place.device == chosen
    assert (cuda.device, cuda.queued) == (0, [])


@pytest.mark.parametrize(
    ("visible", "count"),
    [("", 0), ("-1", 0), ("0", 1), ("2, 0", 2), ("0,9,1", 1), ("GPU-5ab,MIG-7", 2), ("x", 0)],
)
def test_only_gpus_that_this_process_may_use_count(
    monkeypatch: pytest.MonkeyPatch, visible: str, count: int
) -> None:
    present(monkeypatch, 3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert devices.visible_gpus() == count


def test_without_gpus_or_with_a_torch_without_cuda_it_is_the_cpu(
    monkeypatch: pytest.MonkeyPatch, world_of_one: pc.Group
) -> None:
    present(monkeypatch, 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-5ab")
    assert pc.device() == "cpu"
    present(monkeypatch, 3, with_cuda=None)
    assert pc.device() == "cpu"


def test_the_driver_is_asked_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(pointer: Any) -> int:
        pointer._obj.value = 2
        return 0

    calls: list[str] = []
    driver = types.SimpleNamespace(
        nvmlInit_v2=lambda: 0,
        nvmlDeviceGetCount_v2=count,
        nvmlShutdown=lambda: calls.append("shutdown"),
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    assert devices._present() == 2
    assert calls == ["shutdown"]
    monkeypatch.setattr(driver, "nvmlInit_v2", lambda: 9)  # the driver is installed, and there is no GPU
    assert devices._present() == 0


def test_before_init_there_is_no_device() -> None:
    with pytest.raises(pc.NotInitialized):
        pc.device()


# ---- the world


@CHECKS.on(1, 2, 3)
def there_are_others_in_a_world_of_several() -> None:
    assert pc.in_world() == (pc.size() > 1)


def test_without_a_world_there_are_no_others() -> None:
    assert not pc.in_world()
    pc.init()
    assert not pc.in_world()
    pc.shutdown()


# ---- parameters


def layers() -> Any:
    """Returns float32 and int64 parameters and buffers that differ by rank, with gradients."""
    torch.manual_seed(pc.rank())
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    for _ in range(1 + pc.rank()):
        model(torch.randn(4, 2)).square().sum().backward()
    return model


def equal_everywhere(tensors: list[Any]) -> bool:
    arrays = [tensor.detach().numpy() for tensor in tensors]
    return all(
        np.array_equal(mine, others)
        for of_rank in pc.allgather_object(arrays)
        for mine, others in zip(arrays, of_rank, strict=True)
    )


WHAT: dict[str, Callable[[Any], Any]] = {
    "a_state_dict_is_that_of_the_root": lambda model: model.state_dict(),
    "a_list_of_parameters_is_that_of_the_root": lambda model: list(model.parameters()),
    "a_dict_of_parameters_is_that_of_the_root": lambda model: dict(model.named_parameters()),
    "dicts_in_a_list_are_those_of_the_root": lambda model: [
        dict(model.named_parameters()),
        dict(model.named_buffers()),
    ],
}


def broadcast_of(what: Callable[[Any], Any]) -> Callable[[], None]:
    def check() -> None:
        model = layers()
        arrays = what(model)
        assert not equal_everywhere(list(model.parameters()))
        assert pc.broadcast(arrays, pc.size() - 1) is arrays
        assert equal_everywhere(list(model.parameters()))
        counted = int(model[1].num_batches_tracked)
        buffers = arrays if isinstance(arrays, dict) else {} if len(arrays) != 2 else arrays[1]
        assert counted == (pc.size() if "1.num_batches_tracked" in buffers else pc.rank() + 1)
        assert all(parameter.requires_grad for parameter in model.parameters())

    return check


if torch is not None:
    for _name, _what in WHAT.items():
        CHECKS.add(_name, broadcast_of(_what), 2, 3)

    @CHECKS.on(2, 3)
    def gradients_in_a_list_are_averaged_in_place() -> None:
        model = layers()
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 2.0 * pc.rank())
        gradients = [parameter.grad for parameter in model.parameters()]
        assert pc.allreduce(gradients, "avg") is gradients
        assert all((parameter.grad == pc.size() - 1).all() for parameter in model.parameters())

    @CHECKS.on(2, 3)
    def the_state_of_an_optimizer_travels_as_an_object() -> None:
        model = layers()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1 / (pc.rank() + 1))
        for _ in range(1 + pc.rank()):
            optimizer.step()
        optimizer.load_state_dict(pc.broadcast_object(optimizer.state_dict()))
        assert optimizer.param_groups[0]["lr"] == 0.1
        assert equal_everywhere([each["exp_avg"] for each in optimizer.state.values()])
        assert {int(each["step"]) for each in optimizer.state.values()} == {1}
        optimizer.step()

    @CHECKS.on(2)
    def what_is_not_only_arrays_is_refused_with_the_call_that_takes_it() -> None:
        optimizer = torch.optim.Adam(layers().parameters())
        for mixture in (optimizer.state_dict(), {"x": torch.ones(2), "y": None}, [np.ones(2), "text"]):
            with pytest.raises(pc.InvalidArgument, match=r"broadcast_object\(\) takes"):
                pc.broadcast(mixture)
        with pytest.raises(pc.InvalidArgument, match="not used"):
            pc.allreduce([torch.ones(2), None])
        with pytest.raises(pc.InvalidArgument, match="generator"):
            pc.broadcast(layers().parameters())
        assert pc.allreduce(1) == pc.size()


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    named_checks.assert_passed(__name__, size, name)
