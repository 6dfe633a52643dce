"""The store of torch.distributed as a KVS, in a program that has already initialised it."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
from launchers import Command, torch, variables
from test_launchers import run

from pycollective.bootstrap.detect import detect
from pycollective.bootstrap.kvs.torch_default import initialised_store
from pycollective.errors import CollectiveTimeout, PeerFailure

ENVIRONMENT = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "1",
}
PROGRAM = """
import sys
import numpy as np, torch.distributed as dist
import pycollective as pc
dist.init_process_group("gloo")
pc.init(timeout=60)
assert pc.allreduce(np.ones(1)) == 2
pc.shutdown()
dist.destroy_process_group()
sys.stdout.write("joined\\n")
"""


class FakeStore:
    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.broken = False

    def set(self, key: str, value: str) -> None:
        self.values[key] = value.encode()

    def check(self, keys: list[str]) -> bool:
        if self.broken:
            raise RuntimeError("connection reset")
        return keys[0] in self.values

    def get(self, key: str) -> bytes:
        return self.values[key]

    def delete_key(self, key: str) -> bool:
        return self.values.pop(key, None) is not None


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FakeStore:
    """Returns the store of a fake torch.distributed, initialised as rank 1 of 2."""
    fake, module = FakeStore(), types.SimpleNamespace()
    module.is_available = module.is_initialized = lambda: True
    module.get_rank, module.get_world_size = lambda: 1, lambda: 2
    module.distributed_c10d = types.SimpleNamespace(_get_default_store=lambda: fake)
    monkeypatch.setitem(sys.modules, "torch.distributed", module)  # type: ignore[arg-type]
    return fake


def test_its_store_is_taken_if_it_has_the_same_ranks(store: FakeStore) -> None:
    place = detect(ENVIRONMENT)
    assert place.kvs is not None
    kvs = place.kvs()
    kvs.publish("key", "text", timeout_s=5)
    assert kvs.read("key", timeout_s=5) == "text"
    kvs.withdraw("key")
    assert not store.values
    with pytest.raises(CollectiveTimeout, match="rank 0 has not published its address in the store of torch"):
        kvs.read("key", timeout_s=0.05)
    store.broken = True
    with pytest.raises(PeerFailure, match="connection reset"):
        kvs.read("key", timeout_s=5)
    assert detect({**ENVIRONMENT, "WORLD_SIZE": "3"}).kvs is None


def test_without_it_nothing_is_taken_nor_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    assert initialised_store(1, 2, "") is None
    assert detect(ENVIRONMENT).kvs is None
    assert "torch.distributed" not in sys.modules


@pytest.mark.skipif(torch() is not None, reason=str(torch()))
@pytest.mark.timeout(120)
def test_ranks_that_share_no_home_connect_through_it(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    commands = [
        Command(each.words, {**each.env, "XDG_CONFIG_HOME": str(tmp_path / str(number))})
        for number, each in enumerate(variables(2, [str(script)]))
    ]
    codes, out, err = run(commands)
    assert codes == [0, 0], err
    assert out.count("joined") == 2
    assert sorted(each.name for each in tmp_path.iterdir()) == ["program.py"]  # no key was stored
