"""The life of process groups of the backend "pycollective".

They exist beside another backend and in forked children, and are aborted.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from arrays import torch
from waiting import eventually

import pycollective as pc
from pycollective import testing
from pycollective.runtime import lifetime

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch.distributed as dist

TIMEOUT = timedelta(seconds=20)
ENDS_S = 8.0  # a call that is ended does not wait for TIMEOUT


def total(group: Any = None) -> float:
    x = torch.full((3,), dist.get_rank() + 1.0)
    dist.all_reduce(x, group=group)
    return float(x[0])


def kind_of(call: Callable[[], object]) -> str:
    try:
        call()
    except pc.CollectiveError as error:
        return type(error).__name__
    return "nothing"


def sockets() -> int:
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
        except FileNotFoundError:  # the listing's own
            continue
    return found


def child_of_a_group(group: Any, end: Callable[[], object], sockets_before: int) -> int:
    """Returns what is wrong in a forked child, as an exit status."""
    if kind_of(lambda: dist.all_reduce(torch.ones(1), group=group)) != "ForkedProcess":
        return 1
    end()
    return 2 if sockets() > sockets_before else 0


def forked_beside_another_backend() -> tuple[list[int], float]:
    dist.init_process_group("gloo", timeout=TIMEOUT)
    before = sockets()
    group: Any = dist.new_group([0, 1], backend="pycollective")
    statuses = []
    if dist.get_rank() < 2:
        total(group)
        for end in (atexit._run_exitfuncs, lambda: dist.destroy_process_group(group), group.abort):
            child = os.fork()
            if child == 0:
                status = 100
                try:
                    status = child_of_a_group(group, end, before)
                finally:
                    os._exit(status)
            statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    seen = total(group) if dist.get_rank() < 2 else 0.0
    dist.barrier()
    return statuses, seen


def test_a_forked_child_leaves_a_group_with_connections_of_its_own_to_its_parent() -> None:
    assert testing.run(forked_beside_another_backend, 3, init=False) == [
        ([0] * 3, 3.0),
        ([0] * 3, 3.0),
        ([], 0.0),
    ]


def groups_one_after_the_other(folder: str) -> list[float]:
    seen = []
    rank = int(os.environ["RANK"])
    for number, members in enumerate(([0, 1], [1, 2], [0, 2], [0, 1, 2])):
        url = f"file://{folder}/{number}"
        dist.init_process_group("gloo", init_method=url, rank=rank, world_size=3, timeout=TIMEOUT)
        group = dist.new_group(members, backend="pycollective")
        if rank in members:
            seen.append(total(group))
        dist.barrier()
        dist.destroy_process_group()
    return seen


def test_groups_of_other_members_follow_each_other_in_new_default_groups(tmp_path: object) -> None:
    results = testing.run(groups_one_after_the_other, 3, str(tmp_path), init=False)
    assert results == [[3.0, 4.0, 6.0], [3.0, 5.0, 6.0], [5.0, 4.0, 6.0]]


def worlds_one_after_the_other(folder: str) -> list[float]:
    seen = []
    here = int(os.environ["RANK"])
    for number, members in enumerate(([0, 1], [1, 2], [0, 2])):
        if here not in members:
            continue
        url = f"file://{folder}/{number}"
        dist.init_process_group("pycollective", init_method=url, rank=members.index(here), world_size=2)
        seen.append(total())
        dist.destroy_process_group()
    return seen


def test_default_groups_of_other_members_follow_each_other(tmp_path: object) -> None:
    assert testing.run(worlds_one_after_the_other, 3, str(tmp_path), init=False) == [[3.0, 3.0]] * 3


def one_name_in_one_store() -> tuple[list[float], str]:
    """The store of torchrun across restarted groups: the same names, other members."""
    from pycollective.torch.backend.joining import join

    here = int(os.environ["RANK"])
    store = shared_store()
    seen = []

    def meet(point: str) -> None:
        store.set(f"{point}/{here}", "")
        store.wait([f"{point}/{rank}" for rank in range(3)], TIMEOUT)

    def together(members: list[int]) -> Any:
        joined = join(store, members.index(here), len(members), members, "1", TIMEOUT.total_seconds())
        seen.append(float(joined.group.allreduce(torch.full((3,), here + 1.0))[0]))
        return joined

    for number, members in enumerate(([0, 1], [1, 2], [2, 0])):
        meet(f"begin {number}")
        joined = together(members) if here in members else None
        meet(f"end {number}")
        if joined is not None:
            joined.abort()
    alone = kind_of(lambda: join(store, 0, 2, [0, 1], "1", 0.5)) if here == 0 else ""  # its card stays
    meet("alone")
    if here != 1:
        together([0, 2]).leave()
    meet("last")
    for _ in range(10):  # no rank waits for another one except in leave()
        together([0, 1, 2]).leave()
    store.set(f"over/{here}", "")
    if here == 0:  # it hosts the store
        store.wait([f"over/{rank}" for rank in range(3)], TIMEOUT)
    return seen, alone


def test_a_group_is_not_taken_for_an_earlier_one_of_its_name() -> None:
    many = [6.0] * 10
    assert testing.run(one_name_in_one_store, 3, init=False) == [
        ([3.0, 4.0, 4.0, *many], "CollectiveTimeout"),
        ([3.0, 5.0, *many], ""),
        ([5.0, 4.0, 4.0, *many], ""),
    ]


def in_a_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[str]]:
    ends: list[str] = []
    thread = threading.Thread(target=lambda: ends.append(kind_of(call)), daemon=True)
    thread.start()
    return thread, ends


def waits_in(collective: str) -> bool:
    return any(
        call["state"] == "running" and call["collective"] == collective for call in pc.debug.dump()["calls"]
    )


def meet_outside_of_init() -> None:
    """Returns on rank 0 when rank 1 has left init(): the last barrier ends later on rank 1."""
    if pc.rank() == 1:
        pc.send(torch.ones(1), 0)
    else:
        pc.recv(torch.ones(1), 1)


def aborted_while_it_waits(way: str) -> str:
    """Rank 1 never makes the call that rank 0 waits in."""
    if way == "pycollective":
        pc.init(timeout=TIMEOUT.total_seconds())
        call, abort = lambda: pc.allreduce(torch.ones(3)), lifetime.abort
    else:
        dist.init_process_group("pycollective", timeout=TIMEOUT)
        call, abort = lambda: dist.all_reduce(torch.ones(3)), dist.group.WORLD.abort
    meet_outside_of_init()
    if pc.rank() == 1:
        return kind_of(lambda: pc.recv(torch.ones(3), 0))
    thread, ends = in_a_thread(call)
    assert eventually(lambda: waits_in("allreduce"))
    abort()
    thread.join(ENDS_S)
    kept = [*ends, kind_of(call) if way == "pycollective" else ""]
    return " ".join(kept)


@pytest.mark.parametrize("way", ["pycollective", "torch"])
def test_abort_ends_a_call_in_which_another_thread_waits(way: str) -> None:
    ours = "NotInitialized NotInitialized" if way == "pycollective" else "NotInitialized "
    assert testing.run(aborted_while_it_waits, 2, way, init=False) == [ours, "PeerFailure"]


def shared_store() -> Any:
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.TCPStore(address, port, None, os.environ["RANK"] == "0", TIMEOUT)


def aborted_with_memory_in_use() -> str:
    """An array in the shared heap keeps the runtime's memory, but not its connections."""
    store = shared_store()
    pc.init(timeout=TIMEOUT.total_seconds())
    meet_outside_of_init()
    if pc.rank() == 1:
        kind = kind_of(lambda: pc.recv(torch.ones(3), 0))
        store.set("kind", kind)
        return kind
    kept = pc.empty(1 << 20, "f4")
    lifetime.abort()
    kept[:] = 1
    store.wait(["kind"], timedelta(seconds=ENDS_S))
    assert kept.sum() == 1 << 20
    return "kept"


