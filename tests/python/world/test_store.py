"""pc.store(): every rank gets what one rank sets. It has typed values, bounds and deadlines.

It ends with its world.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from same_values import same

import pycollective as pc
from pycollective import testing
from pycollective.errors import CollectiveTimeout, InvalidArgument, NotInitialized, PeerFailure
from pycollective.runtime import store_codec

VALUES: list[Any] = [
    None, True, False, 0, -1, 2**200, 0.1, float("inf"), "", "text \u00e9 \ud83d\ude00", b"", b"\0\xff", [], (),
    {}, [1, [2, (3, {"k": None})]], {"a": 1, 2: b"b", (1, 2): [True]}, np.arange(6).reshape(2, 3),
    np.zeros((0, 3), np.float32), np.array(1.5), np.float32(2.5), np.array([1 + 2j]), np.array([True, False]),
    np.arange(10)[::2], np.arange(4, dtype=">i4"),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_every_value_comes_back_as_it_was(value: Any) -> None:
    assert same(store_codec.decode(store_codec.encode(value)), value)


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, len, np.array(["s"]), np.array([None]), 1j, [object()]],
    ids=lambda value: type(value).__name__,
)
def test_other_types_are_refused_by_name(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be stored"):
        store_codec.encode(value)


def test_what_is_nested_without_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidArgument, match="deep"):
        store_codec.encode(endless)


def test_no_bytes_whatever_make_decoding_do_anything_but_refuse() -> None:
    random = np.random.default_rng(1)
    good = [store_codec.encode(value) for value in VALUES]
    deep = b"1"
    for _ in range(40):
        deep = b"l" + len(deep).to_bytes(4, "little") + deep
    for data in [
        b"",
        b"x",
        b"nn",
        b"01",
        b"--1",
        b"d123",
        b"l\xff\xff\xff\xff",
        b"a\x03<f4\xff",
        b"m\1\0\0\0n",
        deep,
    ]:
        with pytest.raises(InvalidArgument):
            store_codec.decode(data)
    for _ in range(2000):
        data = bytearray(good[random.integers(len(good))])
        if data:
            data[random.integers(len(data))] = random.integers(256)
        try:
            store_codec.decode(bytes(data))
        except InvalidArgument:
            pass


def exchanges() -> None:
    store, rank, size = pc.store(), pc.rank(), pc.size()
    store.set(f"from/{rank}", {"rank": rank, "x": np.full(3, rank)})
    for other in range(size):
        got = store.get(f"from/{other}", timeout=20)
        assert got["rank"] == other
        assert (got["x"] == other).all()
        got["x"] += 1  # a copy of one's own
    store.add("sum", rank + 1)
    store.add("arrived")
    pc.barrier()
    assert store.get("sum") == size * (size + 1) // 2
    assert store.add("arrived", 0) == size
    pc.barrier()
    if rank == 0:
        for number in range(size):
            store.set("token", number)
            store.wait(f"taken/{number}", timeout=20)
    mine = store.pop("token", timeout=20)
    store.set(f"taken/{mine}", rank)
    store.wait(*(f"taken/{number}" for number in range(size)), timeout=20)
    assert sorted(store.get(f"taken/{number}") for number in range(size)) == list(range(size))


def pops_round_robin() -> None:
    store, rank, size = pc.store("tokens"), pc.rank(), pc.size()
    for number in range(rank, 3 * size, size):
        store.set(f"token/{number}", number)
    took = [store.pop(f"token/{number}", timeout=20) for number in range(rank, 3 * size, size)]
    assert took == list(range(rank, 3 * size, size))
    with pytest.raises(CollectiveTimeout, match=f"token/{rank}"):
        store.get(f"token/{rank}", timeout=0.01)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_ranks_share_values_counters_and_queues(size: int) -> None:
    testing.run(shares_counts_and_waits, size)
    testing.run(pops_round_robin, size)


def shares_counts_and_waits() -> None:
    store, rank, size = pc.store(), pc.rank(), pc.size()
    store.set(f"from/{rank}", {"rank": rank, "x": np.full(3, rank)})
    store.wait(*(f"from/{other}" for other in range(size)), timeout=20)
    for other in range(size):
        got = store.get(f"from/{other}", timeout=20)
        assert got["rank"] == other
        assert (got["x"] == other).all()
        got["x"] += 1  # a copy of one's own
    store.add("sum", rank + 1)
    pc.barrier()
    assert store.get("sum") == size * (size + 1) // 2
    one, other_part = pc.store("one"), store.prefix("two")
    one.set("k", rank)
    pc.barrier()
    assert one.get("k") in range(size)
    with pytest.raises(CollectiveTimeout, match="'two/k'"):
        other_part.get("k", timeout=0.01)
    if rank == size - 1:
        store.set("token", "it")
    pc.barrier()
    token = store.pop("token")
    if token == "it":
        for number in range(size - 1):  # for those that wait in vain
            store.set("token", number)
            store.wait(f"lost/{number}")
    else:
        store.set(f"lost/{token}", True)
    winners = np.array([token == "it", token != "it"], np.int64)
    pc.allreduce(winners)
    assert winners.tolist() == [1, size - 1]


def every_world_begins_empty() -> None:
    for _ in range(2):
        pc.init()
        store = pc.store()
        with pytest.raises(CollectiveTimeout):
            store.get("old", timeout=0.01)
        pc.barrier()
        store.set("old", 1)
        pc.shutdown()
        with pytest.raises(NotInitialized):
            store.get("old")


def test_every_world_begins_with_an_empty_store_that_ends_with_it() -> None:
    testing.run(every_world_begins_empty, 2, init=False)


PROGRAM = """
import sys, pycollective as pc
pc.init()
sys.stdout.write(f"{pc.store().add('seen')}\\n")
pc.shutdown()
"""


def test_a_second_program_of_the_same_run_begins_with_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    twice = f"{sys.executable} {tmp_path}/program.py && {sys.executable} {tmp_path}/program.py"
    cli = [sys.executable, "-c", "import sys; from pycollective.cli import main; sys.exit(main())"]
    done = subprocess.run(
        [*cli, "run", "-n", "1", "--no-prefix", "sh", "-c", twice], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "1\n1\n"), done.stderr
    done = subprocess.run(
        [*cli, "run", "-n", "2", "--no-prefix", "sh", "-c", twice], capture_output=True, text=True, timeout=60
    )
    assert sorted(done.stdout.split()) == ["1", "1", "2", "2"], done.stderr


def looks_deletes_and_lists() -> None:
    store, rank, size = pc.store("looks"), pc.rank(), pc.size()
    assert store.try_get("later") is None
    assert store.try_get("later", default=5) == 5
    assert not store.check("later")
    pc.barrier()
    if rank == size - 1:
        store.set("later", None)  # a stored None is not a missing key
    pc.barrier()
    assert store.check("later")
    assert store.try_get("later", default=5) is None
    assert not store.check("later", "missing")
    assert store.check()
    store.prefix("part").set(str(rank), [rank])
    pc.barrier()
    assert store.keys() == ["later", *(f"part/{number}" for number in range(size))]
    assert store.prefix("part").keys() == [str(number) for number in range(size)]
    assert pc.store("look").keys() == []  # "looks/later" begins with "look", but is not below it
    pc.barrier()
    assert sum(pc.allgather_object(store.delete("later"))) == 1
    assert store.keys() == [f"part/{number}" for number in range(size)]
    pc.barrier()


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_look_waits_for_nothing_and_keys_are_deleted_and_listed(size: int) -> None:
    testing.run(looks_deletes_and_lists, size)


def test_without_a_world_there_is_no_store() -> None:
    with pytest.raises(NotInitialized):
        pc.store()


def bad_arguments() -> None:
    store = pc.store()
    for call, wanted in (
        (lambda: store.set("", 1), InvalidArgument),
        (lambda: store.set("k" * 5000, 1), InvalidArgument),
        (lambda: store.set("\udcff", 1), InvalidArgument),
        (lambda: store.set(1, 1), TypeError),  # type: ignore[arg-type]
        (lambda: store.set("k", b"x" * (8 << 20)), InvalidArgument),
        (lambda: store.set("k", object()), TypeError),
        (lambda: store.get("k", timeout=-1), InvalidArgument),
        (lambda: store.get("k", timeout="1"), TypeError),  # type: ignore[arg-type]
        (lambda: store.add("k", 1 << 63), InvalidArgument),
        (lambda: store.add("k", 1.5), TypeError),  # type: ignore[arg-type]
    ):
        with pytest.raises(wanted):
            call()
    store.set("text", "x")
    with pytest.raises(InvalidArgument, match="no number"):
        store.add("text")
    assert store.get("text") == "x"
    assert store.add("k", 2) == 2


def test_bad_arguments_are_refused_and_the_store_goes_on() -> None:
    testing.run(bad_arguments, 1)


def looks() -> None:
    store = pc.store()
    if pc.rank() == 0:
        store.set("there", 7, timeout=0)
    pc.barrier()
    for seconds in (0, 0, 1e-9, 0.001, 0.01, 0.1):
        assert store.get("there", timeout=seconds) == 7
        store.wait("there", timeout=seconds)
        with pytest.raises(CollectiveTimeout, match="'missing': no rank has set it") as error:
            store.get("missing", timeout=seconds)
        assert "reach" not in str(error.value)
    pc.barrier()
    if pc.rank() == 0:
        assert store.pop("there", timeout=0) == 7
        assert store.add("n", timeout=0) == 1


@pytest.mark.parametrize("size", [1, 2])
def test_a_look_without_waiting_finds_what_is_there_and_names_what_is_not(
    size: int, capfd: pytest.CaptureFixture[str]
) -> None:
    testing.run(looks, size)
    assert "turned away" not in "".join(capfd.readouterr())


def used_by_threads() -> None:
    store = pc.store()
    sums = []
    threads = [threading.Thread(target=lambda: sums.append(store.add("n"))) for _ in range(8)]
    waiter = threading.Thread(target=lambda: sums.append(store.get("late", timeout=20)))
    waiter.start()
    for each in threads:
        each.start()
    for each in threads:
        each.join(20)
    store.set("late", 0)
    waiter.join(20)
    assert sorted(sums) == list(range(9))


def test_one_store_serves_several_threads() -> None:
    testing.run(used_by_threads, 1)


def a_child_is_refused() -> None:
    store = pc.store()
    store.set("k", 1)
    pid = os.fork()
    if pid == 0:
        try:
            store.get("k")
        except pc.CollectiveError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert store.get("k") == 1


def test_a_forked_child_is_refused_and_the_parent_goes_on() -> None:
    testing.run(a_child_is_refused, 2)


def hosted_by_rank_0(address: str, rank: int) -> str:
    pc.init(address, rank=rank, size=2, timeout=20)
    store = pc.store()
    store.set(f"here/{rank}", rank)
    store.wait("here/0", "here/1", timeout=20)
    if rank == 0:
        store.get("done", timeout=20)
        pc.barrier()
        os._exit(0)  # and the store with it
    store.set("done", True)
    pc.barrier()
    for _ in range(100):
        try:
            store.get("never", timeout=0.1)
        except PeerFailure:
            return "PeerFailure"
        except CollectiveTimeout:
            continue
    return "never informed"
