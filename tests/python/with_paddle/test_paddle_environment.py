"""Paddle's functions know the world that init() makes.

test_paddle_training.py uses the real Paddle.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import pycollective as pc
from pycollective.runtime import lifetime, paddle_environment

NAMES = ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_RANK_IN_NODE")


@pytest.fixture
def parallel(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Stands in for a Paddle that was queried before there was a world."""
    module = SimpleNamespace(_global_parallel_env=SimpleNamespace(rank=0, world_size=1))
    monkeypatch.setitem(sys.modules, "paddle", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "paddle.distributed.parallel", module)
    for name in NAMES:  # so that they are removed afterwards
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    yield module
    lifetime._end()


def variables_after(rank: int, size: int, local_rank: int) -> list[str | None]:
    world: Any = SimpleNamespace(rank=rank, size=size, local_rank=local_rank)
    paddle_environment.set_variables(world, lifetime.at_end)
    return [os.environ.get(name) for name in NAMES]


def test_a_world_that_no_launcher_of_ours_made_has_paddles_variables_and_what_paddle_has_kept_is_forgotten(
    parallel: SimpleNamespace,
) -> None:
    assert variables_after(2, 3, 1) == ["2", "3", "1"]
    assert parallel._global_parallel_env is None


def test_the_next_world_gets_them_anew_and_a_world_of_one_is_nothing_new(parallel: SimpleNamespace) -> None:
    assert variables_after(0, 1, 0) == [None, None, None]
    assert parallel._global_parallel_env is not None
    assert variables_after(2, 3, 1) == ["2", "3", "1"]
    assert variables_after(1, 2, 1) == ["1", "2", "1"]
    assert variables_after(0, 1, 0) == ["0", "1", "0"]


def test_what_paddles_launcher_or_the_user_has_said_stays(
    parallel: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDLE_TRAINER_ID", "7")
    assert variables_after(2, 3, 1) == ["7", None, None]
    for name, value in zip(NAMES, ("1", "2", "1"), strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", "a:1,b:1")
    assert variables_after(2, 3, 1) == ["1", "2", "1"]


@pytest.mark.parametrize("end", [pc.shutdown, lifetime.abort])
def test_the_variables_go_with_the_world(parallel: SimpleNamespace, end: Callable[[], None]) -> None:
    pc.init()
    assert variables_after(1, 2, 1) == ["1", "2", "1"]
    parallel._global_parallel_env = SimpleNamespace(rank=1, world_size=2)
    os.environ[NAMES[2]] = "changed"
    end()
    assert [os.environ.get(name) for name in NAMES] == [None, None, "changed"]
    assert parallel._global_parallel_env is None


def test_what_the_launcher_has_said_is_there_again_after_the_world(
    parallel: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in zip(NAMES, ("0", "3", "0"), strict=True):  # as `pycollective run` does
        monkeypatch.setenv(name, value)
    pc.init()
    assert variables_after(1, 2, 1) == ["1", "2", "1"]
    pc.shutdown()
    assert [os.environ.get(name) for name in NAMES] == ["0", "3", "0"]


def test_nothing_is_said_where_there_is_no_paddle(
    parallel: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "paddle")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert variables_after(2, 3, 1) == [None, None, None]