def test_the_others_are_informed_of_an_abort_at_once() -> None:
    assert testing.run(aborted_with_memory_in_use, 2, init=False) == ["kept", "PeerFailure"]


def full_and_part() -> list[object]:
    dist.init_process_group("gloo", timeout=TIMEOUT)
    full = dist.new_group(backend="pycollective")
    part = dist.new_group([0, 1], backend="pycollective")
    seen: list[object] = [total(full), total(part), pc.is_initialized()]
    dist.destroy_process_group(full)
    seen.append(total(part))
    dist.destroy_process_group()
    return seen


def test_a_group_of_all_ranks_beside_another_backend_is_not_the_world() -> None:
    assert testing.run(full_and_part, 2, init=False) == [[3.0, 3.0, False, 3.0]] * 2


def part_aborted() -> tuple[list[str], list[float]]:
    pc.init(timeout=TIMEOUT.total_seconds())
    dist.init_process_group("pycollective", timeout=TIMEOUT)
    part: Any = dist.new_group([2, 1, 0])
    total(part)
    rank = dist.get_rank()
    ends = []
    if rank == 0:
        pc.recv(torch.zeros(1), 1)
        thread, ends = in_a_thread(lambda: total(part))
        assert eventually(lambda: waits_in("allreduce"))
        part.abort()
        thread.join(ENDS_S)
    elif rank == 1:
        pc.send(torch.zeros(1), 0)
        ends.append(kind_of(lambda: total(part)))  # it waits in the call when rank 0 aborts
        pc.send(torch.zeros(1), 2)
    else:  # it calls later; the data that the other ranks sent before may suffice to complete its call
        pc.recv(torch.zeros(1), 1)
        kind_of(lambda: total(part))
    ends.append(kind_of(lambda: total(part)))
    again = dist.new_group([2, 1, 0])
    totals = [total(), float(pc.allreduce(1)), total(again)]
    pc.shutdown()  # no rank ends while another is in the last call
    return ends, totals


def test_abort_of_a_part_ends_that_part_on_all_its_ranks_and_nothing_else() -> None:
    assert testing.run(part_aborted, 3, init=False) == [
        (["Aborted", "Aborted"], [6.0, 3.0, 6.0]),
        (["PeerExited", "PeerExited"], [6.0, 3.0, 6.0]),
        (["PeerExited"], [6.0, 3.0, 6.0]),
    ]
