"""Groups that are closed, dropped or destroyed release what they hold.

So do the objects that have a group.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from arrays import torch
from waiting import eventually

import pycollective as pc
from pycollective import testing

ROUNDS = 1_100  # more groups than a rank can have at the same time
WARM_UP = 200
GROWTH_KIB = 3_000  # a group that remains holds 34 KiB with shared memory, and 6 KiB with TCP


def resident_kib() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def goes_on(round_of: Callable[[int], None], rounds: int = ROUNDS) -> None:
    """Makes the rounds. Neither memory nor descriptors grow with them."""
    for number in range(WARM_UP):
        round_of(number)
    kib, files = resident_kib(), descriptors()
    for number in range(WARM_UP, rounds):
        round_of(number)
    assert descriptors() <= files
    assert resident_kib() - kib < GROWTH_KIB


def used(group: pc.Group | None, number: int) -> pc.Group:
    assert group is not None
    count = (3, 1, 20_000)[number % 3]  # inside the message, through the ring, in rounds
    x = np.full(count, group.rank + 1 + number)
    group.allreduce(x)
    assert x[0] == x[-1] == group.size * (group.size + 1) // 2 + group.size * number
    return group


def closed(number: int) -> None:
    used(pc.world().split(0, key=-pc.rank()), number).close()


def dropped(number: int) -> None:
    used(pc.group(list(range(pc.size()))), number)


def a_reducer(number: int) -> None:
    reducer = pc.GradientReducer({"weight": np.zeros(4)})
    reduced = reducer.reduce({"weight": np.full(4, float(number))})
    assert reduced["weight"].tolist() == [number] * 4
    reducer.close()


def a_mesh(number: int) -> None:
    mesh = pc.Mesh((-1, 1), ("dp", "tp"))
    assert mesh["dp"].allreduce(number) == number * pc.size()
    mesh.close()


@pytest.mark.parametrize("transport", ["auto", "tcp"])
@pytest.mark.parametrize("round_of", [closed, dropped, a_reducer, a_mesh])
def test_a_rank_makes_any_number_of_them_one_after_the_other(
    round_of: Callable[[int], None], transport: str
) -> None:
    testing.run(goes_on, 2, round_of, env={"PYCOLLECTIVE_TRANSPORT": transport}, timeout_s=100)


@pytest.mark.daily(0)
@pytest.mark.timeout(400)
@pytest.mark.parametrize("round_of", [closed, dropped])
def test_a_hundred_thousand_rounds_take_no_more_than_a_thousand(round_of: Callable[[int], None]) -> None:
    testing.run(goes_on, 2, round_of, 100_000, timeout_s=360)


def data_parallel(number: int) -> None:
    model = pc.torch.DataParallel(torch.nn.Linear(2, 1))
    model(torch.ones(1, 2)).sum().backward()
    model.close()


def an_optimizer(number: int) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = pc.torch.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.close()


def a_pipeline(number: int) -> None:
    stage = torch.nn.Linear(2, 2)
    pipeline = pc.torch.Pipeline(stage, micro_batches=1, loss=torch.nn.functional.mse_loss)
    pipeline.step(torch.ones(1, 2), torch.zeros(1, 2))
    pipeline.close()


@pytest.mark.skipif(torch is None, reason="torch is not installed")
@pytest.mark.parametrize("round_of", [data_parallel, an_optimizer, a_pipeline])
def test_a_rank_makes_any_number_of_what_torch_trains_by(round_of: Callable[[int], None]) -> None:
    testing.run(goes_on, 2, round_of, timeout_s=100)


def process_groups() -> None:
    import torch.distributed as dist

    dist.init_process_group("pycollective")

    def round_of(number: int) -> None:
        group = dist.new_group()
        x = torch.ones(4)
        dist.all_reduce(x, group=group)
        assert x.tolist() == [2.0] * 4
        dist.destroy_process_group(group)

    goes_on(round_of, 1_500)
    dist.destroy_process_group()


@pytest.mark.skipif(torch is None, reason="torch is not installed")
def test_torch_makes_and_destroys_any_number_of_process_groups() -> None:
    testing.run(process_groups, 2, timeout_s=100)


def what_is_closed() -> None:
    group = pc.world().split(0)
    assert group is not None
    group.close()
    group.close()
    assert repr(group) == f"<pycollective.Group rank {pc.rank()} of {pc.size()}, closed>"
    assert (group.rank, group.size) == (pc.rank(), pc.size())
    calls: list[Callable[[], object]] = [
        group.barrier,
        lambda: group.allreduce(np.ones(1)),
        lambda: group.allreduce_async(np.ones(1)),
        lambda: group.split(0),
        lambda: group.ranks,
        lambda: group.explain("allreduce"),
    ]
    for call in calls:
        with pytest.raises(pc.NotInitialized, match="this group was closed"):
            call()
    mesh = pc.Mesh((-1,), ("dp",))
    mesh.close()
    with pytest.raises(pc.InvalidArgument, match="it was closed"):
        mesh["dp"]
    with pytest.raises(pc.InvalidArgument, match=r"shutdown\(\) ends"):
        pc.world().close()
    assert pc.allreduce(1) == pc.size()


@pytest.mark.parametrize("n", [1, 2])
def test_a_closed_group_says_so_and_the_world_goes_on(n: int) -> None:
    testing.run(what_is_closed, n)


def under_way() -> None:
    group = pc.world().split(0)
    assert group is not None
    ended: list[object] = []

    def wait() -> None:
        try:
            group.barrier()
        except pc.CollectiveError as error:
            ended.append(error)

    if pc.rank() == 0:
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert eventually(lambda: any(call["state"] == "running" for call in pc.debug.dump()["calls"]))
        late = group.allreduce_async(np.ones(1))
        group.close()
        waiting.join(20)
        assert [type(error) for error in ended] == [pc.NotInitialized]
        with pytest.raises(pc.NotInitialized):
            late.wait()
    assert pc.allreduce(1) == pc.size()
    group.close()


def test_calls_that_are_under_way_end_when_their_group_is_closed() -> None:
    testing.run(under_way, 2)


def only_its_call_is_left() -> None:
    works: list[Any] = []
    for number in range(50):
        group = pc.world().split(0)
        assert group is not None
        works.append(group.allreduce_async(np.full(5_000, number)))
    del group
    for number, work in enumerate(works):
        assert work.wait()[0] == number * pc.size()


def test_a_call_in_the_background_keeps_its_group() -> None:
    testing.run(only_its_call_is_left, 2)


def messages_are_left_behind() -> None:
    for _number in range(ROUNDS):
        group = pc.world().split(0)
        assert group is not None
        if pc.rank() == 0:
            group.send(np.ones(10), 1)
            group.send_object("a text", 1)
        group.close()
    pc.barrier()


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_messages_that_no_rank_has_received_go_with_their_group(transport: str) -> None:
    testing.run(messages_are_left_behind, 2, env={"PYCOLLECTIVE_TRANSPORT": transport})
