"""Groups of some ranks: their members, that they do not disturb each other, and what goes wrong."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import numpy as np
import pytest

import pycollective as pc
from pycollective import testing
from pycollective.runtime import group_agreement


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_makes_groups_though_a_thread_of_its_parent_was_making_one() -> None:
    held, released = threading.Event(), threading.Event()

    def holds() -> None:
        with group_agreement.ACTIVE_EXCHANGES._ended:
            held.set()
            released.wait(60)

    thread = threading.Thread(target=holds)
    thread.start()
    assert held.wait(60)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if group_agreement.ACTIVE_EXCHANGES._ended.acquire(blocking=False) else 1)
    released.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def members_and_others() -> None:
    rank, size = pc.rank(), pc.size()
    ends = pc.group([size - 1, 0]) if size > 1 else pc.group([0])
    assert (ends is not None) == (rank in (0, size - 1))
    if ends is not None and size > 1:
        assert ends.ranks == (size - 1, 0)
        assert ends.rank == (1 if rank == 0 else 0)
        assert ends.broadcast(np.full(3, rank), root=0).tolist() == [size - 1] * 3
        nested = ends.group([1])
        assert (nested is None) == (rank != 0)
        if nested is not None:
            assert nested.ranks == (0,)
            assert nested.allreduce(np.ones(1)) == 1
    by_parity = pc.world().split(rank % 2, key=-rank)
    assert by_parity is not None
    assert by_parity.ranks == tuple(r for r in reversed(range(size)) if r % 2 == rank % 2)
    assert by_parity.allgather(np.array([rank])).tolist() == list(by_parity.ranks)
    assert (pc.world().split(None if rank == 0 else 5) is None) == (rank == 0)
    here = pc.world().split("host")
    assert here is not None
    assert (here.size, here.local_rank) == (size, rank)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_groups_have_the_members_that_were_asked_for(n: int) -> None:
    testing.run(members_and_others, n)


def a_mesh() -> None:
    rank, size = pc.rank(), pc.size()
    mesh = pc.Mesh((2, -1), ("dp", "tp"))
    assert mesh.shape == (2, size // 2)
    assert mesh.coordinates == {"dp": rank // (size // 2), "tp": rank % (size // 2)}
    assert mesh["tp"].ranks == tuple(r for r in range(size) if r // (size // 2) == mesh.coordinates["dp"])
    assert mesh["dp"].ranks == tuple(r for r in range(size) if r % (size // 2) == mesh.coordinates["tp"])
    assert mesh["dp", "tp"].ranks == tuple(range(size))
    assert mesh.rank_at({"dp": 1, "tp": 0}) == size // 2
    rows = mesh["tp"].allreduce(np.array([rank]))
    assert rows[0] == sum(mesh["tp"].ranks)
    assert mesh["dp"].allreduce(rows)[0] == sum(range(size))
    for shape, names in (
        ((2, 2, 7), ("a", "b", "c")),
        ((size,), ("a", "b")),
        ((-1, -1), ("a", "b")),
        ((size, 1), ("a", "a")),
    ):
        with pytest.raises(pc.InvalidArgument):
            pc.Mesh(shape, names)
    with pytest.raises(pc.InvalidArgument, match="no axis is called 'pp'"):
        mesh["pp"]


@pytest.mark.parametrize("n", [2, 4])
def test_a_mesh_has_a_group_along_every_axis(n: int) -> None:
    testing.run(a_mesh, n)


def other_meshes() -> None:
    rank = pc.rank()
    for shape, names in (((2, 1), ("a", "b")), ((1, 2), ("b", "a"))):
        with pytest.raises(pc.CollectiveMismatch, match=r"mesh: .* here shape \("):
            pc.Mesh(shape if rank == 0 else (1, 2), names if rank == 0 else ("a", "b"))
    assert pc.Mesh((1, 2), ("a", "b"))["b"].allreduce(1) == 2


def test_ranks_with_other_meshes_are_reported() -> None:
    testing.run(other_meshes, 2)


def hundreds() -> None:
    rank, size = pc.rank(), pc.size()
    groups = []
    for i in range(300):
        group = pc.world().split((rank + i) % 2)
        assert group is not None
        groups.append(group)
    for i, group in enumerate(groups):
        assert group.allreduce(np.array([rank]))[0] == sum(
            r for r in range(size) if (r + i) % 2 == (rank + i) % 2
        )


def test_there_may_be_hundreds_of_groups() -> None:
    testing.run(hundreds, 3, timeout_s=100)


def from_threads() -> None:
    """Each pair of ranks has a group. A thread of its own on either side uses it, all at once."""
    rank, size = pc.rank(), pc.size()
    pairs = [(a, b) for a in range(size) for b in range(a + 1, size)]
    mine = {pair: pc.group(pair) for pair in pairs}
    all_ranks = pc.world().split(0)
    assert all_ranks is not None
    wrong: list[str] = []

    def use(pair: tuple[int, int], group: pc.Group) -> None:
        for i in range(50):
            got = group.allreduce(np.full(i * 100 + 1, rank * 1000 + i))
            if not (got == sum(pair) * 1000 + 2 * i).all():
                wrong.append(f"{pair} {i}")

    threads = [
        threading.Thread(target=use, args=(pair, group)) for pair, group in mine.items() if group is not None
    ]
    for thread in threads:
        thread.start()
    for _ in range(50):
        all_ranks.barrier()
    for thread in threads:
        thread.join()
    assert not wrong


def test_overlapping_groups_are_used_from_threads_at_once() -> None:
    testing.run(from_threads, 4, timeout_s=60)


def made_in_threads(wanted: list[list[int]]) -> None:
    """A thread makes each group that this rank is in, all at once, and uses it."""
    rank = pc.rank()
    mine = [members for members in wanted if rank in members]
    together, wrong = threading.Barrier(len(mine)), []

    def make(members: list[int]) -> None:
        try:
            together.wait()
            group = pc.group(members, timeout=20)
            assert group is not None
            got = group.allgather(np.array([rank, *members]), timeout=20)
            assert got.reshape(len(members), -1).tolist() == [[each, *members] for each in members], got
        except Exception as error:
            wrong.append(f"{members}: {error!r}")

    for _ in range(10):
        threads = [threading.Thread(target=make, args=(members,)) for members in mine]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, wrong
        pc.barrier()


@pytest.mark.parametrize(
    "wanted", [[[0, 1], [0, 2]], [[0, 1, 2]] * 4, [[0, 2], [1, 2], [0, 1]]], ids=["pairs", "equal", "ring"]
)
def test_groups_made_in_threads_are_each_what_was_asked_for(wanted: list[list[int]]) -> None:
    testing.run(made_in_threads, 3, wanted, timeout_s=60)


def split_in_threads() -> None:
    numbers: list[tuple[int, ...]] = []

    def make() -> None:
        group = pc.world().split(pc.rank() % 2, timeout=20)
        assert group is not None
        assert int(group.allreduce(1, timeout=20)) == group.size
        numbers.append(group.ranks)

    for _ in range(10):
        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(numbers) == 40
    assert len(set(numbers)) == 1


def test_a_group_is_split_in_several_threads_at_once() -> None:
    testing.run(split_in_threads, 4, timeout_s=60)


def test_members_that_give_different_lists_are_reported() -> None:
    said = testing.run(differing_swap, 3)
    assert all("makes a group of other ranks" in each for each in said), said


def differing_swap() -> str:
    with pytest.raises(pc.CollectiveMismatch) as caught:
        pc.group([0, 1, 2] if pc.rank() < 2 else [0, 2, 1])
    assert pc.allreduce(np.ones(1))[0] == pc.size()  # and the world stays usable
    return str(caught.value)


def a_right_call() -> None:
    """Makes a group of every rotation of the ranks, so that each rank is the first of one."""
    rank, size = pc.rank(), pc.size()
    for first in range(size):
        ranks = [(first + i) % size for i in range(size)]
        group = pc.group(ranks, timeout=20)
        assert group is not None
        assert group.ranks == tuple(ranks)
        assert group.allgather(np.array([rank]), timeout=20).tolist() == ranks


def gives_up_before_the_first_comes() -> None:
    rank = pc.rank()
    if rank == 0:
        pc.recv(np.empty(1), 1)
    with pytest.raises(pc.CollectiveTimeout):
        pc.group([0, 1, 2], timeout=(1, 0.1, 2)[rank])
    if rank == 1:
        pc.send(np.zeros(1), 0)
    pc.barrier()
    a_right_call()


def gives_up_before_the_answer() -> None:
    """Rank 1 has replied. The answer, for which rank 0 needs rank 2, arrives too late."""
    rank = pc.rank()
    pc.barrier()
    if rank == 1:
        with pytest.raises(pc.CollectiveTimeout):
            pc.group([0, 1, 2], timeout=1)
        pc.send(np.zeros(1), 2)
    else:
        if rank == 2:
            pc.recv(np.empty(1), 1)
        assert pc.group([0, 1, 2], timeout=20) is not None
    pc.barrier()
    a_right_call()


def gives_up_again_and_again() -> None:
    rank = pc.rank()
    for _ in range(3 if rank != 2 else 0):
        with pytest.raises(pc.CollectiveTimeout):
            pc.group([0, 1, 2], timeout=0.1)
    pc.barrier()
    a_right_call()


def first_gives_up_and_comes_again() -> None:
    rank = pc.rank()
    if rank == 0:
        with pytest.raises(pc.CollectiveTimeout):
            pc.group([0, 1, 2], timeout=0.2)
        pc.send(np.zeros(1), 2)
    if rank == 2:
        pc.recv(np.empty(1), 0)
    a_right_call()  # rank 1 has been in it all the time


def each_is_the_first_of_its_list() -> None:
    rank = pc.rank()
    with pytest.raises(pc.CollectiveMismatch, match="or in another order"):
        pc.group([rank, (rank + 1) % 3, (rank + 2) % 3], timeout=20)
    pc.barrier()
    a_right_call()


def one_is_not_in_the_list_of_the_first() -> None:
    rank = pc.rank()
    late = r"group: not all of \[0, 1, 2\] have called"
    with (
        pytest.raises(pc.CollectiveTimeout, match=late) if rank == 2 else pytest.raises(pc.CollectiveMismatch)
    ):
        pc.group([0, 1] if rank == 0 else [0, 1, 2], timeout=1 if rank == 2 else 20)
    pc.barrier()
    a_right_call()


def groups_that_share_their_first() -> None:
    """Ranks 1 and 2 call at once, in any order of rank 0's own calls."""
    rank = pc.rank()
    for i in range(4):
        pairs = ([0, 1], [0, 2]) if i % 2 else ([0, 2], [0, 1])
        for pair in pairs:
            group = pc.group(pair, timeout=20)
            assert (group is not None) == (rank in pair)
            if group is not None:
                assert group.allgather(np.array([rank]), timeout=20).tolist() == pair
    a_right_call()


