"""What one rank does for all; errors that name the condition on the rank before a collective."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import named_checks
import numpy as np
import pytest

import pycollective as pc
from pycollective import testing
from pycollective.calls import rank_conditions

CHECKS = named_checks.Checks()
ONES = np.ones(3)

# Each would wait for ranks that never call it.
CALLS: dict[str, Callable[[], object]] = {
    "allreduce": lambda: pc.allreduce(ONES.copy()),
    "allreduce_async": lambda: pc.allreduce_async(ONES.copy()),
    "a_list": lambda: pc.allreduce([ONES.copy()]),
    "broadcast": lambda: pc.broadcast(ONES.copy()),
    "allgather_auto": lambda: pc.allgather(ONES, counts="auto"),
    "barrier": pc.barrier,
    "broadcast_object": lambda: pc.broadcast_object("x"),
    "send": lambda: pc.send(ONES, (pc.rank() + 1) % pc.size()),
    "recv": lambda: pc.recv(ONES.copy(), (pc.rank() + 1) % pc.size()),
    "group": lambda: pc.group(range(pc.size())),
    "split": lambda: pc.world().split(0),
    "resync": pc.resync,
    "single_process": lambda: pc.single_process(int)(),
}


def refused_alone(call: Callable[[], object]) -> Callable[[], None]:
    def check() -> None:
        @pc.single_process
        def alone() -> str:
            with pytest.raises(pc.InvalidArgument, match="inside single_process alone"):
                call()
            assert pc.rank() == 0
            assert list(pc.world().ranks) == list(range(pc.size()))  # a query of the world is allowed
            return "done"

        assert alone() == "done"
        assert pc.allreduce(1) == pc.size()

    return check


for name, call in CALLS.items():
    CHECKS.add(f"inside_single_process_{name}_raises_instead_of_waiting", refused_alone(call), 2)


@CHECKS.on(1, 2, 3, 4)
def one_rank_runs_it_and_all_have_the_result() -> None:
    ran = []

    @pc.single_process(rank=pc.size() - 1)
    def load(words: int, *, more: str) -> dict[str, object]:
        ran.append(pc.rank())
        return {"words": words, "more": more, "array": np.arange(3)}

    result = load(7, more="x")
    assert (result["words"], result["more"]) == (7, "x")
    np.testing.assert_array_equal(result["array"], np.arange(3))
    assert ran == [pc.rank()] * (pc.rank() == pc.size() - 1)
    assert load.__name__ == "load"


@CHECKS.on(2)
def a_result_that_is_not_shared_need_not_be_sendable() -> None:
    @pc.single_process(share=False)
    def load() -> object:
        return open  # no codec takes a function

    assert load() is (open if pc.rank() == 0 else None)


def saves_alone() -> str:
    """Returns the error of the rank that waits in vain."""
    try:
        if pc.rank() == 0:
            pc.single_process(int)()
        pc.barrier()
    except pc.CollectiveError as error:
        return str(error)
    return ""


def test_what_one_rank_calls_alone_is_reported_with_its_line() -> None:
    said = testing.run(saves_alone_in_a_world, 2, init=False)[1]
    assert "test_rank0.py:" in said.partition("is inside `if pc.rank() == 0`")[0]
    assert "contextlib" not in said


def saves_alone_in_a_world() -> str:
    pc.init(timeout=20)
    said = saves_alone()
    with contextlib.suppress(pc.CollectiveError):  # the ranks are out of step
        pc.shutdown()
    return said


@CHECKS.on(2)
def a_result_that_cannot_be_sent_raises_on_all() -> None:
    @pc.single_process
    def load() -> object:
        return open

    with pytest.raises(pc.InvalidArgument if pc.rank() == 0 else pc.Aborted):
        load()
    assert pc.allreduce(1) == pc.size()


@CHECKS.on(2, 3)
def an_exception_of_the_one_rank_is_raised_on_all() -> None:
    @pc.single_process(rank=1)
    def load() -> None:
        Path("/no/such/file").read_text()

    with pytest.raises(FileNotFoundError, match="/no/such/file") as caught:
        load()
    assert caught.value.errno == 2
    cause = caught.value.__cause__
    if pc.rank() != 1:
        assert isinstance(cause, pc.RemoteError)
        assert cause.peer == 1
        assert 'Path("/no/such/file").read_text()' in str(cause)
    assert pc.allreduce(1) == pc.size()


@CHECKS.on(2)
def what_an_exception_was_made_with_is_the_same_on_all() -> None:
    bytes_error = UnicodeDecodeError("utf-8", b"x", 0, 1, "bad")
    for error in (KeyError("a"), ValueError(7, "b"), AssertionError(), bytes_error, ValueError(object)):

        @pc.single_process
        def load(error: Exception = error) -> None:
            raise error

        with pytest.raises(type(error)) as caught:
            load()
        assert str(caught.value) == str(error)
        travels = error.args != (object,)
        assert not travels or caught.value.args == error.args


class OfItsOwn(Exception):
    pass


@CHECKS.on(2)
def an_exception_of_an_unknown_type_comes_as_remote_error() -> None:
    @pc.single_process
    def load() -> None:
        raise OfItsOwn("no more")

    with pytest.raises(OfItsOwn if pc.rank() == 0 else pc.RemoteError, match="no more"):
        load()


@CHECKS.on(2)
def an_error_of_ours_keeps_its_type() -> None:
    @pc.single_process
    def load() -> None:
        raise pc.Unsupported("not here")

    with pytest.raises(pc.Unsupported, match="not here"):
        load()


@CHECKS.on(2)
def a_rank_that_does_not_exist_is_refused_before_a_wait() -> None:
    with pytest.raises(pc.InvalidArgument, match="2 ranks"):
        pc.single_process(rank=2)(int)()


@CHECKS.on(4)
def a_group_has_its_own_one_rank() -> None:
    pair = pc.world().split(pc.rank() // 2)
    assert pair is not None
    assert pc.single_process(rank=1, group=pair)(pc.rank)() == pc.rank() // 2 * 2 + 1


@CHECKS.on(2, 3)
def rank_0_goes_first_and_the_others_find_it_done() -> None:
    order = pc.store("order")
    with pc.main_first():
        count = order.add("first")
    assert (count == 1) == (pc.rank() == 0)
    with pc.main_first(local=True):
        count = order.add("again")
    assert (count == 1) == (pc.rank() == 0)


@CHECKS.on(2, 3)
def what_fails_on_the_first_is_raised_on_all_before_they_begin() -> None:
    ran = []

    def prepare() -> None:
        with pc.main_first():
            ran.append(pc.rank())
            raise ValueError("no such data")

    with pytest.raises(ValueError, match="no such data"):
        prepare()
    assert ran == [0] * (pc.rank() == 0)
    assert pc.allreduce(1) == pc.size()


@CHECKS.on(2)
def a_collective_inside_main_first_raises_on_every_rank() -> None:
    with pc.main_first(), pytest.raises(pc.InvalidArgument, match=r"inside main_first\(\)"):
        pc.barrier()
    assert pc.allreduce(1) == pc.size()


@CHECKS.on(2)
def ctrl_c_while_the_sources_are_read_is_not_lost() -> None:
    def interrupted(message: str) -> str:
        raise KeyboardInterrupt

    advice, rank_conditions.advice = rank_conditions.advice, interrupted
    with pytest.raises(KeyboardInterrupt):
        pc.allreduce(np.ones(3 + pc.rank()))
    rank_conditions.advice = advice
    assert pc.allreduce(1) == pc.size()


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    named_checks.assert_passed(__name__, size, name)


def test_without_a_world_both_just_run() -> None:
    with pc.main_first():
        assert pc.single_process(rank=3)(int)("7") == 7


def dies() -> None:
    @pc.single_process
    def load() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    load()


def test_the_death_of_the_one_rank_ends_the_waiting() -> None:
    with pytest.raises(testing.WorldFailed) as caught:
        testing.run(dies, 2, timeout_s=20)
    assert isinstance(caught.value.errors[1].exception, pc.PeerFailure)


@contextlib.contextmanager
def reported() -> Iterator[list[str]]:
    """Yields a list for the text of the error.

    Rank 0 ends the wait of the other ranks, and the group stays usable.
    """
    texts: list[str] = []
    try:
        yield texts
    except pc.CollectiveError as error:
        texts.append(str(error))
    finally:
        if pc.rank() == 0:
            pc.store().set("end", True)
        pc.resync()


def alone_under_a_condition(collective: bool) -> str:
    rank = pc.rank()

    def evaluate() -> object:
        return pc.allreduce(np.ones(2), timeout=None if collective else 0.2)

    with reported() as texts:
        if rank == 0:
            evaluate()
        if rank != 0 and collective:
            pc.barrier()
        if rank != 0:
            pc.store().wait("end")
    return "".join(texts)


def test_a_timeout_names_the_condition_on_the_rank() -> None:
    waited = testing.run(alone_under_a_condition, 2, False)[0]
    line = source_line("            evaluate()")
    assert f"world/test_rank0.py:{line} is inside `if rank == 0` (line {line - 1})" in waited


def test_a_mismatch_names_the_conditions_of_all_ranks_on_all_ranks() -> None:
    for reported in testing.run(alone_under_a_condition, 2, True):
        line = source_line("            pc.barrier()")
        assert (
            f"world/test_rank0.py:{line} is inside `if rank != 0 and collective` (line {line - 1})"
            in reported
        )


def late_under_other_conditions() -> str:
    """Makes a call that times out for another reason: all ranks make it, one of them late."""
    lora_rank, rank = 4, pc.rank()
    timeout = None if rank else 0.2
    common = types.SimpleNamespace(is_rank=lambda: True)
    with reported() as texts:
        if lora_rank > 0 and common.is_rank():
            if rank == 1:
                pc.store().wait("end")
            pc.barrier(timeout=timeout)
    return "".join(texts)


def test_names_that_only_have_rank_in_them_are_no_conditions_on_the_rank() -> None:
    waited = testing.run(late_under_other_conditions, 2)[0]
    assert "rank 1" in waited
    assert "lora_rank" not in waited


def apart_in_one_branch() -> str:
    rank = pc.rank()
    try:
        if rank < 8:
            pc.allreduce(np.ones(2 + rank))
        return ""
    except pc.CollectiveMismatch as error:
        return str(error)


def test_a_condition_that_all_ranks_came_through_is_not_named() -> None:
    for reported in testing.run(apart_in_one_branch, 3):
        assert "count 3 instead of 2" in reported
        assert "rank < 8" not in reported


@pytest.mark.parametrize(
    ("condition", "asks"),
    [
        ("rank == 0", True),
        ("not self.local_rank", True),
        ("dist.get_rank(group) == 0", True),
        ("comm.Get_rank() == 0", True),
        ("accelerator.is_main_process", True),
        ("trainer.is_global_zero", True),
        ("int(os.environ['LOCAL_RANK']) == 0", True),
        ("os.environ.get('OMPI_COMM_WORLD_RANK') == '0'", True),
        ("ddp_rank == 0 and step % 100 == 0", True),
        ("rank in ranks", True),
        ("lora_rank > 0", False),
        ("torch.linalg.matrix_rank(x) < 3", False),
        ("common.is_rank()", False),
        ("len(ranks) > 1", False),
        ("config['LORA_RANK'] > 1", False),
        ("mode == 'rank'", False),
        ("frank", False),
    ],
)
def test_a_condition_asks_after_the_rank_by_whole_words(condition: str, asks: bool) -> None:
    assert rank_conditions._asks(ast.parse(condition, mode="eval").body) == asks


def source_line(text: str) -> int:
    return Path(__file__).read_text().splitlines().index(text) + 1


SOURCE = """\
if rank == 0:
    match step:
        case 0 if ready(
            step  # one
        ):
            with open(path) as file:
                work(file)  # one
