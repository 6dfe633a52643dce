"""The store that torch.distributed gets from a world of ours does all that torch's stores do."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta

import pytest

import pycollective as pc
from pycollective import testing

pytest.importorskip("torch")

import torch
import torch.distributed as dist

from pycollective.torch.backend.launched import WorldStore


def begins_as_under_mpirun(backend: str) -> None:
    os.environ.pop("RANK", None)
    dist.init_process_group(backend)
    store = dist.distributed_c10d._get_default_store()
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    assert type(store) is WorldStore


def answers_as_torchs_stores_do() -> None:
    begins_as_under_mpirun("pycollective")
    checks_a_store(dist.distributed_c10d._get_default_store(), dist.get_rank(), dist.barrier)
    dist.destroy_process_group()


def checks_a_store(default: dist.Store, rank: int, barrier: Callable[[], object]) -> None:
    store = dist.PrefixStore("mine", default)
    if rank == 0:
        store.set("k", "v")
    assert store.get("k") == b"v"
    assert store.check(["k"])
    assert not store.check(["k", "missing"])
    barrier()
    keys = default.num_keys()
    barrier()
    won = store.compare_set("claim", "", str(rank))
    assert store.get("claim") == won
    assert store.compare_set("claim", "not it", "x") == won
    assert store.compare_set("never", "expected", "x") == b"expected"
    barrier()
    assert default.num_keys() == keys + 1
    barrier()
    store.append("log", f"{rank};")
    barrier()
    assert sorted(store.get("log")) == sorted(b"0;1;")
    store.multi_set([f"a/{rank}", f"b/{rank}"], [b"1", b"2"])
    assert store.multi_get([f"a/{rank}", f"b/{rank}"]) == [b"1", b"2"]
    barrier()
    if rank == 0:
        assert store.delete_key("k")
        assert not store.delete_key("k")
    barrier()
    assert not store.check(["k"])
    assert store.add("count", 1) in (1, 2)
    with pytest.raises(Exception, match="never"):
        store.wait(["never"], timedelta(milliseconds=10))
    barrier()


def test_every_method_of_a_store_of_torch_works() -> None:
    testing.run(answers_as_torchs_stores_do, 2)


def gloo_meets_in_it() -> list[float]:
    """Imitates mpirun and srun, under which torch alone finds no rank."""
    seen = []
    for _ in range(2):
        begins_as_under_mpirun("gloo")
        for group in (dist.new_group(), dist.group.WORLD):
            x = torch.ones(2)
            dist.all_reduce(x, group=group)
            seen.append(x[0].item())
        dist.barrier()
        dist.destroy_process_group()
    return [*seen, pc.allreduce(1.0)]  # the world stays


def test_other_backends_rendezvous_in_it_too_again_and_again() -> None:
    assert testing.run(gloo_meets_in_it, 2) == [[2.0] * 5] * 2
