"""Large arrays that are only moved are right by either method.

The methods read shared memory or the private memory of another process.
"""

import os
from pathlib import Path

import numpy as np
import pytest

import pycollective as pc
from pycollective import _core, testing

COUNT = 100_003  # of float32: several rounds and an odd rest
CALLS = 60  # a rank tries both methods in its first five calls of a kind, also as the root of a broadcast


@pytest.fixture(autouse=True)
def small_calls_may_use_private_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    profile.write_text(_core._profile_text([(3, "private_from", "64k")], ""))
    monkeypatch.setenv("PYCOLLECTIVE_PROFILE", str(profile))


def moves_are_exact(off_on: tuple[int, ...]) -> None:
    if int(os.environ["PYCOLLECTIVE_RANK"]) in off_on:
        os.environ["PYCOLLECTIVE_SINGLE_COPY"] = "off"
    pc.init()
    me, ranks = pc.rank(), pc.size()
    assert "private_from=64k" in str(pc.explain("allgather", nbytes=4 * COUNT))
    for call in range(CALLS):
        mine = np.arange(COUNT, dtype=np.float32) + 1000 * me + call
        gathered = pc.allgather(mine).reshape(ranks, COUNT)
        exchanged = pc.alltoall(np.tile(mine, ranks)).reshape(ranks, COUNT)
        sent = pc.broadcast(mine.copy(), call % ranks)
        for rank in range(ranks):
            theirs = np.arange(COUNT, dtype=np.float32) + 1000 * rank + call
            assert np.array_equal(gathered[rank], theirs), (call, rank)
            assert np.array_equal(exchanged[rank], theirs), (call, rank)
            if rank == call % ranks:
                assert np.array_equal(sent, theirs), call
    pc.shutdown()


@pytest.mark.parametrize("off_on", [(), (0, 1, 2), (1,)], ids=["allowed", "off", "off-on-one"])
def test_moves_are_exact_with_and_without_private_memory(off_on: tuple[int, ...]) -> None:
    testing.run(moves_are_exact, 3, off_on, init=False)
