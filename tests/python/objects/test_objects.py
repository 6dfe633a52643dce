"""Objects arrive unchanged on every rank. An object that cannot be sent is an error and no hang.

An unwanted object is an error, too.
"""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from same_values import same

import pycollective as pc
from pycollective import testing
from pycollective.objects import object_message, objects

SIZES = (1, 2, 3, 5)
INLINE = object_message.INLINE_NBYTES - 8 - 2  # a bytes object of that size just fits into a header


class Opt:
    """A type that is not sent unless it is pickled."""

    def __init__(self, value: int) -> None:
        self.value = value


class Armed:
    """Unpickling it is recorded."""

    unpickled: list[int] = []  # noqa: RUF012

    def __reduce__(self) -> Any:
        return go_off, ()


def go_off() -> None:
    Armed.unpickled.append(1)


def small_and_large(rank: int) -> list[Any]:
    """Returns objects on both sides of the header's limit."""
    return [
        None,
        {"rank": rank, "layers": (3, 4)},
        b"x" * INLINE,
        b"x" * (INLINE + 1),
        {"weights": np.arange(50_000) + rank, "names": {"a", "b"}},
    ]


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return type(b) is dict and list(a) == list(b) and all(alike(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return (
            type(a) is type(b) and len(a) == len(b) and all(alike(*pair) for pair in zip(a, b, strict=True))
        )
    return same(a, b)


def every_call_with_every_root() -> None:
    rank, size = pc.rank(), pc.size()
    for number in range(len(small_and_large(0))):
        mine = small_and_large(rank)[number]
        of_all_ranks = [small_and_large(other)[number] for other in range(size)]
        gathered = pc.allgather_object(mine)
        assert gathered[rank] is mine
        assert alike(gathered, of_all_ranks)
        for root in range(size):
            got = pc.broadcast_object(mine if rank == root else None, root)
            assert got is mine if rank == root else alike(got, of_all_ranks[root])
            got = pc.gather_object(mine, root=root)
            assert alike(got, of_all_ranks) if rank == root else got is None
            parts = tuple({"for": other, "what": mine} for other in range(size))
            got = pc.scatter_object(parts if rank == root else None, root)
            assert (
                got is parts[rank] if rank == root else alike(got, {"for": rank, "what": of_all_ranks[root]})
            )
    group = pc.world()
    assert group.broadcast_object("the same on a group", timeout=20) == "the same on a group"


@pytest.mark.parametrize("n", SIZES)
def test_every_rank_gets_the_objects_of_the_others_as_they_were(n: int) -> None:
    testing.run(every_call_with_every_root, n, timeout_s=60)


def by_tag() -> None:
    rank, peer = pc.rank(), 1 - pc.rank()
    for number, obj in enumerate(small_and_large(0)):
        if rank == 0:
            pc.send_object(("second", obj), peer, tag=2 * number + 1)
            pc.send_object("first", peer, tag=2 * number)
            pc.send_object("third", peer, tag=2 * number)
        else:
            if number != 4:  # a large message waits for its receiver
                assert pc.recv_object(peer, tag=2 * number) == "first"
            assert alike(pc.recv_object(peer, tag=2 * number + 1), ("second", obj))
            if number == 4:
                assert pc.recv_object(peer, tag=2 * number) == "first"
            assert pc.recv_object(peer, tag=2 * number) == "third"
    if rank == 0:
        pc.send_object({"x": np.zeros(3)}, peer)
    else:
        got = pc.recv_object(peer, timeout=20)
        got["x"] += 1  # a copy of one's own
        with pytest.raises(pc.CollectiveTimeout):
            pc.recv_object(peer, timeout=0.01)
    pc.send_object({"to": rank}, rank)
    assert pc.recv_object(rank) == {"to": rank}


def test_messages_are_matched_by_tag_and_keep_their_order() -> None:
    testing.run(by_tag, 2)


def in_pieces() -> None:
    big = {"x": np.arange(object_message.PIECE_NBYTES // 8 + 1000)}
    got = pc.broadcast_object(big if pc.rank() == 0 else None)
    assert alike(got, big)
    if pc.rank() == 0:
        pc.send_object(big, 1)
    else:
        assert alike(pc.recv_object(0), big)
        assert got["x"].flags.writeable
        assert got["x"].flags.aligned


def test_a_body_of_several_pieces_arrives_whole() -> None:
    testing.run(in_pieces, 2)


def large(length: int, *what: int) -> Any:
    """Returns an object that contains `what`, with an encoding longer than a header."""
    return [*what, b"x" * length]


NEXT_LENGTHS = (
    500,
    300,
    100_000,
    10,
    500,
)  # as long as the remaining body, shorter, longer, in the header, again


def interrupted_before_the_body(call: Any) -> None:
    """Presses Ctrl-C between the header and the body, which this call then never receives."""
    between = mock.patch("pycollective.objects.object_call.Call.body", side_effect=KeyboardInterrupt)
    with between, pytest.raises(KeyboardInterrupt):
        call()


def gathered_after_an_interruption() -> None:
    rank, size = pc.rank(), pc.size()
    for number, length in enumerate(NEXT_LENGTHS):
        if rank == 0:
            interrupted_before_the_body(lambda: pc.gather_object(0))
        else:
            pc.gather_object(large(500, -1, rank))
        for again in range(2):
            got = pc.gather_object(large(length, number, again, rank), timeout=20)
            if rank == 0:
                assert got == [large(length, number, again, each) for each in range(size)]


def scattered_after_an_interruption() -> None:
    rank, size = pc.rank(), pc.size()
    for number, length in enumerate(NEXT_LENGTHS):
        old = [large(500, -1, each) for each in range(size)]
        if rank == 0:
            pc.scatter_object(old)
        else:
            interrupted_before_the_body(lambda: pc.scatter_object(None))
        for again in range(2):
            objs = [large(length, number, again, each) for each in range(size)]
            assert pc.scatter_object(objs if rank == 0 else None, timeout=20) == objs[rank]


@pytest.mark.parametrize("check", ["on", "off"])
@pytest.mark.parametrize("calls", [gathered_after_an_interruption, scattered_after_an_interruption])
def test_no_call_takes_the_bodies_that_an_interrupted_one_has_left_over(calls: Any, check: str) -> None:
    testing.run(calls, 3, env={"PYCOLLECTIVE_CHECK": check})


def late_body() -> None:
    rank, size = pc.rank(), pc.size()
    pieces = object_message.ObjectMessage.pieces

    def after_word_from_the_root(message: object_message.ObjectMessage) -> Any:
        pc.recv(np.empty(1), 0, tag=9)
        return pieces(message)

    pc.barrier()
    if rank == 0:
        with pytest.raises(pc.CollectiveTimeout):
            pc.gather_object(0, timeout=1)
        pc.send(np.zeros(1), 1, tag=9)
    elif rank == 1:
        with mock.patch.object(object_message.ObjectMessage, "pieces", after_word_from_the_root):
            pc.gather_object(large(500, 1, rank))
    else:
        pc.gather_object(large(500, 1, rank))
    for number in (2, 3):
        got = pc.gather_object(large(500, number, rank), timeout=20)
        if rank == 0:
            assert got == [large(500, number, each) for each in range(size)]


def test_a_body_that_comes_after_its_root_has_given_up_is_not_taken_for_the_next_one() -> None:
    testing.run(late_body, 3)


def both_give_up() -> None:
    """A large body waits for its receiver, so its sender gives up as well."""
    rank, size = pc.rank(), pc.size()
    for length in (100_000, 500):
        pc.barrier()
        if rank == 0:
            interrupted_before_the_body(lambda: pc.gather_object(0))
            interrupted_before_the_body(lambda: pc.recv_object(1))
        else:
            with pytest.raises(pc.CollectiveTimeout):
                pc.gather_object(large(100_000, -1), timeout=1)
            if rank == 1:
                with pytest.raises(pc.CollectiveTimeout):
                    pc.send_object(large(100_000, -1), 0, timeout=1)
        pc.barrier()
        if rank == 1:
            pc.send_object(large(length, 1), 0)
        if rank == 0:
            assert pc.recv_object(1, timeout=20) == large(length, 1)
        for number in range(2):
            got = pc.gather_object(large(length, number, rank), timeout=20)
            if rank == 0:
                assert got == [large(length, number, each) for each in range(size)]


def test_a_body_that_both_sides_gave_up_stops_no_later_call() -> None:
    testing.run(both_give_up, 3)


LEFT_LENGTHS = (
    INLINE + 16,
    500,
    100_000,
    object_message.PIECE_NBYTES + 1000,
)  # the first: as long as a header


def received_after_an_interruption() -> None:
    for length in LEFT_LENGTHS:
        for after in (*LEFT_LENGTHS[:3], 10):
            if pc.rank() == 0:
                pc.send_object(large(length, 1), 1)
                pc.send_object(large(after, 2), 1)
                pc.send_object(large(10, 3), 1)
            else:
                interrupted_before_the_body(lambda: pc.recv_object(0))
                assert pc.recv_object(0, timeout=20) == large(after, 2)
                assert pc.recv_object(0, timeout=20) == large(10, 3)


@pytest.mark.parametrize("check", ["on", "off"])
def test_a_receive_lets_the_body_of_an_interrupted_one_pass(check: str) -> None:
    testing.run(received_after_an_interruption, 2, env={"PYCOLLECTIVE_CHECK": check})


def sent_after_an_interruption() -> None:
    for length in LEFT_LENGTHS:
        if pc.rank() == 0:
            between = mock.patch.object(object_message.ObjectMessage, "pieces", side_effect=KeyboardInterrupt)
            with between, pytest.raises(KeyboardInterrupt):
                pc.send_object(large(length, 1), 1)
            pc.send_object(large(length, 2), 1)
        else:
            with pytest.raises(pc.Aborted, match="rank 0 gave up sending this object") as kept:
                pc.recv_object(0, timeout=20)
            assert pc.recv_object(0, timeout=20) == large(length, 2)
            del kept


def test_an_object_of_an_interrupted_sender_is_an_error_and_the_next_one_arrives() -> None:
    testing.run(sent_after_an_interruption, 2)


def outcome(call: Any) -> Any:
    try:
        return call()
    except pc.CollectiveError as error:
        return type(error).__name__, error.rank, error.peer, error.operation, str(error)


def one_rank_cannot_encode() -> None:
    rank, size = pc.rank(), pc.size()
    large = np.arange(20_000)
    for odd in range(size):
        bad = {"model": [large, 2, 3, Opt(1)]}
        mine = bad if rank == odd else large
        calls = {
            "broadcast_object": lambda mine=mine, odd=odd: pc.broadcast_object(mine, odd),
            "allgather_object": lambda mine=mine: pc.allgather_object(mine),
            "gather_object": lambda mine=mine, odd=odd: pc.gather_object(mine, (odd + 1) % size),
            "scatter_object": lambda mine=mine, odd=odd: pc.scatter_object(
                [large] * (size - 1) + [mine], odd
            ),
        }
        for name, call in calls.items():
            got = outcome(call)
            kind, at, peer, operation, text = got
            assert "obj['model'][3] is a test_objects.Opt" in text
            if rank == odd:
                assert (kind, text.split(":")[0].split()[0]) == ("InvalidArgument", name)
                assert "allow_pickle=True" in text
            else:
                assert (kind, at, peer, operation) == ("Aborted", rank, odd, name)
                assert f"rank {odd} had nothing to send" in text
            assert [x.size for x in pc.allgather_object(large)] == [large.size] * size
        got = outcome(lambda odd=odd: pc.scatter_object([1] * (size + 1) if rank == odd else None, odd))
        assert got[0] == ("InvalidArgument" if rank == odd else "Aborted")
        assert f"a list of {size} objects, one a rank, not {size + 1} objects" in got[4]
    if rank == 0:
        for peer in range(1, size):
            with pytest.raises(pc.InvalidArgument, match="Opt"):
                pc.send_object(Opt(1), peer)
            pc.send_object("the next", peer)
    else:
        assert pc.recv_object(0) == "the next"  # nothing was sent of the other object


@pytest.mark.parametrize("n", SIZES)
def test_a_rank_that_cannot_encode_raises_and_is_named_on_all_others(n: int) -> None:
    testing.run(one_rank_cannot_encode, n)


def some_allow_pickle() -> list[Any]:
    rank, found = pc.rank(), []
    padding = np.zeros(1000)
    for content in (Opt(7), [Opt(7), padding]):
        got = outcome(lambda content=content: pc.broadcast_object(content, allow_pickle=rank != 2))
        found.append(got if isinstance(got, tuple) else (got[0] if isinstance(got, list) else got).value)
    mine = Armed() if rank == 1 else rank
    got = outcome(lambda: pc.allgather_object(mine, allow_pickle=rank in (0, 1)))
    found.append(got if isinstance(got, tuple) else [type(each).__name__ for each in got])
    found.append(list(Armed.unpickled))
    assert pc.allgather_object(rank) == [0, 1, 2]
    return found


def test_only_a_rank_that_says_so_unpickles() -> None:
    first, second, third = testing.run(some_allow_pickle, 3)
    assert first == [7, 7, ["int", "NoneType", "int"], [1]]
    assert second == [7, 7, ["int", "Armed", "int"], []]
    for refusal, sender in zip(third[:3], (0, 0, 1), strict=True):
        kind, rank, peer, _, text = refusal
        assert (kind, rank, peer) == ("CollectiveMismatch", 2, sender)
        assert f"rank {sender} sent a pickle (obj" in text
        assert "allow_pickle=True" in text
    assert "[0] is a test_objects.Opt)" in third[1][4]
    assert third[3] == []


def rebuild() -> int:
    if pc.rank() == 1:
        raise AttributeError("rank 1 has another version")
    return 7


class Fragile:
    def __reduce__(self) -> Any:
        return rebuild, ()


def pickles_that_fail() -> list[Any]:
    unpicklable = [Opt(1), lambda: None]
    never = outcome(lambda: pc.broadcast_object(unpicklable, allow_pickle=True))
    lost = outcome(lambda: pc.broadcast_object([Fragile()], allow_pickle=True))
    assert pc.allgather_object(1) == [1, 1]
    return [never, lost if isinstance(lost, tuple) else len(lost)]


def test_what_cannot_be_pickled_or_unpickled_is_an_error_that_says_so() -> None:
    (own, sent), (aborted, lost) = testing.run(pickles_that_fail, 2)
    assert own[0] == "InvalidArgument"
    assert "nor can it be pickled" in own[4]
    assert (aborted[0], sent, lost[0]) == ("Aborted", 1, "CollectiveMismatch")
    assert "cannot be read here: AttributeError: rank 1 has another version" in lost[4]


def too_large_for_one() -> None:
    rank = pc.rank()
    for count in (10, 5000, object_message.PIECE_NBYTES // 8 + 1):
        x = np.zeros(count)
        most = 100 if rank == 1 else None
        got = [outcome(lambda x=x, most=most: pc.broadcast_object(x if rank == 0 else None, max_nbytes=most))]
        mine = x if rank == 0 else 1
        got.append(outcome(lambda mine=mine, most=most: pc.allgather_object(mine, max_nbytes=most)))
        if rank == 0:
            pc.send_object(x, 1)
        elif rank == 1:
            got.append(outcome(lambda most=most: pc.recv_object(0, max_nbytes=most)))
        assert pc.allgather_object(rank) == [0, 1, 2]
        if rank == 1:
            for kind, _, peer, _, text in got:
                assert (kind, peer) == ("CollectiveMismatch", 0)
                assert "max_nbytes=100" in text
        else:
            assert got[0].size == count
    with pytest.raises(pc.InvalidArgument, match="more than max_nbytes=100"):
        pc.send_object(np.zeros(100), (rank + 1) % 3, max_nbytes=100)


def test_what_is_larger_than_allowed_passes_by_and_the_group_goes_on() -> None:
    testing.run(too_large_for_one, 3)


def without_the_library() -> Any:
    from arrays import torch  # imported here, because it takes long and no other rank needs it

    values = [np.ones(2, ml_dtypes.bfloat16)] + ([] if torch is None else [torch.ones(2)])
    found = []
    for value in values:
        hidden = {name: sys.modules[name] for name in ("torch", "ml_dtypes") if name in sys.modules}
        if pc.rank() == 1:
            sys.modules.update(dict.fromkeys(hidden))  # importing it fails
        found.append(outcome(lambda value=value: pc.broadcast_object(value if pc.rank() == 0 else None)))
        sys.modules.update(hidden)
    return found if pc.rank() == 1 else None


def test_arrays_of_a_library_that_is_not_here_are_refused_by_name() -> None:
    for kind, _, peer, _, text in testing.run(without_the_library, 2)[1]:
        assert (kind, peer) == ("Unsupported", 0)
        assert "nstall" in text


def a_peer_that_speaks_otherwise() -> None:
    random = np.random.default_rng(1)
    good = object_message.pack({"x": 1}, name="", allow_pickle=False, most_nbytes=1000)
    messages = [np.zeros(256, np.uint8), random.integers(0, 256, 256, np.uint8)]
    for place, byte in ((4, 9), (5, 3), (8, 30), (16, 255), (24, 0xC1)):
        header = good.header()
        header[place] = byte
        messages.append(header)
    refusal = object_message.refused(ValueError(), "why\x1b[2J").header()
    if pc.rank() == 0:
        for message in (*messages, refusal):
            pc.send(message, 1)
        pc.send_object("good", 1)
        return
    for _ in messages:
        with pytest.raises(pc.CollectiveMismatch, match="rank 0 sent"):
            pc.recv_object(0, timeout=20)
    with pytest.raises(pc.Aborted, match=r"why\?\[2J"):
        pc.recv_object(0)
    assert pc.recv_object(0) == "good"


def test_bytes_that_are_no_object_are_refused_by_the_senders_rank() -> None:
    testing.run(a_peer_that_speaks_otherwise, 2)


def test_arguments_that_cannot_be_right_are_refused_in_the_calls_own_words(world_of_one: pc.Group) -> None:
    for call, error, words in (
        (lambda: pc.broadcast_object(1, 1), pc.InvalidArgument, "broadcast_object: root must be between 0 and 0"),
        (lambda: pc.gather_object(1, root=-1), pc.InvalidArgument, "gather_object: root"),
        (lambda: pc.send_object(1, 5), pc.InvalidArgument, "send_object: peer"),
        (lambda: pc.broadcast_object(1, "0"), TypeError, "integer"),
        (lambda: pc.broadcast_object(1, allow_pickle="no"), TypeError, "allow_pickle must be True or False"),
        (lambda: pc.allgather_object(1, max_nbytes=-1), pc.InvalidArgument, "max_nbytes"),
        (lambda: pc.allgather_object(1, timeout=-1), pc.InvalidArgument, "timeout"),
        (lambda: pc.allgather_object(1, 2), TypeError, "positional"),
        (lambda: pc.broadcast_object(), TypeError, "obj"),
        (lambda: pc.broadcast_object(1, colour=2), TypeError, "colour"),
        (lambda: pc.scatter_object(None), pc.InvalidArgument, "a list of 1 objects, one a rank, not a NoneType"),
        (lambda: pc.broadcast_object(Opt(1)), pc.InvalidArgument, "obj is a test_objects.Opt"),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            call()
    pc.shutdown()
    for call in (pc.allgather_object, pc.broadcast_object, world_of_one.broadcast_object):
        with pytest.raises(pc.NotInitialized):
            call(1)
    pc.init()


def test_the_default_limit_is_one_gibibyte() -> None:
    assert objects.MAX_NBYTES == 1 << 30