@pytest.mark.parametrize(
    "calls",
    [
        gives_up_before_the_first_comes,
        gives_up_before_the_answer,
        gives_up_again_and_again,
        first_gives_up_and_comes_again,
        each_is_the_first_of_its_list,
        one_is_not_in_the_list_of_the_first,
        groups_that_share_their_first,
    ],
)
def test_a_right_call_makes_its_group_whatever_went_before(calls: Callable[[], None]) -> None:
    testing.run(calls, 3, timeout_s=60)


def refused() -> None:
    size = pc.size()
    for ranks in ([], [0, 0], [size], [-1]):
        with pytest.raises(pc.InvalidArgument, match="group: ranks"):
            pc.group(ranks)
    with pytest.raises(TypeError):
        pc.group(["0"])
    with pytest.raises(pc.InvalidArgument, match='"host"'):
        pc.world().split("rack")
    pc.barrier()


def test_what_is_no_list_of_ranks_is_refused() -> None:
    testing.run(refused, 2)


def a_death_elsewhere() -> str:
    rank = pc.rank()
    pair = pc.group([0, 1])
    other = pc.group([1, 2])
    if rank == 2:
        import os

        os._exit(0)
    if rank == 0:
        assert pair is not None
        return str(pair.allreduce(np.ones(1))[0])
    assert other is not None
    with pytest.raises(pc.PeerFailure, match="world rank 2"):
        other.allreduce(np.ones(1), timeout=20)
    assert pair is not None
    return str(pair.allreduce(np.ones(1))[0])


def test_a_death_ends_the_groups_of_the_dead_and_no_other() -> None:
    with pytest.raises(testing.WorldFailed) as caught:
        testing.run(a_death_elsewhere, 3, timeout_s=60)
    assert set(caught.value.errors) >= {2}
    assert {rank: caught.value.results.get(rank) for rank in (0, 1)} == {0: "2.0", 1: "2.0"}


def after_shutdown() -> None:
    group = pc.group([0, 1])
    assert group is not None
    pc.shutdown()
    with pytest.raises(pc.NotInitialized):
        group.barrier()


def test_a_group_ends_with_its_world() -> None:
    testing.run(after_shutdown, 2)
