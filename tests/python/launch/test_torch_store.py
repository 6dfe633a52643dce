"""torchrun's agent store against a fake of it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from fake_launcher import FakeAgent, S, together

from pycollective.bootstrap.kvs.torch_store import TorchStore
from pycollective.errors import CollectiveTimeout, PeerFailure

pytestmark = pytest.mark.timeout(60)
SHORT = 0.05  # for calls that must time out
TEXT = "x" * 900


@pytest.fixture
def agent() -> Iterator[FakeAgent]:
    fake = FakeAgent()
    yield fake
    fake.end()


def test_the_agents_store_hands_on_replaces_and_forgets(agent: FakeAgent) -> None:
    root, other = (TorchStore("127.0.0.1", agent.port, "run/2") for _ in range(2))
    assert together(
        lambda: root.publish("key", TEXT, timeout_s=S), lambda: other.read("key", timeout_s=S)
    ) == [None, TEXT]
    root.publish("key", "after a restart", timeout_s=S)
    assert other.read("key", timeout_s=S) == "after a restart"
    assert list(agent.values) == [b"key/run/2"]
    root.withdraw("key")
    assert not agent.values


def test_an_agent_without_the_key_or_without_a_store_is_an_error_in_words(agent: FakeAgent) -> None:
    with pytest.raises(
        CollectiveTimeout,
        match=r"rank 0 has not published its address in torchrun's agent store at .* within 0.05 s",
    ):
        TorchStore("127.0.0.1", agent.port, "run/2").read("key", timeout_s=SHORT)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
    with pytest.raises(PeerFailure, match=r"MASTER_ADDR, MASTER_PORT.*does not answer.*LAUNCHER=variables"):
        TorchStore("127.0.0.1", port, "run/2").read("key", timeout_s=S)
    TorchStore("127.0.0.1", port, "run/2").withdraw("key")  # no store to inform