else:
    while not is_main_process:
        call(lambda x: (
            first() if local_rank
            else second()  # three
        ))
        call()  # two
    else:
        call()  # two
if rank == 1:
    @register(
        barrier()  # one
    )
    def f():
        return 1
call()  # none
@register(
    barrier() if rank == 2  # one
    else None
)
def g():
    values = [x for x in y if (
        barrier() if rank == 3 else x  # one
    )]
"""


def test_the_branches_of_a_line_are_all_that_contain_it(tmp_path: Path) -> None:
    file = tmp_path / "source.py"
    file.write_text(SOURCE)
    sources = rank_conditions._Sources()
    found = {
        line: [branch.condition for branch in sources.branches(str(file), line)]
        for line, text in enumerate(SOURCE.splitlines(), 1)
        if "#" in text
    }
    outer, inner = "`if rank == 0` (line 1)", "`if local_rank` (line 11)"
    loop = "`while not is_main_process` (line 9)"
    assert found == {
        **{4: [outer], 7: [outer], 12: [inner, loop, outer], 14: [loop, outer]},
        **{16: [f"the else of {loop}", outer], 19: ["`if rank == 1` (line 17)"], 23: []},
        **{25: ["`if rank == 2` (line 25)"], 30: ["`if rank == 3` (line 30)"]},
    }


def test_advice_on_a_deep_stack_parses_each_file_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = ast.parse

    def recurse(depth: int) -> str:
        return rank_conditions.advice("") if depth == 0 else recurse(depth - 1)

    with monkeypatch.context() as patch:
        patch.setattr(ast, "parse", lambda source: parsed.append(source) or parse(source))
        recurse(50)
    assert parsed.count(Path(__file__).read_text()) == 1
